"""`capgrade bench`: us beside a peer, in one process run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capgrade.pipelines.cli.needed import require_all
from capgrade.pipelines.cli.options import (
    AsJson,
    CaptionsDir,
    Measures,
    Out,
    ParamsFile,
    Sets,
    Split,
    load,
    names_of,
    overrides,
    say,
)
from capgrade.schemas.errors import InputError

app = typer.Typer(no_args_is_help=True, help="Time us beside a peer, in one process run.")


@app.command("metrics")
def bench_metrics(
    captions: CaptionsDir,
    split: Split = None,
    parity: Annotated[bool, typer.Option(help="Parity tables instead of times.")] = False,
    large: Annotated[bool, typer.Option(help="Growth up to 25,000 images as well.")] = False,
    as_json: AsJson = False,
) -> None:
    """Each metric's time beside eccv_caption, scikit-learn and scipy; captions: MS-COCO 5K."""
    from capgrade.benchmarks.metrics import run
    from capgrade.benchmarks.metrics import show as show_lines

    found = run(captions, large=large, with_parity=parity, split=split)
    say(found, True, "") if as_json else show_lines(found)


@app.command("relevance")
def bench_relevance(
    captions: CaptionsDir,
    measures: Measures = "cider,rouge_l,sbert",
    split: Split = None,
    pairs: Annotated[int, typer.Option(min=0, help="Random pairs that the peer scores beside the own pairs.")] = 20_000,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Pairs per second of each measure over the whole matrix, beside its peer, and the largest difference."""
    from capgrade.benchmarks.relevance import bench
    from capgrade.pipelines.cli.tables import bench_table

    result = bench(captions, names_of(measures, None), load(params, sets).measures, split, pairs)
    say(result, True, "") if as_json else bench_table(result)


@app.command("score")
def bench_score(captions: CaptionsDir, split: Split = None, as_json: AsJson = False) -> None:
    """Scores of captions beside pycocoevalcap: the first caption of each image with the others as references."""
    from capgrade.benchmarks.score import bench
    from capgrade.pipelines.cli.score_tables import bench_score_table

    result = bench(captions, split)
    say(result, True, "") if as_json else bench_score_table(result)


@app.command("regions")
def bench_regions(
    images: Annotated[Path, typer.Option(help="Folder of pictures, captions folder, or list.")],
    detector: Annotated[str, typer.Option(help="bottom_up or scenes.")] = "bottom_up",
    weights: Annotated[str | None, typer.Option(help="Checkpoint. Default: random, of full size.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Pictures to time.")] = 3,
    precision: Annotated[str, typer.Option(help="float32, or bf16 with its feature error.")] = "float32",
    effect: Annotated[bool, typer.Option(help="Also show what fewer proposals change in the kept regions.")] = False,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Images per second of the detector by step, the share of the arithmetic limit, and the ratio to detectron2."""
    from capgrade.benchmarks.regions import bench, show
    from capgrade.schemas.params import load_params

    weights = weights or ("random" if detector == "bottom_up" else None)
    options = overrides("regions", {"detector": detector, "weights": weights, "precision": precision})
    result = bench(images, load_params(None, [*(sets or []), *options]).regions, limit=limit, effect=effect)
    say(result, True, "") if as_json else show(result)


@app.command("train")
def bench_train(
    batch: Annotated[int, typer.Option(min=2, help="Pairs of a batch.")] = 128,
    models: Annotated[
        str | None, typer.Option(help="Names of models to time, as scan,vsrn. Default: all, and every loss.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Training steps of each model in pairs per second, beside the plain way to write them; and each loss."""
    from capgrade.benchmarks.train import MODELS, bench, show

    chosen = list(MODELS) if models is None else models.split(",")
    unknown = sorted(set(chosen) - MODELS.keys())
    if unknown:
        raise InputError(f"no model '{unknown[0]}' to time", remedy=f"choose from: {', '.join(MODELS)}")
    result = bench(batch, chosen, losses=models is None)
    say(result, True, "") if as_json else show(result)


@app.command("corpus")
def bench_corpus(
    images: Annotated[int, typer.Option(min=1, help="Images.")],
    out: Out,
    source: Annotated[Path, typer.Option(help="Captions folder to learn from, such as one of COCO 5K.")],
    split: Split = None,
    per_image: Annotated[int, typer.Option(min=1, help="Captions per image: 5 as in COCO, 1 as in CC3M.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    vectors: Annotated[bool, typer.Option(help="Also vectors.npy, stand-ins for sentence embeddings.")] = False,
    check: Annotated[bool, typer.Option(help="Print its statistics beside the real ones.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make any number of captions with the statistics of real ones, to time stages on; not for training."""
    from capgrade.benchmarks.corpus import check as table
    from capgrade.benchmarks.corpus import corpus, require_eighth
    from capgrade.schemas.captions import read_captions

    real = read_captions(source, split)
    if check:
        require_eighth(real)
    done = corpus(real, images, out, seed, vectors, per_image)
    say(done, as_json, f"{per_image * images:,} captions of {images:,} images -> {out}")
    if check:
        typer.echo(table(real, read_captions(out), seed), err=as_json)


@app.command("scale")
def bench_scale(
    captions: CaptionsDir,
    measures: Measures = "cider,rouge_l,sbert",
    split: Split = None,
    check: Annotated[int, typer.Option(min=1, help="Images to compare with brute force.")] = 1000,
    vectors: Annotated[
        Path | None, typer.Option(help="Stand-in embeddings of `bench corpus`, if encoding would take too long.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Keep the shards of all pairs here.")] = None,
    among: Annotated[float, typer.Option(min=0, max=1, help="Share of the captions that windows draw from.")] = 0.01,
    parts: Annotated[
        int | None,
        typer.Option(
            min=1, help="Run the first of so many parts and of four times as many, and compute all from them."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Sampled shards by values of all pairs, and with windows of a share, side by side at three sizes:
    seconds and their growth, pairs touched, memory, output, and equality with brute force."""
    names = names_of(measures, None)
    require_all("apache_beam", measures=() if vectors else names)
    from capgrade.benchmarks import scale, scale_parts

    if parts is None:
        result = scale.bench(captions, names, split, check, vectors, out, among)
        say(result, as_json, scale.show(result))
        return
    if out:
        raise InputError("--out keeps the shards of all pairs, which --parts does not make", remedy="leave one out")
    result = scale_parts.bench(captions, names, split, check, vectors, among, parts)
    say(result, as_json, scale_parts.show(result))


@app.command("tops")
def bench_tops(
    captions: CaptionsDir,
    measures: Measures = "meteor",
    split: Split = None,
    top: Annotated[int, typer.Option(min=1, help="Captions of highest relevance to find.")] = 64,
    images: Annotated[int, typer.Option(min=1, help="Random images to do it for.")] = 512,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """A measure's search for its best captions, beside all pairs: seconds, pairs touched, equality. METEOR has one."""
    from capgrade.benchmarks.tops import bench, show

    result = bench(captions, names_of(measures, None), load(params, sets).measures, split, top, images)
    say(result, True, "") if as_json else typer.echo(show(result))
    if not all(found["same"] for found in result.values()):
        raise InputError("these tops are not those of all pairs", file=captions, remedy="report it, please")


@app.command("explore")
def bench_explore(
    dataset: Annotated[Path | None, typer.Option(help="Folder that `capgrade publish` wrote.")] = None,
    captions: Annotated[Path | None, typer.Option(help="Instead: folder that `capgrade captions` wrote.")] = None,
    split: Split = None,
    runs: Annotated[list[Path] | None, typer.Option("--run", help="Folder of `capgrade train`.")] = None,
    indexes: Annotated[list[Path] | None, typer.Option("--index", help="Folder of `evaluate --run`.")] = None,
    as_json: AsJson = False,
) -> None:
    """How long the explorer takes to answer a typed caption."""
    from capgrade.benchmarks.explore import bench, show
    from capgrade.explorer.start import Folders, open_explorer

    folders = Folders(dataset=dataset, captions=captions, split=split, runs=runs or [], indexes=indexes or [])
    result = bench(open_explorer(folders))
    say(result, as_json, show(result))


@app.command("labels")
def bench_labels(
    shards: Annotated[Path, typer.Option(help="Folder that `capgrade shards` wrote.")],
    captions: CaptionsDir,
    as_json: AsJson = False,
) -> None:
    """How long the labels of a batch take: 128 x 128 and 4,096 x 4,096, asked for by ids."""
    from capgrade.benchmarks.labels import bench, show

    result = bench(shards, captions)
    say(result, as_json, show(result))


@app.command("reward")
def bench_reward(captions: CaptionsDir, split: Split = None, as_json: AsJson = False) -> None:
    """How long CIDEr-D as a reward takes: 10 candidates for each of 50 images, document frequencies fixed."""
    from capgrade.benchmarks.reward import bench, show
    from capgrade.schemas.captions import read_captions

    result = bench(read_captions(captions, split))
    say(result, as_json, show(result))


@app.command("rankings")
def bench_rankings(as_json: AsJson = False) -> None:
    """Metrics of top-k lists beside ranx and ir_measures, where these are installed, and the largest differences."""
    from capgrade.benchmarks.labels import rankings, show_rankings

    result = rankings()
    say(result, as_json, show_rankings(result))

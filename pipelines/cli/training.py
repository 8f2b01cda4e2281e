"""Commands around trained models and their scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capgrade.pipelines.cli.needed import ENCODER, require_all
from capgrade.pipelines.cli.options import (
    AsJson,
    CaptionsDir,
    Out,
    ParamsFile,
    RegionsDir,
    Sets,
    Split,
    load,
    overrides,
    pairs,
    say,
    with_given,
)
from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import require

if TYPE_CHECKING:
    from capgrade.schemas.params import TrainParams

app = typer.Typer()
ImageRegions = Annotated[
    Path | None, typer.Option("--regions", help="Folder that `capgrade regions` wrote; not of clip and siglip.")
]
Pictures = Annotated[
    Path | None,
    typer.Option(help="Pictures for clip and siglip: a folder, a captions folder, or a list of image_id<TAB>path."),
]
Run = Annotated[Path, typer.Option(help="Folder that `capgrade train` wrote.")]


@app.command()
def train(
    captions: CaptionsDir,
    out: Out,
    regions: ImageRegions = None,
    images: Pictures = None,
    preset: Annotated[
        str | None, typer.Option(help="Such as triplet, sam, bcls, daa, teran (docs/models.md), or one of params.yaml.")
    ] = None,
    shards: Annotated[
        Path | None,
        typer.Option(
            help="Labels for train.relevance=shards or train.composition=seeded: a folder of `capgrade shards`, "
            "`relevance` or `publish`, or USER/NAME of the hub."
        ),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split to learn from. Default: train.")] = None,
    validation: Annotated[str | None, typer.Option(help="Split to validate on. Default: val, else dev.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Default: as the preset says.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of weights, batches and negatives.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N. Default: auto.")] = None,
    restart: Annotated[bool, typer.Option(help="Start afresh in a folder that holds a run.")] = False,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Train a retrieval model; a stopped run goes on when run again, a finished one with more --epochs.

    Several processes: `torchrun --nproc-per-node 2 -m capgrade.pipelines.cli train ...`.
    """
    given = {"preset": preset, "split": split, "validation": validation, "epochs": epochs, "seed": seed}
    options = overrides("train", {**given, "device": device})
    loaded = load(params, [*(sets or []), *options])
    require_all(*_learning(loaded.train), measures=_labels(loaded.train), params=loaded.measures)
    from capgrade.trainer.fit.setup import Data
    from capgrade.trainer.fit.train import train as stage

    done = stage(Data(captions, regions, shards, images), out, loaded.train, loaded.measures, restart=restart)
    best = ", ".join(
        f"{name} {value:.{1 if name == 'rsum' else 3}f}"
        for name, value in done.get("best", {}).items()
        if name != "pairs_per_s"
    )
    say(done, as_json, f"{done['epochs']} epochs, loss {done['loss']:.4f}; best: {best or 'not validated'} -> {out}")


def _learning(params: TrainParams) -> list[str]:
    return ["torch", *(["tensorboard"] if params.tensorboard else [])]


def _labels(params: TrainParams) -> list[str]:
    """The measure that a run computes: it is validated by it."""
    return [params.measure] if params.validation else []


@app.command()
def embed(
    run: Run,
    captions: CaptionsDir,
    regions: ImageRegions = None,
    images: Pictures = None,
    split: Split = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write. Default: index in the run's folder.")] = None,
    pooling: Annotated[
        str | None, typer.Option(help="Score a TERN or TERAN by this alignment (MrSw, MwSr, ...), not by its own.")
    ] = None,
    best_by: Annotated[
        str | None, typer.Option(help="train.best_by or train.also_best_by of the run: which best epoch.")
    ] = None,
    coarse: Annotated[
        Path | None, typer.Option(help="Another model's similarity: only what it ranks first is scored, the rest -inf.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="With --coarse: captions per image, images per caption.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Encode a split with a trained model, and write the similarity matrix, for `search` and `evaluate`."""
    from capgrade.trainer.search.index import embed as stage

    out = out or run / "index"
    done = stage(run, captions, regions, split, out, pooling, best_by, coarse, top, images)
    rows = done["files"]
    if coarse is not None:
        typer.echo(f"scored: the {top} best of each image and caption by {coarse}; all other pairs are -inf", err=True)
    say(done, as_json, f"{rows['similarity.npy']['rows']:,} images, {rows['items.json']['rows']:,} captions -> {out}")


@app.command()
def search(
    run: Run,
    query: Annotated[str | None, typer.Option(help="A caption: which images fit?")] = None,
    image: Annotated[str | None, typer.Option(metavar="IMAGE_ID", help="An image: which captions fit?")] = None,
    index: Annotated[Path | None, typer.Option(help="Folder of `capgrade embed`. Default: index in the run.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Show what a trained model ranks first, with similarity and relevance."""
    require("torch", ENCODER)
    from dataclasses import asdict

    from capgrade.pipelines.cli.tables import hits_table
    from capgrade.trainer.search import index as stage

    if (query is None) == (image is None):
        raise InputError("a search is for a caption or for an image", remedy="give one of --query and --image")
    if query is not None and not query.strip():
        raise InputError("the query has no words", remedy="give --query a caption")
    folder = index or run / "index"
    found = stage.search(run, folder, query, top) if query else stage.search_captions(run, folder, str(image), top)
    say({"hits": [asdict(hit) for hit in found]}, True, "") if as_json else hits_table(query or str(image), found)


@app.command()
def align(
    run: Run,
    captions: CaptionsDir,
    regions: RegionsDir,
    images: Annotated[Path, typer.Option(help="The images that the regions were made from.")],
    out: Out,
    split: Split = None,
    count: Annotated[int, typer.Option(min=1, help="Number of images to draw, spread over the split.")] = 6,
    as_json: AsJson = False,
) -> None:
    """Draw the region that each word of a caption points at; play the pointing game if true boxes are known."""
    from capgrade.pipelines.cli.tables import pointing_table
    from capgrade.pipelines.pictures.listing import opener
    from capgrade.trainer.alignment.align import align as stage

    found = stage(run, captions, regions, split, out, opener(images), count)
    if as_json:
        say({"pointing": found}, True, "")
    elif found is None:
        typer.echo(f"no true boxes beside these captions, so no pointing game; picture -> {out}")
    else:
        pointing_table(found)
        typer.echo(f"-> {out}")


@app.command()
def evaluate(
    captions: CaptionsDir,
    similarity: Annotated[
        list[Path] | None,
        typer.Option(
            help="Images x captions: .npy, .pt, .arrow or .csv; repeat for the mean of several models' matrices."
        ),
    ] = None,
    image_embeddings: Annotated[Path | None, typer.Option(help="Embeddings of the images, same formats.")] = None,
    caption_embeddings: Annotated[Path | None, typer.Option(help="Those of the captions.")] = None,
    stand_in: Annotated[int | None, typer.Option(help="Caption k of each image stands for the image.")] = None,
    relevance: Annotated[Path | None, typer.Option(help="Folder of `capgrade relevance`, for graded metrics.")] = None,
    instances: Annotated[Path | None, typer.Option(help="COCO instances json, for PMRP.")] = None,
    positives: Annotated[Path | None, typer.Option(help="Positives of `capgrade audit`: accepted_recall.")] = None,
    split: Split = None,
    k: Annotated[list[int] | None, typer.Option("-k", help="Cut-off; repeat for several. Default: 1, 5, 10.")] = None,
    p: Annotated[int | None, typer.Option("-p", help="Depth of NDCG. Default: 25.")] = None,
    m: Annotated[list[int] | None, typer.Option("-m", help="Size of semantic recall's set. Default: 5, 10.")] = None,
    fold: Annotated[list[int] | None, typer.Option(help="Also average over folds of this many images.")] = None,
    metric: Annotated[list[str] | None, typer.Option(help="These metrics instead of the whole set.")] = None,
    ties: Annotated[str | None, typer.Option(help="expected, or reference (index order). Default: expected.")] = None,
    samples: Annotated[int | None, typer.Option(help="Bootstrap draws, 0 for none. Default: 1000.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Print every metric, not the short table.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for metrics.json, curves and per-query values.")] = None,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Score a similarity matrix on every retrieval metric, binary and graded, both directions, with intervals."""
    from capgrade.schemas.inputs import found_digests
    from capgrade.trainer.evaluation import evaluate as stage
    from capgrade.trainer.evaluation.tables import show as show_tables
    from capgrade.trainer.evaluation.task import load_task

    given = {"k": k, "p": p, "m": m, "fold": fold, "metric": metric, "ties": ties, "samples": samples}
    block = with_given(load(params, sets).evaluate, split=split, stand_in=stand_in, **given)
    tables = {"image_embeddings": image_embeddings, "caption_embeddings": caption_embeddings}
    labels = {"relevance": relevance, "instances": instances, "positives": positives}
    matrices = dict(zip(stage.similarity_names(similarity or []), similarity or [], strict=True))

    def digests() -> dict[str, str]:
        of = {} if block.split is None else {"split": block.split}
        return {**found_digests(captions=captions, **labels, **tables, **matrices), **of}

    inputs = digests()
    task, notes = load_task(
        captions, similarity=similarity, **tables, stand_in=block.stand_in, split=block.split, **labels
    )
    found = stage.evaluate(task, stage.Settings.of(block), notes=notes, out=out, inputs=inputs, now=digests)
    say(stage.as_json(found), True, "") if as_json else show_tables(found, every=every or bool(block.metric))


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(help="Folder of `capgrade evaluate --out`.")],
    second: Annotated[Path, typer.Argument(help="Another such folder, of the same captions.")],
    method: Annotated[str, typer.Option(help="permutation or bootstrap.")] = "permutation",
    as_json: AsJson = False,
) -> None:
    """Paired test of two evaluated systems, for every metric that both have."""
    from dataclasses import asdict

    from capgrade.pipelines.cli.tables import comparison_table
    from capgrade.trainer.evaluation.evaluate import compare as stage

    found = stage(first, second, method=method)
    say({name: asdict(test) for name, test in found.items()}, True, "") if as_json else comparison_table(found)


@app.command()
def tables(
    metric: Annotated[list[str], typer.Option(help="Metrics to put side by side.")],
    out: Out,
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="LABEL=DIR...", help="Folders of `capgrade evaluate --out`.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Instead: a folder of such folders, whose names become labels.")
    ] = None,
) -> None:
    """Several runs side by side, the best in bold: on the terminal, as Markdown and LaTeX."""
    from capgrade.trainer.evaluation.tables import evaluations_in, write_tables

    found = {label: Path(path) for label, path in pairs(runs, "runs").items()}
    text = write_tables({**(evaluations_in(folder) if folder else {}), **found}, metric, out)
    typer.echo(f"{text}-> {out}")

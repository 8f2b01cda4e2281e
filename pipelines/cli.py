"""The `capgrade` command: one subcommand a stage; each builds its parameters, calls the stage and prints."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from schemas.errors import InputError
from schemas.files import read_json
from schemas.params import Block, Params, load_params, validated

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Graded relevance labels for image-text retrieval. Every command reads `--params FILE` (params.yaml) when it "
    "is given, then `--set KEY=VALUE`, then its own options.",
)
bench_app = typer.Typer(no_args_is_help=True, help="Time us beside a peer, in one process run.")
app.add_typer(bench_app, name="bench")
regions_app = typer.Typer(invoke_without_command=True)
app.add_typer(regions_app, name="regions")

ParamsFile = Annotated[Path | None, typer.Option("--params", help="params.yaml to read; without it, the defaults.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", help="Override one parameter: measures.sbert.references=mean.")
]
Out = Annotated[Path, typer.Option(help="Folder to write.")]
CaptionsDir = Annotated[Path, typer.Option("--captions", help="Folder that `capgrade captions` wrote.")]
RegionsDir = Annotated[Path, typer.Option("--regions", help="Folder that `capgrade regions` wrote.")]
Split = Annotated[str | None, typer.Option(help="Split to use; not needed when there is only one.")]
Measures = Annotated[
    str | None,
    typer.Option(
        help="Measures, separated by commas: cider, rouge_l, sbert, and imported names. Default: cider,rouge_l,sbert.",
        show_default=False,
    ),
]
Imports = Annotated[
    list[str] | None,
    typer.Option("--import", help="NAME=FILE: a relevance matrix of someone else's (Arrow, .npy, TERAN) as a measure."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
_B = TypeVar("_B", bound=Block)
BEAM = {"allow_extra_args": True}  # what follows `--` goes to Apache Beam


def _pairs(items: list[str] | None, option: str) -> dict[str, str]:
    pairs = dict(item.split("=", 1) for item in items or [] if "=" in item)
    if len(pairs) != len(items or []):
        raise InputError(f"{option} {' '.join(items or [])}: not NAME=VALUE, each once")
    return pairs


def _names(measures: str | None, imports: list[str] | None, default: Sequence[str] = ()) -> tuple[str, ...]:
    """The measures asked for, else the default ones, and whatever is imported."""
    names = tuple(default) if measures is None else tuple(name.strip() for name in measures.split(","))
    return (*names, *(k for k in _pairs(imports, "--import") if k not in names))


def _load(params: Path | None, sets: list[str] | None, imports: list[str] | None = None) -> Params:
    loaded = load_params(params, sets or [])
    imported = {**loaded.measures.imported, **_pairs(imports, "--import")}
    return loaded.model_copy(update={"measures": loaded.measures.model_copy(update={"imported": imported})})


def _overrides(stage: str, given: dict[str, Any]) -> list[str]:
    """The options that were given on the command line, as `--set` takes them (JSON is YAML)."""
    return [f"{stage}.{key}={json.dumps(value)}" for key, value in given.items() if value is not None]


def _beam(context: typer.Context) -> list[str]:
    """The options for Apache Beam. InputError for a stray word: Beam would pass over it."""
    if context.args and not context.args[0].startswith("-"):
        remedy = f"see capgrade {context.command.name} --help; options of Apache Beam follow `--`"
        raise InputError(f"unexpected '{context.args[0]}'", remedy=remedy)
    return context.args


def _agreement(path: Path) -> dict[str, Any]:
    """What `capgrade agree --out` wrote. InputError when it is something else."""
    found = read_json(path)
    try:
        for row in found.values():
            row["pearson"].keys(), row["spearman"].keys()
    except (AttributeError, KeyError, TypeError):
        raise InputError("not agreement figures", file=path, remedy="give what capgrade agree --out wrote") from None
    return found


def _with(block: _B, **given: Any) -> _B:
    """The block with the options that were given on the command line, checked again."""
    values = {k: v for k, v in given.items() if v is not None}
    return validated(type(block), {**block.model_dump(), **values})


def _print(result: dict[str, Any], as_json: bool, text: str) -> None:
    typer.echo(json.dumps(result, indent=2) if as_json else text)


@app.command()
def captions(
    out: Out,
    source: Annotated[
        str | None,
        typer.Option(help="scenes, coco, karpathy, flickr, precomp, tsv, csv, jsonl, hub. Default: scenes."),
    ] = None,
    input: Annotated[str | None, typer.Option(help="File, folder or Hugging Face dataset to read.")] = None,
    split: Annotated[str | None, typer.Option(help="Split to keep, or its name where the source has none.")] = None,
    split_list: Annotated[list[str] | None, typer.Option(help="SPLIT=FILE of image ids (flickr).")] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="FIELD=COLUMN: image_id, caption_id, caption, split.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="ptb_py, ptb, lower_split, word_unigram. Default: ptb_py.")
    ] = None,
    empty: Annotated[str | None, typer.Option(help="Captions without words: refuse or drop. Default: refuse.")] = None,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Read captions from a source, check and tokenise them, and write one Arrow table."""
    from pipelines.captions import captions as stage

    lists = _pairs(split_list, "--split-list") or None
    given = {"source": source, "input": input, "split": split, "split_lists": lists}
    columns = {f"columns.{field}": name for field, name in _pairs(column, "--column").items()}
    options = _overrides("captions", {**given, **columns, "tokenizer": tokenizer, "empty": empty})
    done = stage(out, _load(params, [*(sets or []), *options]).captions)
    rows = done["files"]["captions.arrow"]["rows"]
    splits = ", ".join(f"{name} {count:,}" for name, count in done["splits"].items())
    _print(done, as_json, f"{rows:,} captions of {done['images']:,} images ({splits}) -> {out}")


@app.command()
def frequencies(
    captions: CaptionsDir, out: Annotated[Path, typer.Option(help="File to write.")], split: Split = None
) -> None:
    """Save the document frequencies of a split, for `measures.cider.document_frequency`."""
    from pipelines.measures.ngrams import document_frequencies
    from schemas.captions import read_captions

    counted = document_frequencies(read_captions(captions, split))
    counted.save(out)
    typer.echo(f"{len(counted.ngram):,} n-grams of {counted.n_images:,} images -> {out}")


@app.command(context_settings=BEAM)
def relevance(
    context: typer.Context,
    captions: CaptionsDir,
    out: Out,
    measures: Measures = None,
    imports: Imports = None,
    split: Split = None,
    dtype: Annotated[str | None, typer.Option(help="float32 or float16. Default: float32.")] = None,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Dense relevance of every caption to every image, for evaluation splits: one Arrow file a measure.

    Options after `--` go to Apache Beam: `-- --direct_num_workers=2 --direct_running_mode=multi_processing`.
    """
    from pipelines.relevance import relevance as stage

    loaded = _load(params, sets, imports)
    names = _names(measures, imports, loaded.relevance.measures)
    block = _with(loaded.relevance, measures=names, split=split, dtype=dtype)
    done = stage(captions, out, block, loaded.measures, _beam(context))
    files = ", ".join(
        f"{name} {entry['rows']:,} x {done['n_captions']:,}"
        for name, entry in done["files"].items()
        if name.endswith(".arrow")
    )
    _print(done, as_json, f"{files} -> {out}")


@app.command(context_settings=BEAM)
def shards(
    context: typer.Context,
    captions: CaptionsDir,
    out: Out,
    measures: Measures = None,
    imports: Imports = None,
    split: Split = None,
    top: Annotated[
        int | None, typer.Option(help="Captions of highest relevance kept, by each measure. Default: 64.")
    ] = None,
    uniform: Annotated[int | None, typer.Option(help="Captions drawn uniformly. Default: 64.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the samples. Default: 0.")] = None,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Sampled subsets of captions for each image, for training splits: Arrow shards; the dense matrix is not stored.

    Options after `--` go to Apache Beam: `-- --direct_num_workers=2 --direct_running_mode=multi_processing`.
    """
    from pipelines.shards import shards as stage

    loaded = _load(params, sets, imports)
    names = _names(measures, imports, loaded.shards.measures)
    block = _with(loaded.shards, measures=names, split=split, top=top, uniform=uniform, seed=seed)
    done = stage(captions, out, block, loaded.measures, _beam(context))
    rows = sum(entry["rows"] for entry in done["files"].values())
    _print(done, as_json, f"{done['pairs']:,} pairs of {rows:,} images in {len(done['files'])} shard(s) -> {out}")


@app.command()
def agree(
    captions: CaptionsDir,
    judgements: Annotated[Path, typer.Option(help="Crisscrossed Captions SITS csv, or image_id,caption_id,score.")],
    measures: Measures = "cider,rouge_l,sbert",
    imports: Imports = None,
    split: Split = None,
    out: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Agreement of each measure with human judgements: Pearson, Spearman, Kendall."""
    from pipelines.agree import agree as stage
    from pipelines.tables import agreement_table
    from schemas.files import write_json

    loaded = _load(params, sets, imports)
    result = stage(captions, judgements, _names(measures, imports), loaded.measures, split)
    if out:
        write_json(out, result)
    _print(result, True, "") if as_json else agreement_table(result)


@regions_app.callback()
def regions(
    context: typer.Context,
    images: Annotated[
        Path | None, typer.Option(help="Folder of pictures, captions folder, or list of image_id<TAB>path.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write.")] = None,
    detector: Annotated[str | None, typer.Option(help="scenes, bottom_up, detectron2. Default: scenes.")] = None,
    weights: Annotated[str | None, typer.Option(help="Checkpoint; or `random`, to try the speed.")] = None,
    boxes: Annotated[str | None, typer.Option(help="N or MIN-MAX regions an image, e.g. 10-100. Default: 36.")] = None,
    proposals: Annotated[int | None, typer.Option(help="Regions to choose from. Default: as the checkpoint.")] = None,
    precision: Annotated[str | None, typer.Option(help="float32 or bf16. Default: float32.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:N. Default: auto.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that decode pictures. Default: 2.")] = None,
    unreadable: Annotated[str | None, typer.Option(help="Unreadable pictures: fail or skip. Default: fail.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float16 or float32. Default: float16.")] = None,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Regions of images: what a detector finds in each, in Arrow shards; a stopped run goes on when run again.

    Several GPUs: `torchrun --nproc-per-node 4 -m pipelines.cli regions ...`, one process a GPU.
    """
    if context.invoked_subcommand:
        return
    if images is None or out is None:
        raise InputError("--images and --out are needed", remedy="see capgrade regions --help")
    from pipelines.regions import regions as stage

    given = {"detector": detector, "weights": weights, "boxes": boxes, "proposals": proposals, "precision": precision}
    more = {"device": device, "workers": workers, "unreadable": unreadable, "dtype": dtype}
    options = _overrides("regions", {**given, **more})
    done = stage(images, out, _load(params, [*(sets or []), *options]).regions)
    if done:
        _print(done, as_json, _regions_line(done, out))


def _regions_line(done: dict[str, Any], out: Path) -> str:
    images = sum(entry["rows"] for entry in done["files"].values())
    error = done["rounding"]
    rounded = f"rounded by at most {error['max_abs']:.2g}, {error['max_rel']:.2%} of a value"
    stored = f"{done['params']['dtype']}, {rounded if error['max_abs'] else 'not rounded'}"
    return f"{images:,} images, {done['regions']:,} regions of {done['dim']:,} numbers ({stored}) -> {out}"


@regions_app.command("import")
def import_regions(
    format: Annotated[str, typer.Option(help="tsv, npz, teran, scan, h5, lxmert.")],
    input: Annotated[Path, typer.Option(help="File of the format, or folder for npz and teran.")],
    out: Out,
    dtype: Annotated[str, typer.Option(help="float32, which loses nothing, or float16.")] = "float32",
    target_mb: Annotated[int, typer.Option(min=1, help="Size of a shard, about.")] = 512,
    as_json: AsJson = False,
) -> None:
    """Other people's feature files, checked, as Arrow shards."""
    from pipelines.exchange import import_regions as stage

    done = stage(format, input, out, dtype=dtype, target_mb=target_mb)
    _print(done, as_json, _regions_line(done, out))


@regions_app.command("export")
def export_regions(
    format: Annotated[str, typer.Option(help="tsv, scan, npz.")],
    regions: RegionsDir,
    out: Annotated[Path, typer.Option(help="File to write: any.tsv, {split}_ims.npy; for npz a folder.")],
) -> None:
    """Our shards in a layout that other code bases read."""
    from pipelines.exchange import export_regions as stage

    typer.echo(f"{stage(format, regions, out):,} images as {format} -> {out}")


@regions_app.command("show")
def show_regions(
    regions: RegionsDir,
    images: Annotated[Path, typer.Option(help="The images that the regions were made from.")],
    picture: Annotated[Path, typer.Option(help="PNG to draw.")],
    count: Annotated[int, typer.Option(min=1, help="How many images, spread over the folder.")] = 6,
    top: Annotated[int, typer.Option(min=1, help="Boxes an image, the most confident.")] = 6,
) -> None:
    """Draw boxes with classes and attributes on a handful of images."""
    from pipelines.region_show import draw_regions as stage

    typer.echo(f"{stage(regions, images, picture, count, top)} images -> {picture}")


@app.command()
def publish(
    captions: CaptionsDir,
    shards: Annotated[list[Path], typer.Option(help="Folder that `capgrade shards` wrote; one a split.")],
    out: Out,
    name: Annotated[str | None, typer.Option(help="Name of the dataset. Default: capgrade-scenes.")] = None,
    licence: Annotated[str | None, typer.Option("--license", "--licence", help="SPDX id, e.g. cc-by-4.0.")] = None,
    agreement: Annotated[Path | None, typer.Option(help="JSON of `capgrade agree --out`, for the card.")] = None,
    push: Annotated[str | None, typer.Option(metavar="REPO_ID", help="Upload to this Hugging Face dataset.")] = None,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Write a Hugging Face dataset folder with its card, and upload it if asked to."""
    from pipelines import publish as stage

    block = _with(_load(params, sets).publish, name=name, license=licence)
    done = stage.publish(captions, shards, out, block, _agreement(agreement) if agreement else None)
    rows = ", ".join(f"{file} {entry['rows']:,}" for file, entry in done["files"].items())
    _print(done, as_json, f"{rows} -> {out}")
    if push:
        typer.echo(stage.push(out, push), err=as_json)


@app.command()
def show(
    captions: CaptionsDir,
    relevance: Annotated[Path, typer.Option(help="Folder that `capgrade relevance` wrote.")],
    caption: Annotated[str | None, typer.Option(metavar="CAPTION_ID", help="Default: the first caption.")] = None,
    by: Annotated[str | None, typer.Option(help="Measure to rank by. Default: the last computed.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many images.")] = 5,
    picture: Annotated[Path | None, typer.Option(help="PNG to draw, when the captions come with images.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show a caption, the images it is relevant to, and how relevant."""
    from dataclasses import asdict

    from pipelines import show as stage
    from pipelines.tables import matches_table

    caption_id, text, found = stage.matches(captions, relevance, caption, by, top)
    if picture:
        stage.picture(captions, text, found, picture)
    result = {"caption_id": caption_id, "caption": text, "images": [asdict(match) for match in found]}
    _print(result, True, "") if as_json else matches_table(text, found)


@app.command()
def evaluate(
    captions: CaptionsDir,
    similarity: Annotated[Path | None, typer.Option(help="Images x captions: .npy, .pt or .arrow.")] = None,
    image_embeddings: Annotated[Path | None, typer.Option(help="Embedding table of the images.")] = None,
    caption_embeddings: Annotated[Path | None, typer.Option(help="Embedding table of the captions.")] = None,
    stand_in: Annotated[int | None, typer.Option(help="Caption k of each image stands for the image.")] = None,
    relevance: Annotated[Path | None, typer.Option(help="Folder of `capgrade relevance`: graded metrics.")] = None,
    instances: Annotated[Path | None, typer.Option(help="COCO instances json: PMRP.")] = None,
    split: Split = None,
    k: Annotated[list[int] | None, typer.Option("-k", help="Cut-off; repeat for several. Default: 1, 5, 10.")] = None,
    p: Annotated[int | None, typer.Option("-p", help="Depth of NDCG. Default: 25.")] = None,
    m: Annotated[list[int] | None, typer.Option("-m", help="Size of semantic recall's set. Default: 5, 10.")] = None,
    fold: Annotated[list[int] | None, typer.Option(help="Also average over folds of so many images.")] = None,
    metric: Annotated[list[str] | None, typer.Option(help="These metrics instead of the whole set.")] = None,
    ties: Annotated[str | None, typer.Option(help="expected, or reference (index order). Default: expected.")] = None,
    samples: Annotated[int | None, typer.Option(help="Bootstrap draws, 0 for none. Default: 1000.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for metrics.json, curves and per-query values.")] = None,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Score a similarity matrix on every retrieval metric, binary and graded, both directions, with intervals."""
    from trainer import evaluate as stage
    from trainer.report import show as show_tables
    from trainer.task import load_task

    given = {"k": k, "p": p, "m": m, "fold": fold, "metric": metric, "ties": ties, "samples": samples}
    block = _with(_load(params, sets).evaluate, split=split, stand_in=stand_in, **given)
    sources = {"similarity": similarity, "image_embeddings": image_embeddings, "caption_embeddings": caption_embeddings}
    task, notes = load_task(
        captions, **sources, stand_in=block.stand_in, relevance=relevance, instances=instances, split=block.split
    )
    found = stage.evaluate(task, stage.Settings.of(block), notes=notes, out=out)
    _print(stage.as_json(found), True, "") if as_json else show_tables(found)


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(help="Folder of `capgrade evaluate --out`.")],
    second: Annotated[Path, typer.Argument(help="Another, of the same captions.")],
    method: Annotated[str, typer.Option(help="permutation or bootstrap.")] = "permutation",
    as_json: AsJson = False,
) -> None:
    """Paired test of two evaluated systems, for every metric that both have."""
    from dataclasses import asdict

    from pipelines.tables import comparison_table
    from trainer.evaluate import compare as stage

    found = stage(first, second, method=method)
    _print({name: asdict(test) for name, test in found.items()}, True, "") if as_json else comparison_table(found)


@app.command()
def tables(
    runs: Annotated[list[str], typer.Argument(metavar="LABEL=DIR...", help="Folders of `capgrade evaluate --out`.")],
    metric: Annotated[list[str], typer.Option(help="Metrics to put side by side.")],
    out: Out,
) -> None:
    """Several runs side by side, the best in bold: Markdown and LaTeX."""
    from trainer.report import write_tables

    write_tables({label: Path(folder) for label, folder in _pairs(runs, "runs").items()}, metric, out)
    typer.echo(f"{len(runs)} runs, {len(metric)} metrics -> {out}")


@bench_app.command("metrics")
def bench_metrics(
    captions: CaptionsDir,
    split: Split = None,
    parity: Annotated[bool, typer.Option(help="Parity tables instead of times.")] = False,
    large: Annotated[bool, typer.Option(help="Growth up to 25,000 images as well.")] = False,
    as_json: AsJson = False,
) -> None:
    """Each metric's time beside eccv_caption, scikit-learn and scipy; captions: MS-COCO 5K."""
    from benchmarks.metrics import run
    from benchmarks.metrics import show as show_lines

    found = run(captions, large=large, with_parity=parity, split=split)
    _print(found, True, "") if as_json else show_lines(found)


@bench_app.command("relevance")
def bench_relevance(
    captions: CaptionsDir,
    measures: Measures = "cider,rouge_l,sbert",
    split: Split = None,
    pairs: Annotated[int, typer.Option(min=0, help="Random pairs the peer scores beside the own pairs.")] = 20_000,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Pairs a second of each measure over the whole matrix, beside its peer, and the largest difference."""
    from benchmarks.relevance import bench
    from pipelines.tables import bench_table

    result = bench(captions, _names(measures, None), _load(params, sets).measures, split, pairs)
    _print(result, True, "") if as_json else bench_table(result)


@bench_app.command("regions")
def bench_regions(
    images: Annotated[Path, typer.Option(help="Folder of pictures, captions folder, or list.")],
    detector: Annotated[str, typer.Option(help="bottom_up or scenes.")] = "bottom_up",
    weights: Annotated[str | None, typer.Option(help="Checkpoint. Default: random, of full size.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Pictures to time.")] = 3,
    precision: Annotated[str, typer.Option(help="float32, or bf16 with its feature error.")] = "float32",
    effect: Annotated[bool, typer.Option(help="What fewer proposals change in the kept regions.")] = False,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Images a second of the detector by step, the share of the arithmetic limit, and the ratio to detectron2."""
    from benchmarks.regions import bench, show

    weights = weights or ("random" if detector == "bottom_up" else None)
    options = _overrides("regions", {"detector": detector, "weights": weights, "precision": precision})
    result = bench(images, load_params(None, [*(sets or []), *options]).regions, limit=limit, effect=effect)
    _print(result, True, "") if as_json else show(result)


def main() -> None:
    """Run the command line; what is wrong with the user's input is one line and exit status 2."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    logging.basicConfig(format="%(message)s")
    logging.getLogger("pipelines").setLevel(logging.INFO)  # captions left out
    for handler in logging.getLogger().handlers:
        handler.addFilter(_worth_saying)
    try:
        app()
    except (InputError, OSError) as error:  # OSError: a full disk, a folder that may not be written
        if os.environ.get("CAPGRADE_DEBUG"):
            raise
        typer.secho(f"error: {_one_line(error)}", fg="red", err=True)
        sys.exit(2)
    except BaseException as error:
        if not _interrupted(error):
            raise
        typer.echo("stopped; relevance, shards and regions go on from here when run again", err=True)
        sys.exit(130)


def _worth_saying(record: logging.LogRecord) -> bool:
    """Not Beam's word at import that Google Cloud's client is not there, nor its traceback of a Ctrl-C."""
    message = record.getMessage()
    return "apitools not found" not in message and not message.startswith("KeyboardInterrupt")


def _interrupted(error: BaseException) -> bool:
    """Ctrl-C, as Python raises it, as Typer exits on it, or as Beam's worker wraps it in a RuntimeError."""
    stopped = isinstance(error, KeyboardInterrupt) or (isinstance(error, SystemExit) and error.code == 130)
    return stopped or str(error).startswith("KeyboardInterrupt")


def _one_line(error: InputError | OSError) -> str:
    if isinstance(error, OSError) and error.strerror:
        name = error.filename2 or error.filename  # the second of a rename is the one that was asked for
        return f"{name}: {error.strerror}" if name else error.strerror
    return str(error)


if __name__ == "__main__":
    main()

"""Commands around trained models and their scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capgrade.pipelines.cli.needed import require_all
from capgrade.pipelines.cli.options import (
    AsJson,
    CaptionsDir,
    Out,
    ParamsFile,
    Sets,
    Split,
    load,
    overrides,
    refuse,
    say,
    with_given,
)
from capgrade.schemas.errors import InputError

if TYPE_CHECKING:
    from capgrade.schemas.params import EvaluateParams, TrainParams

app = typer.Typer()
ImageRegions = Annotated[
    Path | None, typer.Option("--regions", help="Folder of `capgrade regions`; not of clip, siglip.")
]
Pictures = Annotated[
    Path | None,
    typer.Option(help="Pictures, for clip and siglip: folder or list."),
]


@app.command()
def train(
    captions: CaptionsDir,
    out: Out,
    regions: ImageRegions = None,
    images: Pictures = None,
    preset: Annotated[
        str | None, typer.Option(help="Such as triplet, sam, bcls, daa, teran (docs/training.md), or of params.yaml.")
    ] = None,
    shards: Annotated[
        Path | None,
        typer.Option(
            help="Labels, for train.relevance=shards: folder of `shards`, `relevance`, `publish`, or USER/NAME."
        ),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split to learn from. Default: train.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Default: as the preset says.")] = None,
    restart: Annotated[bool, typer.Option(help="Start afresh in a folder that holds a run.")] = False,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Train a retrieval model; a stopped run goes on when run again, a finished one with more --epochs.

    Several processes: `torchrun --nproc-per-node 2 -m capgrade.pipelines.cli train ...`.
    """
    options = overrides("train", {"preset": preset, "split": split, "epochs": epochs})
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
def evaluate(
    captions: Annotated[Path | None, typer.Option(help="Folder that `capgrade captions` wrote.")] = None,
    run: Annotated[Path | None, typer.Option(help="Run of `capgrade train` to encode and score.")] = None,
    regions: ImageRegions = None,
    images: Pictures = None,
    index: Annotated[Path | None, typer.Option(help="Where encodings go. Default: RUN/index.")] = None,
    similarity: Annotated[list[Path] | None, typer.Option(help="Images x captions (.npy, .pt, .arrow, .csv).")] = None,
    embeddings: Annotated[
        tuple[Path, Path] | None, typer.Option(metavar="IMAGES CAPTIONS", help="Two tables, same formats: cosines.")
    ] = None,
    stand_in: Annotated[int | None, typer.Option(help="Caption k of each image stands for the image.")] = None,
    relevance: Annotated[Path | None, typer.Option(help="Labels of `capgrade relevance`.")] = None,
    positives: Annotated[Path | None, typer.Option(help="Positives of `capgrade audit`: accepted_recall.")] = None,
    split: Split = None,
    fold: Annotated[list[int] | None, typer.Option(help="Also average over folds of this many images.")] = None,
    metric: Annotated[list[str] | None, typer.Option(help="These metrics instead of the whole set.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Print every metric, not the short table.")] = False,
    compared: Annotated[
        list[str] | None, typer.Option("--compare", metavar="[LABEL=]DIR", help="Compare finished evaluations.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for metrics.json and curves.")] = None,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Score a trained run or a similarity matrix on every retrieval metric, both directions, with intervals.

    `--compare A --compare B` makes a paired test of two folders that `--out` named. With `--metric` it puts folders,
    or all in one folder, side by side, the best in bold.
    """
    from capgrade.schemas.inputs import found_digests
    from capgrade.trainer.evaluation import evaluate as stage
    from capgrade.trainer.evaluation.tables import show as show_tables
    from capgrade.trainer.evaluation.task import load_task

    loaded = load(params, sets).evaluate
    if compared:
        refuse("--compare", captions=captions, run=run, similarity=similarity)
        _compare(compared, metric or [], out, loaded.test, as_json)
        return
    if captions is None:
        raise InputError("no captions to evaluate on", remedy="give --captions, or --compare with finished evaluations")
    block = with_given(loaded, split=split, stand_in=stand_in, fold=fold, metric=metric)
    if run is not None:
        refuse("--run", similarity=similarity, embeddings=embeddings, stand_in=block.stand_in)
        index = index or run / "index"
        typer.echo(_encoded(run, captions, regions, images, index, block), err=as_json)
        similarity = [index / "similarity.npy"]
    else:
        refuse("no --run", index=index, regions=regions, images=images)
    of_images, of_captions = embeddings or (None, None)
    tables = {"image_embeddings": of_images, "caption_embeddings": of_captions}
    instances = None if block.instances is None else Path(block.instances)
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


def _encoded(
    run: Path, captions: Path, regions: Path | None, images: Path | None, index: Path, params: EvaluateParams
) -> str:
    """The split through the run's model, kept in `index`; what was done, in a line."""
    from capgrade.schemas.times import timed
    from capgrade.trainer.search.index import embed

    coarse = None if params.coarse is None else Path(params.coarse)
    with timed("evaluate --run", index):
        done = embed(run, captions, regions, params.split, index, params.pooling, params.best_by, coarse,
                     params.coarse_top, images)  # fmt: skip
    rows = done["files"]
    said = f"{rows['similarity.npy']['rows']:,} images, {rows['items.json']['rows']:,} captions -> {index}"
    if coarse is None:
        return said
    scored = f"scored: the {params.coarse_top} best of each image and caption by {coarse}; all other pairs are -inf"
    return f"{said}\n{scored}"


def _compare(given: list[str], metrics: list[str], out: Path | None, method: str, as_json: bool) -> None:
    """The paired test of two evaluations; with metrics, a table of all."""
    from dataclasses import asdict

    from capgrade.pipelines.cli.tables import comparison_table
    from capgrade.trainer.evaluation.evaluate import compare
    from capgrade.trainer.evaluation.tables import labelled, side_by_side, write_tables

    runs = labelled(given)
    if metrics:
        text = side_by_side(runs, metrics) if out is None else write_tables(runs, metrics, out)
        typer.echo(text if out is None else f"{text}-> {out}", nl=out is not None)
    elif len(runs) != 2 or out is not None:
        problem = "--out takes a table of metrics" if out else f"a paired test is of two evaluations, not {len(runs)}"
        raise InputError(problem, remedy="name the metrics to put side by side, such as --metric rsum")
    else:
        found = compare(*runs.values(), method=method)
        say({name: asdict(one) for name, one in found.items()}, True, "") if as_json else comparison_table(found)

"""Commands around trained models and their scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.options import AsJson, CaptionsDir, Out, ParamsFile, Sets, Split, load, pairs, say, with_given

app = typer.Typer()


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
    block = with_given(load(params, sets).evaluate, split=split, stand_in=stand_in, **given)
    sources = {"similarity": similarity, "image_embeddings": image_embeddings, "caption_embeddings": caption_embeddings}
    task, notes = load_task(
        captions, **sources, stand_in=block.stand_in, relevance=relevance, instances=instances, split=block.split
    )
    found = stage.evaluate(task, stage.Settings.of(block), notes=notes, out=out)
    say(stage.as_json(found), True, "") if as_json else show_tables(found)


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
    say({name: asdict(test) for name, test in found.items()}, True, "") if as_json else comparison_table(found)


@app.command()
def tables(
    runs: Annotated[list[str], typer.Argument(metavar="LABEL=DIR...", help="Folders of `capgrade evaluate --out`.")],
    metric: Annotated[list[str], typer.Option(help="Metrics to put side by side.")],
    out: Out,
) -> None:
    """Several runs side by side, the best in bold: Markdown and LaTeX."""
    from trainer.report import write_tables

    write_tables({label: Path(folder) for label, folder in pairs(runs, "runs").items()}, metric, out)
    typer.echo(f"{len(runs)} runs, {len(metric)} metrics -> {out}")

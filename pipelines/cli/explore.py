"""`capgrade explore`: labels and models to look at, and pairs for people to rate."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from capgrade.pipelines.cli.needed import parts_of, require_all
from capgrade.pipelines.cli.options import Images, Measures, ParamsFile, Sets, Split, load, names_of, refuse
from capgrade.schemas.errors import InputError
from capgrade.schemas.hosts import is_loopback
from capgrade.schemas.say import warn

if TYPE_CHECKING:
    from capgrade.explorer.corpus import LabelledCorpus
    from capgrade.schemas.params import Params
    from capgrade.schemas.reviews import Plan

app = typer.Typer()

Dataset = Annotated[Path | None, typer.Option(help="Folder that `capgrade publish` wrote; enough by itself.")]
Captions = Annotated[Path | None, typer.Option(help="Instead: folder that `capgrade captions` wrote.")]
Shards = Annotated[Path | None, typer.Option(help="With --captions: folder of `capgrade shards`.")]
Relevance = Annotated[Path | None, typer.Option(help="With --captions: folder of `capgrade relevance`.")]
Runs = Annotated[list[Path] | None, typer.Option("--run", help="Folder of `capgrade train`; repeat for several.")]
Indexes = Annotated[
    list[Path] | None, typer.Option("--index", help="Folder of `evaluate --run`, one per run. Default: RUN/index.")
]


@app.command()
def explore(
    dataset: Dataset = None,
    captions: Captions = None,
    shards: Shards = None,
    relevance: Relevance = None,
    split: Split = None,
    measures: Measures = None,
    runs: Runs = None,
    indexes: Indexes = None,
    images: Images = None,
    reviews: Annotated[Path, typer.Option(help="Folder of the ratings that people give.")] = Path("reviews"),
    sample: Annotated[Path | None, typer.Option(metavar="DIR", help="Only choose pairs to rate, into DIR.")] = None,
    export: Annotated[Path | None, typer.Option(metavar="CSV", help="Only write mean scores of --reviews.")] = None,
    params: ParamsFile = None,
    sets: Sets = None,
) -> None:
    """A local page: what each measure and model ranks first, where they disagree, and pairs for people to rate.

    `--sample DIR` chooses pairs where measures disagree; with --run a model's misses, with `explore.pool` a pool.
    People rate them with `--reviews DIR`, models with `capgrade judge --pairs DIR`.
    """
    if export is not None:
        refuse("--export", dataset=dataset, captions=captions, sample=sample)
        _export(reviews, export)
        return
    loaded = load(params, sets)
    asked, names = loaded.explore, names_of(measures, loaded.shards.measures)
    if sample is not None:
        refuse("--sample", images=images)
        _sample(sample, Labelled(dataset, captions, shards, relevance, split, names), runs, indexes, loaded)
        return
    if loaded.regions.weights and not asked.detector:
        problem = "regions.weights without explore.detector"
        raise InputError(problem, remedy="set both, or leave regions.weights out")
    fitted = _measures(dataset, shards, relevance, names)
    models = ["torch"] if runs or asked.detector else []
    require_all("gradio", *models, measures=fitted, params=loaded.measures)
    from capgrade.explorer.reviews import Review
    from capgrade.explorer.server import serve
    from capgrade.explorer.start import ExplorerFolders, open_explorer

    judgements = None if asked.judgements is None else Path(asked.judgements)
    detector = loaded.regions.model_copy(update={"detector": asked.detector}) if asked.detector else None
    folders = ExplorerFolders(
        dataset, captions, shards, relevance, split, names, runs or [], indexes or [], images, judgements,
        loaded.measures, detector,
    )  # fmt: skip
    explorer = open_explorer(folders)
    if not is_loopback(asked.host):
        said = "everybody who reaches this machine by network can search and rate, without a password"
        warn(f"explore.host={asked.host}: {said}")
    told = lambda address: typer.echo(f"explorer at {address}")  # noqa: E731
    serve(explorer, Review(explorer, reviews), asked.host, asked.port, told)


class Labelled(NamedTuple):
    """Where labels are."""

    dataset: Path | None
    captions: Path | None
    shards: Path | None
    relevance: Path | None
    split: str | None
    measures: tuple[str, ...]


def _sample(out: Path, labelled: Labelled, runs: list[Path] | None, indexes: list[Path] | None, params: Params) -> None:
    """Write the review's plan and lines."""
    asked = params.explore
    if (runs and asked.pool is not None) or (asked.similarity and asked.pool is None):
        problem = "explore.pool goes with explore.similarity, not with --run"
        raise InputError(problem, remedy="set explore.pool and explore.similarity, or give --run")
    if len(runs or []) > 1:
        raise InputError("--sample looks at the misses of one model", remedy="give --run once")
    given = labelled.dataset or labelled.shards or labelled.relevance
    require_all(*(["torch"] if runs else []), measures=() if given else labelled.measures, params=params.measures)
    from capgrade.explorer.plans import misses_again, most_informative, write_lines, write_plan
    from capgrade.explorer.start import ExplorerFolders, read_corpus

    corpus = read_corpus(ExplorerFolders(*labelled, params=params.measures))
    if asked.pool is not None:
        plan = _pooled(corpus, [Path(path) for path in asked.similarity], asked.pool, asked.count, asked.seed)
    elif not runs:
        plan = most_informative(corpus.pairs, corpus.captions, corpus.fingerprint, asked.count, asked.seed)
    else:
        from capgrade.explorer.models import model_voice

        index = indexes[0] if indexes else runs[0] / "index"
        model = model_voice(runs[0].resolve().name, runs[0], index, corpus.captions)
        plan = misses_again(model, corpus.captions, corpus.fingerprint, asked.count, asked.seed)
    write_plan(out, plan)
    write_lines(out, plan, corpus.captions)
    typer.echo(f"{len(plan.items)} pairs to rate, protocol {plan.protocol} -> {out}")


def _export(reviews: Path, out: Path) -> None:
    """Mean scores of the rated pairs, as `capgrade agree --judgements` reads them."""
    from capgrade.explorer.judgements import export as write
    from capgrade.explorer.ratings import ReviewRatings

    if out.suffix == ".arrow":
        raise InputError("judgements are written as CSV", file=out, remedy="call it .csv; .arrow is a dense matrix")
    typer.echo(f"{write(ReviewRatings.open(reviews), out):,} pairs -> {out}")


def _measures(dataset: Path | None, shards: Path | None, relevance: Path | None, names: Iterable[str]) -> set[str]:
    """Those that the explorer fits: of the labels, else those asked for."""
    from capgrade.schemas.files import read_manifest

    if dataset:
        return parts_of(read_manifest(dataset, "publish")["measures"])
    if shards:
        return parts_of(read_manifest(shards, "shards")["params"]["measures"])
    return {path.stem for path in relevance.glob("*.arrow")} if relevance else set(names)


def _pooled(corpus: LabelledCorpus, similarity: list[Path], depth: int, count: int, seed: int) -> Plan:
    from capgrade.explorer.pool import pooled
    from capgrade.trainer.evaluation.inputs import read_similarity

    matrices = {f"model {k}": read_similarity(path, corpus.captions) for k, path in enumerate(similarity, 1)}
    plan = pooled(corpus.pairs, matrices, corpus.captions, corpus.fingerprint, depth, count, seed)
    for name, stratum in plan.facts["strata"].items():
        typer.echo(f"{name}: {stratum['chosen']:,} of {stratum['pairs']:,} pairs")
    return plan

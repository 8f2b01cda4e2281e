"""`capgrade explore` and `capgrade review`: labels and models to look at, and people's ratings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capgrade.pipelines.cli.needed import parts_of, require_all
from capgrade.pipelines.cli.options import (
    AsJson,
    Images,
    Measures,
    ParamsFile,
    Sets,
    Split,
    load,
    names_of,
    overrides,
    say,
)
from capgrade.schemas.errors import InputError
from capgrade.schemas.hosts import is_loopback
from capgrade.schemas.say import warn

if TYPE_CHECKING:
    from capgrade.explorer.corpus import Corpus
    from capgrade.schemas.reviews import Plan

app = typer.Typer()
review = typer.Typer(no_args_is_help=True, help="Pairs for people to rate, and what they said.")
app.add_typer(review, name="review")

Dataset = Annotated[Path | None, typer.Option(help="Folder that `capgrade publish` wrote; enough by itself.")]
Captions = Annotated[Path | None, typer.Option(help="Instead: folder that `capgrade captions` wrote.")]
Shards = Annotated[Path | None, typer.Option(help="With --captions: folder of `capgrade shards`.")]
Relevance = Annotated[Path | None, typer.Option(help="With --captions: folder of `capgrade relevance`.")]
Runs = Annotated[list[Path] | None, typer.Option("--run", help="Folder of `capgrade train`; repeat for several.")]
Indexes = Annotated[
    list[Path] | None, typer.Option("--index", help="Folder of `evaluate --run`, one per run. Default: RUN/index.")
]
Reviews = Annotated[Path, typer.Option(help="Folder of a review.")]


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
    judgements: Annotated[Path | None, typer.Option(help="People's scores, as `capgrade agree` reads them.")] = None,
    detector: Annotated[str | None, typer.Option(help="Detector for uploaded pictures: scenes, bottom_up.")] = None,
    weights: Annotated[str | None, typer.Option(help="The detector's checkpoint.")] = None,
    reviews: Reviews = Path("reviews"),
    host: Annotated[str, typer.Option(help="Address to listen on. Default: this machine only.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 7860,
    params: ParamsFile = None,
    sets: Sets = None,
) -> None:
    """A local app: what each measure and model ranks first, where they disagree, and pairs for people to rate."""
    if weights and not detector:
        raise InputError("--weights without --detector", remedy="give both, or leave --weights out")
    loaded = load(params, [*(sets or []), *overrides("regions", {"detector": detector, "weights": weights})])
    names = names_of(measures, None, loaded.shards.measures)
    fitted = _measures(dataset, shards, relevance, names)
    require_all("gradio", *(["torch"] if runs or detector else []), measures=fitted, params=loaded.measures)
    from capgrade.explorer.reviews import Review
    from capgrade.explorer.server import serve
    from capgrade.explorer.start import Folders, open_explorer

    folders = Folders(
        dataset, captions, shards, relevance, split, names, runs or [], indexes or [], images, judgements,
        loaded.measures, loaded.regions if detector else None,
    )  # fmt: skip
    explorer = open_explorer(folders)
    if not is_loopback(host):
        warn(f"--host {host}: everybody who reaches this machine by network can search and rate, without a password")
    serve(explorer, Review(explorer, reviews), host, port, lambda address: typer.echo(f"explorer at {address}"))


def _measures(dataset: Path | None, shards: Path | None, relevance: Path | None, names: Iterable[str]) -> set[str]:
    """Those that the explorer fits: of the labels, else those asked for."""
    from capgrade.schemas.files import read_manifest

    if dataset:
        return parts_of(read_manifest(dataset, "publish")["measures"])
    if shards:
        return parts_of(read_manifest(shards, "shards")["params"]["measures"])
    return {path.stem for path in relevance.glob("*.arrow")} if relevance else set(names)


@review.command()
def sample(
    out: Annotated[Path, typer.Option(help="Folder of the review, for `capgrade explore --reviews`.")],
    dataset: Dataset = None,
    captions: Captions = None,
    shards: Shards = None,
    relevance: Relevance = None,
    split: Split = None,
    measures: Measures = None,
    run: Annotated[Path | None, typer.Option(help="SemanticMap's protocol: the model whose misses are judged.")] = None,
    index: Annotated[Path | None, typer.Option(help="Its folder of `evaluate --run`. Default: RUN/index.")] = None,
    pool: Annotated[
        int | None,
        typer.Option(min=1, help="Pool so many best of each label and --similarity, unsure and random pairs."),
    ] = None,
    similarity: Annotated[
        list[Path] | None, typer.Option(help="With --pool: a model's similarity matrix; repeat for several.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Pairs; with --run, missed captions of ten pairs each.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the drawing and of each reviewer's order.")] = 0,
    params: ParamsFile = None,
    sets: Sets = None,
) -> None:
    """Choose pairs to rate: where measures disagree most; with --run a model's R@10 misses; with --pool the best of
    labels and models, unsure and random pairs, each with a known probability.

    People rate them with `capgrade explore --reviews`, models with `capgrade judge --pairs`, which reads pairs.jsonl.
    """
    if (run is not None and pool is not None) or (similarity and pool is None):
        raise InputError(
            "--pool goes with --similarity, not with --run", remedy="give --pool and --similarity, or --run"
        )
    loaded = load(params, sets)
    names = names_of(measures, None, loaded.shards.measures)
    computed = () if dataset or shards or relevance else names
    require_all(*(["torch"] if run else []), measures=computed, params=loaded.measures)
    from capgrade.explorer.lines import write_lines
    from capgrade.explorer.plans import misses_again, most_informative, write_plan
    from capgrade.explorer.start import Folders, read_corpus

    corpus = read_corpus(Folders(dataset, captions, shards, relevance, split, names, params=loaded.measures))
    if pool is not None:
        plan = _pooled(corpus, similarity or [], pool, count, seed)
    elif run is None:
        plan = most_informative(corpus.pairs, corpus.captions, corpus.fingerprint, count, seed)
    else:
        from capgrade.explorer.models import model_voice

        model = model_voice(run.resolve().name, run, index or run / "index", corpus.captions)
        plan = misses_again(model, corpus.captions, corpus.fingerprint, count, seed)
    write_plan(out, plan)
    write_lines(out, plan, corpus.captions)
    typer.echo(f"{len(plan.items)} pairs to rate, protocol {plan.protocol} -> {out}")


def _pooled(corpus: Corpus, similarity: list[Path], depth: int, count: int, seed: int) -> Plan:
    from capgrade.explorer.pool import pooled
    from capgrade.trainer.evaluation.inputs import read_similarity

    matrices = {f"model {k}": read_similarity(path, corpus.captions) for k, path in enumerate(similarity, 1)}
    plan = pooled(corpus.pairs, matrices, corpus.captions, corpus.fingerprint, depth, count, seed)
    for name, stratum in plan.facts["strata"].items():
        typer.echo(f"{name}: {stratum['chosen']:,} of {stratum['pairs']:,} pairs")
    return plan


@review.command()
def export(
    reviews: Reviews,
    out: Annotated[Path, typer.Option(help="CSV to write: image_id, caption_id, score, reviewers, scale.")],
) -> None:
    """Mean scores of the rated pairs, as `capgrade agree --judgements` reads them."""
    from capgrade.explorer.judgements import export as write
    from capgrade.explorer.ratings import Ratings

    if out.suffix == ".arrow":
        raise InputError("judgements are written as CSV", file=out, remedy="call it .csv; .arrow is a dense matrix")
    typer.echo(f"{write(Ratings.open(reviews), out):,} pairs -> {out}")


@review.command()
def agreement(
    reviews: Reviews,
    judgements: Annotated[
        list[Path] | None,
        typer.Option(help="What `capgrade judge` wrote of the same pairs; repeat for several models."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Krippendorff's alpha of the reviewers and of models; for SemanticMap's protocol R@10, for a pool the captions per
    image that each accepts."""
    from capgrade.explorer.judgements import agreement as work_out
    from capgrade.explorer.judgements import agreement_rows, read_judged
    from capgrade.explorer.ratings import Ratings
    from capgrade.pipelines.cli.tables import review_table

    ratings = Ratings.open(reviews)
    judged: dict[str, dict[int, float]] = {}
    scales: set[tuple[float, float]] = set()
    for path in judgements or []:
        tables, scale = read_judged(path, ratings.plan)
        scales.add(scale)
        if len(scales) > 1:
            raise InputError("another scale than the file before", file=path, remedy="judge on one scale")
        for name, table in tables.items():
            if name in judged:
                raise InputError(f"'{name}' is in another file too", file=path, remedy="give each model once")
            judged[name] = table
    found = work_out(ratings, judged, *scales)
    say(found, True, "") if as_json else review_table(found, agreement_rows(found))

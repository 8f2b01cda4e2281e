"""`capgrade explore`, a page to look at labels and to rate pairs, what chooses such pairs and
exports their ratings, and `capgrade agree raters`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from capgrade.pipelines.options import (
    FILE,
    FOLDER,
    AsJson,
    Force,
    ImagesOption,
    Measures,
    ParamsFile,
    SetOptions,
    Split,
    load,
    parse_measures,
    print_result,
    refuse_options,
    require_all,
)
from capgrade.schemas.errors import InputError
from capgrade.schemas.hosts import is_loopback
from capgrade.schemas.say import if_silent, warn

if TYPE_CHECKING:
    from capgrade.apps.explorer.app import AuditPage
    from capgrade.apps.explorer.start import ExplorerFolders
    from capgrade.params import Params


@dataclass(frozen=True)
class LabelFolders:
    """The labels that `explore` shows: a dataset, or captions and folders of the stages. A dataset
    of ids alone has its texts in captions."""

    dataset: Annotated[
        Path | None,
        Option(metavar=FOLDER, help="Folder of `capgrade publish`, or USER/NAME of the hub."),
    ] = None
    captions: Annotated[
        Path | None,
        Option(
            metavar=FOLDER,
            help="Folder of `capgrade captions`, in place of a dataset, or of one's texts.",
        ),
    ] = None
    shards: Annotated[
        Path | None, Option(metavar=FOLDER, help="With --captions: folder of `capgrade shards`.")
    ] = None
    relevance: Annotated[
        Path | None,
        Option(metavar=FOLDER, help="With --captions: folder of `capgrade relevance`."),
    ] = None


LABEL_FOLDERS = LabelFolders()


def explore(
    labels: LabelFolders = LABEL_FOLDERS,
    split: Split = None,
    measures: Measures = None,
    runs: Annotated[
        list[Path] | None,
        Option("--run", metavar=FOLDER, help="Folder of `capgrade train`; repeat for several."),
    ] = None,
    indexes: Annotated[
        list[Path] | None,
        Option(
            "--index",
            metavar=FOLDER,
            help="Folder of `capgrade embed`, one per run. Default: RUN/index.",
        ),
    ] = None,
    images: ImagesOption = None,
    reviews: Annotated[
        Path, Option(metavar=FOLDER, help="Folder of the ratings that people give.")
    ] = Path("reviews"),
    audit: Annotated[
        Path | None,
        Option(metavar=FILE, help="Page of `capgrade audit`, whose pairs people accept or reject."),
    ] = None,
    params: ParamsFile = None,
    sets: SetOptions = None,
) -> None:
    """A local page: what each measure and model ranks first, where they disagree, and pairs for
    people to rate.

    People rate the pairs of --reviews, which `explore sample` chose, or with --audit those that
    its page lists.
    """
    loaded = load(params, sets)
    settings, names = loaded.explore, parse_measures(measures, loaded.shards.measures)
    if loaded.regions.weights and not settings.detector:
        remedy = "set both, or leave regions.weights out"
        raise InputError("regions.weights without explore.detector", remedy=remedy)
    models = ["torch"] if runs or settings.detector else []
    folders = _folders(labels, split, loaded, names, runs or [], indexes or [], images)
    require_all("fastapi", *models, measures=folders.fitted, params=loaded.measures)
    audited = _audit_page(audit) if audit else None
    with if_silent(f"reading {labels.dataset or labels.captions}"):
        from capgrade.apps.explorer.app import serve
        from capgrade.apps.explorer.start import open_explorer

        explorer = open_explorer(folders)
    if not is_loopback(settings.host):
        message = (
            "everybody who reaches this machine by network can search and rate, without a password"
        )
        warn(f"explore.host={settings.host}: {message}")
    serve(
        explorer,
        reviews,
        settings.host,
        settings.port,
        lambda address: typer.echo(f"explorer at {address}"),
        audited,
    )


def _audit_page(page: Path) -> AuditPage:
    """The page with its list. InputError where the folder of its lists is not beside it."""
    from capgrade.apps.audit import audit_lists_folder
    from capgrade.apps.audit.lists import LIKELY_FILE
    from capgrade.apps.explorer.app import AuditPage
    from capgrade.schemas.files import read_manifest

    listed = audit_lists_folder(page)
    read_manifest(listed, "audit")
    if not page.is_file():
        raise InputError("no such page", file=page, remedy="give what capgrade audit wrote")
    return AuditPage(page, listed / LIKELY_FILE)


def sample(
    out: Annotated[Path, Option(metavar=FOLDER, help="Folder of a review to write.")],
    labels: LabelFolders = LABEL_FOLDERS,
    split: Split = None,
    measures: Measures = None,
    pairs: Annotated[
        Path | None,
        Option(
            metavar=FILE,
            help="These pairs: a table of image_id and caption_id, as of `audit` and `regrade`.",
        ),
    ] = None,
    run: Annotated[
        Path | None, Option(metavar=FOLDER, help="A model's misses: folder of `capgrade train`.")
    ] = None,
    index: Annotated[
        Path | None,
        Option(metavar=FOLDER, help="Folder of `capgrade embed`. Default: RUN/index."),
    ] = None,
    params: ParamsFile = None,
    sets: SetOptions = None,
) -> None:
    """Choose pairs to rate: where measures disagree, those of a list, or with --run a model's
    misses; with `explore.pool` a pool.

    People rate them with `capgrade explore --reviews OUT`, models with `capgrade judge --pairs
    OUT`.
    """
    loaded = load(params, sets)
    settings, names = loaded.explore, parse_measures(measures, loaded.shards.measures)
    if pairs is not None:
        refuse_options("with --pairs", run=run, index=index)
    if (run and settings.pool is not None) or (settings.similarity and settings.pool is None):
        problem = "explore.pool goes with explore.similarity, not with --run"
        raise InputError(problem, remedy="set explore.pool and explore.similarity, or give --run")
    if run is None and (settings.gallery is not None or settings.direction != "i2t"):
        raise InputError(
            "explore.gallery and explore.direction are of a model's misses", remedy="give --run"
        )
    fitted = set() if labels.dataset or labels.shards or labels.relevance else set(names)
    require_all(*(["torch"] if run else []), measures=fitted, params=loaded.measures)
    runs, indexes = [run] if run else [], [index] if index else []
    folders = _folders(labels, split, loaded, names, runs, indexes, None)
    from capgrade.apps.explorer.sample import write_sample

    plan = write_sample(out, folders, settings, pairs)
    for name, stratum in plan.facts.get("strata", {}).items():
        typer.echo(f"{name}: {stratum['chosen']:,} of {stratum['pairs']:,} pairs")
    typer.echo(f"{len(plan.items)} pairs to rate, protocol {plan.protocol} -> {out}")


def export(
    reviews: Annotated[
        Path, typer.Argument(metavar="REVIEWS", help="Folder of ratings, of `capgrade explore`.")
    ],
    out: Annotated[Path, Option(metavar=FILE, help="CSV to write: mean scores of pairs.")],
    force: Force = False,
) -> None:
    """What people rated, as judgements: the mean score of each pair.

    `agree`, `audit`, `evaluate` and `publish` read it, and labels as a measure of some pairs.
    """
    from capgrade.apps.explorer.judgements import export_judgements as write
    from capgrade.apps.explorer.ratings import ReviewRatings

    if out.suffix == ".arrow":
        remedy = "call it .csv; .arrow is a dense matrix"
        raise InputError("judgements are written as CSV", file=out, remedy=remedy)
    typer.echo(f"{write(ReviewRatings.open(reviews), out, force):,} pairs -> {out}")


def _folders(
    labels: LabelFolders,
    split: str | None,
    loaded: Params,
    names: Sequence[str],
    runs: list[Path],
    indexes: list[Path],
    images: str | None,
) -> ExplorerFolders:
    from capgrade.apps.explorer.start import ExplorerFolders

    settings = loaded.explore
    return ExplorerFolders(
        **vars(labels),
        split=split,
        measures=names,
        runs=runs,
        indexes=indexes,
        images=images,
        params=loaded.measures,
        similarity=[Path(path) for path in settings.similarity],
        judgements=None if settings.judgements is None else Path(settings.judgements),
        detector=(
            loaded.regions.model_copy(update={"detector": settings.detector})
            if settings.detector
            else None
        ),
    )


def raters(
    reviews: Annotated[
        Path, typer.Argument(metavar="REVIEWS", help="Folder of ratings, of `capgrade explore`.")
    ],
    judgements: Annotated[
        list[Path] | None,
        Option(metavar=FILE, help="What a model said of these pairs; repeat for several."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How far the raters of a review agree, and models that judged the same pairs: Krippendorff's
    alpha."""
    from capgrade.apps.explorer.judgements import (
        agreement_rows,
        measure_agreement,
        read_judge_tables,
    )
    from capgrade.apps.explorer.ratings import ReviewRatings

    ratings = ReviewRatings.open(reviews)
    result = measure_agreement(ratings, *read_judge_tables(judgements or [], ratings.plan))
    print_result(result, True) if as_json else _print_review(result, agreement_rows(result))


def _print_review(result: dict[str, Any], rows: Sequence[tuple[str, str]]) -> None:
    """A review's agreement, as `explorer.judgements.agreement_rows` says it."""
    from capgrade.schemas.console import print_table

    title = f"Review, protocol {result['protocol']}, {result['items']:,} pairs"
    print_table(title, ("", ""), rows, title_justify="left")

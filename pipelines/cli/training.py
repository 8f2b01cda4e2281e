"""Commands around trained models: training, scores, and search."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from capgrade.pipelines.options import (
    ENCODER,
    FILE,
    FOLDER,
    NAME,
    PATH,
    TEXT,
    AsJson,
    N,
    OptionalCaptions,
    OptionalOut,
    print_result,
    refuse_half,
    refuse_options,
    require_all,
)
from capgrade.schemas.errors import InputError

if TYPE_CHECKING:
    pass

ImageRegions = Annotated[
    Path | None,
    Option("--regions", metavar=FOLDER, help="Folder of `capgrade regions`; not of clip, siglip."),
]
Images = Annotated[
    Path | None, Option(metavar=PATH, help="Images, for clip and siglip: folder or list.")
]


def compare(
    evaluations: Annotated[
        list[str],
        typer.Argument(
            metavar="[LABEL=]FOLDER...",
            help="Folders of `capgrade evaluate`, or one that holds them.",
        ),
    ],
    metric: Annotated[
        list[str] | None, Option(metavar=NAME, help="Of these alone; repeat for more.")
    ] = None,
    every: Annotated[bool, Option("--all", help="Test every metric, not the usual ones.")] = False,
    test: Annotated[
        str, Option(metavar="permutation|bootstrap", help="How pairs are tested.")
    ] = "permutation",
    out: OptionalOut = None,
    as_json: AsJson = False,
) -> None:
    """Put evaluations side by side, with paired tests of the first against each other one.

    For a single evaluation, or where queries differ, it prints a table of the metrics. `--out`
    writes tables in Markdown and LaTeX.
    """
    refuse_half(evaluations, "compare")
    if len(evaluations) > 1:
        typer.echo(f"comparing {', '.join(evaluations)}", err=as_json)  # before slow imports
    from capgrade.pipelines.cli.tables import print_comparison
    from capgrade.trainer.evaluation.compare import compare_folders
    from capgrade.trainer.evaluation.tables import label_folders, table_of_runs, write_tables

    runs = label_folders(evaluations)
    if len(runs) < 2 and as_json:
        problem = f"a paired test is of two evaluations or more, not {len(runs)}"
        remedy = "name another one, or leave --json out for a table of this one"
        raise InputError(problem, remedy=remedy)
    names, comparison = compare_folders(runs, metric or [], every or as_json, test, as_json)
    if out is not None:
        write_tables(runs, names, out, comparison)
    if comparison is None:
        typer.echo(table_of_runs(runs, names), nl=False)
    elif as_json:
        print_result(comparison.json(), True)
    else:
        print_comparison(comparison)
    if out is not None:
        typer.echo(f"-> {out}", err=as_json)


@dataclass(frozen=True)
class LabelSearch:
    """What `search` looks up in labels."""

    relevance: Annotated[
        Path | None, Option(metavar=FOLDER, help="Labels: folder that `capgrade relevance` wrote.")
    ] = None
    caption: Annotated[
        str | None,
        Option(metavar="ID", help="Caption whose images the labels rank. Default: the first."),
    ] = None
    measure: Annotated[
        str | None, Option(metavar=NAME, help="Measure to rank by. Default: the last computed.")
    ] = None
    out: Annotated[
        Path | None,
        Option(metavar=FILE, help="PNG to draw, when the captions come with images."),
    ] = None
    force: Annotated[bool | None, Option("--force", help="Write over a file that is there.")] = None


@dataclass(frozen=True)
class ModelSearch:
    """What `search` asks a trained model."""

    query: Annotated[
        str | None, Option(metavar=TEXT, help="Caption in words; the images that fit it.")
    ] = None
    image: Annotated[
        str | None, Option(metavar="ID", help="Image of the index; the captions that fit it.")
    ] = None
    index: Annotated[
        Path | None,
        Option(metavar=FOLDER, help="Folder of `capgrade embed`. Default: RUN/index."),
    ] = None


def search(
    *,
    captions: OptionalCaptions = None,
    labels: LabelSearch,
    run: Annotated[
        Path | None, Option(metavar=FOLDER, help="A model: folder that `capgrade train` wrote.")
    ] = None,
    model: ModelSearch,
    top: Annotated[int, Option(min=1, metavar=N, help="How many to show.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Show what the labels of a caption, or a trained model, rank first."""
    if run is None:
        refuse_options("without --run", **vars(model))
        if captions is None or labels.relevance is None:
            remedy = "give --captions and --relevance, or --run with --query or --image"
            raise InputError("nothing to search", remedy=remedy)
        _search_labels(captions, labels.relevance, labels, top, as_json)
        return
    refuse_options("with --run", **vars(labels))
    refuse_options("with --run", captions=captions)
    _search_model(run, model, top, as_json)


def _search_labels(
    captions: Path, relevance: Path, wanted: LabelSearch, top: int, as_json: bool
) -> None:
    from capgrade.pipelines import show
    from capgrade.pipelines.cli.tables import print_matches

    caption_id, text, matches = show.matches(
        captions, relevance, wanted.caption, wanted.measure, top
    )
    if wanted.out:
        show.picture(captions, text, matches, wanted.out, bool(wanted.force))
    result = {
        "caption_id": caption_id,
        "caption": text,
        "images": [asdict(match) for match in matches],
    }
    print_result(result, True) if as_json else print_matches(text, matches)


def _search_model(run: Path, wanted: ModelSearch, top: int, as_json: bool) -> None:
    require_all("torch", ENCODER)
    from capgrade.pipelines.cli.tables import print_hits
    from capgrade.trainer.search import index as stage

    query, image, index = wanted.query, wanted.image, wanted.index or run / "index"
    if (query is None) == (image is None):
        raise InputError(
            "a search is for a caption or for an image", remedy="give one of --query and --image"
        )
    hits = (
        stage.search(run, index, query, top)
        if query
        else stage.search_captions(run, index, str(image), top)
    )
    (
        print_result({"hits": [asdict(hit) for hit in hits]}, True)
        if as_json
        else print_hits(query or str(image), hits)
    )

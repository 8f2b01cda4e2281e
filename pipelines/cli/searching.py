"""`capgrade search`: what labels or a trained model rank first, and what the words of a caption point at."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from capgrade.pipelines.cli.needed import ENCODER
from capgrade.pipelines.cli.options import AsJson, Split, refuse, say
from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import require

app = typer.Typer()


@app.command()
def search(
    captions: Annotated[Path | None, typer.Option(help="Folder that `capgrade captions` wrote.")] = None,
    relevance: Annotated[Path | None, typer.Option(help="Labels: folder that `capgrade relevance` wrote.")] = None,
    caption: Annotated[str | None, typer.Option(metavar="ID", help="Its images by the labels. Default: first.")] = None,
    by: Annotated[str | None, typer.Option(help="Measure to rank by. Default: the last computed.")] = None,
    picture: Annotated[Path | None, typer.Option(help="PNG to draw, when the captions come with images.")] = None,
    run: Annotated[Path | None, typer.Option(help="A model: folder that `capgrade train` wrote.")] = None,
    query: Annotated[str | None, typer.Option(help="A caption in words: which images fit?")] = None,
    image: Annotated[str | None, typer.Option(metavar="ID", help="An image: which captions fit?")] = None,
    index: Annotated[Path | None, typer.Option(help="Folder of `evaluate --run`. Default: RUN/index.")] = None,
    words: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for what words of TERAN point at.")] = None,
    regions: Annotated[Path | None, typer.Option(help="With --words: folder of `capgrade regions`.")] = None,
    images: Annotated[Path | None, typer.Option(help="With --words: images that the regions are of.")] = None,
    split: Split = None,
    top: Annotated[int | None, typer.Option(min=1, help="How many. Default: 5, and 6 with --words.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what the labels of a caption, or a trained model, rank first.

    `--words DIR` draws the region that each word of a caption points at, and plays the pointing game if true boxes are
    known.
    """
    if run is None:
        refuse("no --run", query=query, image=image, index=index, words=words, regions=regions, images=images)
        if captions is None or relevance is None:
            remedy = "give --captions and --relevance, or --run with --query, --image or --words"
            raise InputError("nothing to search", remedy=remedy)
        refuse("--relevance", split=split)
        _labels(captions, relevance, caption, by, picture, top or 5, as_json)
        return
    refuse("--run", relevance=relevance, caption=caption, by=by, picture=picture)
    if words is None:
        refuse("no --words", captions=captions, regions=regions, images=images, split=split)
        _model(run, query, image, index or run / "index", top or 5, as_json)
        return
    refuse("--words", query=query, image=image, index=index)
    if captions is None or regions is None or images is None:
        raise InputError("--words without its images", remedy="give --captions, --regions and --images")
    _words(run, captions, regions, images, split, words, top or 6, as_json)


def _labels(
    captions: Path, relevance: Path, caption: str | None, by: str | None, picture: Path | None, top: int, as_json: bool
) -> None:
    from capgrade.pipelines import show
    from capgrade.pipelines.cli.tables import matches_table

    caption_id, text, found = show.matches(captions, relevance, caption, by, top)
    if picture:
        show.picture(captions, text, found, picture)
    result = {"caption_id": caption_id, "caption": text, "images": [asdict(match) for match in found]}
    say(result, True, "") if as_json else matches_table(text, found)


def _model(run: Path, query: str | None, image: str | None, index: Path, top: int, as_json: bool) -> None:
    require("torch", ENCODER)
    from capgrade.pipelines.cli.tables import hits_table
    from capgrade.trainer.search import index as stage

    if (query is None) == (image is None):
        raise InputError("a search is for a caption or for an image", remedy="give one of --query and --image")
    if query is not None and not query.strip():
        raise InputError("the query has no words", remedy="give --query a caption")
    found = stage.search(run, index, query, top) if query else stage.search_captions(run, index, str(image), top)
    say({"hits": [asdict(hit) for hit in found]}, True, "") if as_json else hits_table(query or str(image), found)


def _words(
    run: Path, captions: Path, regions: Path, images: Path, split: str | None, out: Path, count: int, as_json: bool
) -> None:
    from capgrade.pipelines.cli.tables import pointing_table
    from capgrade.pipelines.pictures.listing import opener
    from capgrade.trainer.alignment.align import align

    found = align(run, captions, regions, split, out, opener(images), count)
    if as_json:
        say({"pointing": found}, True, "")
    elif found is None:
        typer.echo(f"no true boxes beside these captions, so no pointing game; picture -> {out}")
    else:
        pointing_table(found)
        typer.echo(f"-> {out}")

"""Commands that look at what there is: what a caption matches, how it is parsed, whether folders are whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capgrade.pipelines.cli.options import (
    AsJson,
    CaptionsDir,
    say,
)

app = typer.Typer()


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

    from capgrade.pipelines import show as stage
    from capgrade.pipelines.cli.tables import matches_table

    caption_id, text, found = stage.matches(captions, relevance, caption, by, top)
    if picture:
        stage.picture(captions, text, found, picture)
    result = {"caption_id": caption_id, "caption": text, "images": [asdict(match) for match in found]}
    say(result, True, "") if as_json else matches_table(text, found)


@app.command()
def parse(
    caption: Annotated[str, typer.Argument(help="A caption, in quotes.")],
    as_json: AsJson = False,
) -> None:
    """Show the scene graph that measure scene_graph reads in a caption."""
    from dataclasses import asdict

    from capgrade.pipelines.measures.ptb import ptb_tokens
    from capgrade.pipelines.measures.scene_graph.parse import parse as read

    graph = read(tuple(ptb_tokens(caption)))
    say(asdict(graph), as_json, str(graph))


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a stage, or a folder that holds several.")],
    as_json: AsJson = False,
) -> None:
    """Check that everything below a folder is whole: manifests, sizes, checksums, rows. Exit status 2 if it is not."""
    from capgrade.pipelines.verify import verify as check

    report = check(folder)
    lines = [f"ok: {found.folder}: {found.kind}, {found.files} files, {found.bytes:,} bytes" for found in report.usable]
    say(report.json(), as_json, "\n".join(lines)) if as_json or lines else None
    for problem in report.problems:
        typer.secho(f"error: {problem}", fg="red", err=True)
    if report.problems:
        raise typer.Exit(2)

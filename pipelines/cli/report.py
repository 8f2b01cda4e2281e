"""The command that shows everything on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def report(
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
    data: Annotated[Path, typer.Option(help="Folder of the outputs, named as in dvc.yaml.")] = Path("data"),
    pictures: Annotated[Path | None, typer.Option(help="Folder for the charts as PNG and SVG.")] = None,
    title: Annotated[str | None, typer.Option(help="Default: the folder's name.")] = None,
) -> None:
    """Everything that a pipeline wrote on one HTML page, which opens from disk and needs no network.

    The page names what is missing, with the command that makes it.
    """
    from capgrade.pipelines.report import report as stage

    done = stage(data, out, pictures, title)
    also = f", {len(done.pictures)} pictures -> {pictures}" if pictures else ""
    typer.echo(f"{done.sections} sections, {done.bytes / 1e6:.1f} MB -> {out}{also}")
    for what in done.missing:
        typer.echo(f"not here: {what}")

"""`capgrade report`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from capgrade.pipelines.options import (
    FILE,
    FOLDER,
    TEXT,
    Force,
    ImagesOption,
    ParamsFile,
    SetOptions,
    load,
)
from capgrade.schemas.output import UNDER_DVC, delete_kept


def report(
    out: Annotated[Path, Option(metavar=FILE, help="HTML file to write.")] = Path("report.html"),
    data: Annotated[
        Path, Option(metavar=FOLDER, help="Folder of the outputs, named as in dvc.yaml.")
    ] = Path("data"),
    charts: Annotated[
        Path | None, Option(metavar=FOLDER, help="Folder for the charts as PNG and SVG.")
    ] = None,
    title: Annotated[
        str | None,
        Option(
            metavar=TEXT,
            help="Title of the page. Default: publish.name, else the folder's name.",
        ),
    ] = None,
    images: ImagesOption = None,
    force: Force = False,
    params: ParamsFile = None,
    sets: SetOptions = None,
) -> None:
    """Everything that a pipeline wrote on one HTML page, which opens from disk and needs no
    network.

    The page names what is missing, with the command that makes it.
    """
    from capgrade.apps.report import report as stage

    loaded = load(params, sets)
    if "name" in loaded.publish.model_fields_set:
        title = title or loaded.publish.name
    done = stage(data, out, charts, title, images or loaded.regions.images, force)
    also = f", {len(done.pictures)} pictures -> {charts}" if charts else ""
    typer.echo(f"{done.sections} sections, {done.bytes / 1e6:.1f} MB -> {out}{also}")
    for what in done.missing:
        typer.echo(f"not here: {what}")
    if UNDER_DVC in os.environ:  # it has recorded whatever the page shows
        delete_kept(data)

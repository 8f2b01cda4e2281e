"""Commands around regions: a detector's weights, layouts of others, and pictures of boxes."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from capgrade.pipelines.options import (
    FILE,
    NAME,
    PATH,
    AsJson,
    Force,
    RegionsDir,
    print_result,
)


def convert_weights(
    input: Annotated[
        Path, Option(metavar=FILE, help="A published checkpoint of the bottom-up model.")
    ],
    out: Annotated[Path, Option(metavar=FILE, help="File to write, of safetensors.")],
    names: Annotated[
        tuple[Path, Path] | None,
        Option(metavar="CLASSES ATTRIBUTES", help="Two files, a name a line."),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Check every tensor of a published checkpoint, and write it as safetensors."""
    from capgrade.pipelines.detectors.checkpoint import convert

    classes, attributes = names or (None, None)
    made = convert(input, out, classes_file=classes, attributes_file=attributes, force=force)
    print_result(made, as_json, f"{made['layout']} -> {out}")


def export_regions(
    format: Annotated[str, Option(metavar=NAME, help="One of tsv, scan and npz.")],
    regions: RegionsDir,
    out: Annotated[
        Path,
        Option(metavar=PATH, help="File to write: any.tsv, {split}_ims.npy; for npz a folder."),
    ],
    force: Force = False,
) -> None:
    """Write our shards in a layout that other code bases read."""
    from capgrade.pipelines.features.convert import export_regions as stage

    typer.echo(f"{stage(format, regions, out, force):,} images as {format} -> {out}")


def show_regions(
    regions: RegionsDir,
    images: Annotated[Path, Option(metavar=PATH, help="Images that the regions were made from.")],
    out: Annotated[Path, Option(metavar=FILE, help="PNG to draw.")],
    force: Force = False,
) -> None:
    """Draw boxes with classes and attributes on a handful of images."""
    from capgrade.pictures.draw_regions import draw_regions as stage

    typer.echo(f"{stage(regions, images, out, force=force)} images -> {out}")

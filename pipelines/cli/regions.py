"""Commands around regions: features of others, and pictures of boxes."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from capgrade.pipelines.options import (
    FILE,
    FOLDER,
    NAME,
    PATH,
    AsJson,
    Force,
    RegionsDir,
    print_result,
    refuse_options,
)
from capgrade.pipelines.stages.regions import left_out_line, regions_line
from capgrade.schemas.errors import InputError

CaptionsOfImages = Annotated[
    Path | None,
    Option(
        "--captions",
        metavar=FOLDER,
        help="Folder of `capgrade captions`: its images alone, by their ids.",
    ),
]
SplitsOfImages = Annotated[
    str | None,
    Option(
        "--split",
        metavar="SPLIT",
        help="With --captions: these splits, as val+test. Default: all.",
    ),
]


def import_regions(
    format: Annotated[
        str,
        Option(
            metavar=NAME,
            help="One of tsv, npz, teran, scan, h5, lxmert, npy; or weights, a checkpoint.",
        ),
    ],
    input: Annotated[
        list[Path],
        Option(
            metavar=PATH,
            help="File of the format, or folder for npz and teran; repeat for several splits.",
        ),
    ],
    out: Annotated[
        Path, Option(metavar=PATH, help="Folder to write; of weights, FILE.safetensors.")
    ],
    dtype: Annotated[
        str, Option(metavar=NAME, help="Type to store: float32, which loses nothing, or float16.")
    ] = "float32",
    unreadable: Annotated[
        str | None,
        Option(
            metavar="fail|skip",
            help="What bad or missing ones do: fail, or skip and list. Default: fail.",
        ),
    ] = None,
    ids: Annotated[
        list[Path] | None,
        Option(metavar=FILE, help="With npy: a text file with one image id a line."),
    ] = None,
    input_dtype: Annotated[
        str | None,
        Option(
            metavar=NAME,
            help=(
                "With tsv, lxmert: float16, float32 or float64. Default: told by sizes and values."
            ),
        ),
    ] = None,
    names: Annotated[
        tuple[Path, Path] | None,
        Option(metavar="CLASSES ATTRIBUTES", help="With weights: two files, a name a line."),
    ] = None,
    captions: CaptionsOfImages = None,
    split: SplitsOfImages = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Read and check other people's feature files, and store them as Arrow shards.

    `--format weights` checks every tensor of a published checkpoint of the bottom-up model and
    writes safetensors.
    """
    if format == "weights":
        from capgrade.pipelines.detectors.checkpoint import convert

        if len(input) != 1:
            raise InputError(f"{len(input)} checkpoints", remedy="give --input once")
        others = {"captions": captions, "split": split, "unreadable": unreadable, "ids": ids}
        refuse_options("with --format weights", **others, input_dtype=input_dtype)
        classes, attributes = names or (None, None)
        made = convert(input[0], out, classes_file=classes, attributes_file=attributes, force=force)
        print_result(made, as_json, f"{made['layout']} -> {out}")
        return
    refuse_options(f"with --format {format}", names=names)
    from capgrade.pipelines.features.convert import import_regions as stage

    done = stage(
        format,
        input,
        out,
        dtype=dtype,
        captions=captions,
        split=split,
        unreadable=unreadable or "fail",
        ids=ids or (),
        input_dtype=input_dtype,
    )
    said = [f"{regions_line(done, dtype)} -> {out}"]
    said += [left_out_line(done["left_out"])] if done["left_out"] else []
    print_result(done, as_json, "\n".join(said))


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

"""`capgrade regions` and its commands."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from capgrade.pipelines.cli.options import (
    COMMON_OPTIONS,
    FILE,
    FOLDER,
    NAME,
    PATH,
    AsJson,
    CommonOptions,
    OptionalOut,
    RegionsDir,
    load,
    print_result,
    refuse_options,
)
from capgrade.schemas.errors import InputError

# Options of `regions import`, and the parameters that say the same to `regions`.
KEYS = {
    "--unreadable skip": "--set regions.unreadable=skip",
    "--input-dtype": "regions.features.input_dtype",
    "--input": "regions.features.input",
    "--ids": "regions.features.ids",
    "--format": "regions.features.format",
}
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


def regions(
    context: typer.Context,
    images: Annotated[
        str | None,
        Option(
            metavar=PATH,
            help=(
                "Images: folder, zip, tars, Parquet, dataset, captions folder, or list of image id,"
                " tab and path."
            ),
        ),
    ] = None,
    out: OptionalOut = None,
    detector: Annotated[
        str | None,
        Option(metavar=NAME, help="Detector of `capgrade list detectors`. Of scenes: scenes."),
    ] = None,
    model: Annotated[
        str | None,
        Option(
            metavar=PATH,
            help="With patches: efficientnet-lite2, or a model of transformers: folder or hub id.",
        ),
    ] = None,
    weights: Annotated[
        str | None,
        Option(metavar=FILE, help="Checkpoint of the detector; or `random`, to try the speed."),
    ] = None,
    boxes: Annotated[
        str | None,
        Option(
            metavar="N_OR_MIN-MAX", help="Regions per image, such as 36 or 10-100. Default: 36."
        ),
    ] = None,
    captions: CaptionsOfImages = None,
    split: SplitsOfImages = None,
    common: CommonOptions = COMMON_OPTIONS,
) -> None:
    """Regions of images: what a detector finds in each, in Arrow shards; a stopped run goes on when
    run again.

    Several GPUs: `torchrun --nproc-per-node 4 -m capgrade.pipelines.cli regions ...`, one process
    per GPU.
    """
    if context.invoked_subcommand:
        return
    options = {
        "detector": detector,
        "model": model,
        "weights": weights,
        "boxes": boxes,
        "split": split,
    }
    params = load(common.params, common.sets, regions=options).regions
    images = images or params.images
    if out is None or (images is None and params.features is None):
        raise InputError("--images and --out are needed", remedy="see capgrade regions --help")
    if images is None and params.features is not None:
        from capgrade.pipelines.features.convert import import_regions as import_stage

        features = params.features
        with keys_for_options():
            done = import_stage(
                features.format,
                [Path(name) for name in features.input],
                out,
                dtype=features.dtype,
                captions=captions,
                split=params.split,
                unreadable=params.unreadable,
                ids=[Path(name) for name in features.ids],
                input_dtype=features.input_dtype,
            )
        print_result(
            done, common.as_json, _regions_line(done, out) + _left_out_line(done["left_out"])
        )
        return
    from capgrade.pipelines.regions import regions as stage

    assert images is not None
    detected = stage(Path(images), out, params, captions)
    if detected:
        print_result(detected, common.as_json, _regions_line(detected, out))


@contextmanager
def keys_for_options(before: str = "") -> Iterator[None]:
    """Name parameters where an error names the options of `regions import`, which the block
    `regions.features` stands for; with `before` as a command takes them, --set KEY=VALUE."""
    try:
        yield
    except InputError as error:
        problem, remedy = error.problem, error.remedy or ""
        for option, key in KEYS.items():
            if before and not key.startswith(before):
                remedy = re.sub(rf"{option} (?=[A-Z])", f"{before}{key}=", remedy)
            problem, remedy = (re.sub(rf"{option}\b", f"{key}", text) for text in (problem, remedy))
        raise InputError(problem, file=error.file, row=error.row, remedy=remedy or None) from error


def _regions_line(done: dict[str, Any], out: Path) -> str:
    images = sum(entry["rows"] for entry in done["files"].values())
    error = done["rounding"]
    rounded = f"rounded by at most {error['max_abs']:.2g}, {error['max_rel']:.2%} of a value"
    stored = f"{done['params']['dtype']}, {rounded if error['max_abs'] else 'not rounded'}"
    return (
        f"{images:,} images, {done['regions']:,} regions of {done['dim']:,} numbers ({stored}) ->"
        f" {out}"
    )


def _left_out_line(left_out: list[dict[str, str]]) -> str:
    examples = "; ".join(f"{image['file']} ({image['problem']})" for image in left_out[:3])
    more = (
        f"; and {len(left_out) - 3} more, see left_out in manifest.json"
        if len(left_out) > 3
        else ""
    )
    return f"\n{len(left_out)} images left out: {examples}{more}" if left_out else ""


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
        made = convert(input[0], out, classes_file=classes, attributes_file=attributes)
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
    print_result(done, as_json, _regions_line(done, out) + _left_out_line(done["left_out"]))


def export_regions(
    format: Annotated[str, Option(metavar=NAME, help="One of tsv, scan and npz.")],
    regions: RegionsDir,
    out: Annotated[
        Path,
        Option(metavar=PATH, help="File to write: any.tsv, {split}_ims.npy; for npz a folder."),
    ],
) -> None:
    """Write our shards in a layout that other code bases read. A tsv or scan file is never
    replaced."""
    from capgrade.pipelines.features.convert import export_regions as stage

    typer.echo(f"{stage(format, regions, out):,} images as {format} -> {out}")


def show_regions(
    regions: RegionsDir,
    images: Annotated[Path, Option(metavar=PATH, help="Images that the regions were made from.")],
    out: Annotated[Path, Option(metavar=FILE, help="PNG to draw.")],
) -> None:
    """Draw boxes with classes and attributes on a handful of images."""
    from capgrade.pictures.draw_regions import draw_regions as stage

    typer.echo(f"{stage(regions, images, out)} images -> {out}")

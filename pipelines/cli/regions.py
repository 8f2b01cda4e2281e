"""`capgrade regions` and its commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from capgrade.pipelines.cli.options import AsJson, CaptionsDir, Out, ParamsFile, RegionsDir, Sets, load, overrides, say
from capgrade.schemas.errors import InputError

app = typer.Typer(invoke_without_command=True)


@app.callback()
def regions(
    context: typer.Context,
    images: Annotated[
        Path | None, typer.Option(help="Folder of pictures, captions folder, or list of image_id<TAB>path.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write.")] = None,
    detector: Annotated[str | None, typer.Option(help="scenes, bottom_up, detectron2. Default: scenes.")] = None,
    weights: Annotated[str | None, typer.Option(help="Checkpoint; or `random`, to try the speed.")] = None,
    boxes: Annotated[str | None, typer.Option(help="N or MIN-MAX regions per image, e.g. 10-100. Default: 36.")] = None,
    proposals: Annotated[int | None, typer.Option(help="Regions to choose from. Default: the checkpoint's.")] = None,
    precision: Annotated[
        str | None, typer.Option(help="float32, tf32, bf16. Default: bf16 on a GPU, else float32.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:N. Default: auto.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that decode pictures. Default: 2.")] = None,
    unreadable: Annotated[str | None, typer.Option(help="Unreadable pictures: fail or skip. Default: fail.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float16 or float32. Default: float16.")] = None,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Regions of images: what a detector finds in each, in Arrow shards; a stopped run goes on when run again.

    Several GPUs: `torchrun --nproc-per-node 4 -m capgrade.pipelines.cli regions ...`, one process per GPU.
    """
    if context.invoked_subcommand:
        return
    if images is None or out is None:
        raise InputError("--images and --out are needed", remedy="see capgrade regions --help")
    from capgrade.pipelines.regions import regions as stage

    given = {"detector": detector, "weights": weights, "boxes": boxes, "proposals": proposals, "precision": precision}
    more = {"device": device, "workers": workers, "unreadable": unreadable, "dtype": dtype}
    options = overrides("regions", {**given, **more})
    done = stage(images, out, load(params, [*(sets or []), *options]).regions)
    if done:
        say(done, as_json, _regions_line(done, out))


def _regions_line(done: dict[str, Any], out: Path) -> str:
    images = sum(entry["rows"] for entry in done["files"].values())
    error = done["rounding"]
    rounded = f"rounded by at most {error['max_abs']:.2g}, {error['max_rel']:.2%} of a value"
    stored = f"{done['params']['dtype']}, {rounded if error['max_abs'] else 'not rounded'}"
    return f"{images:,} images, {done['regions']:,} regions of {done['dim']:,} numbers ({stored}) -> {out}"


@app.command("import")
def import_regions(
    format: Annotated[str, typer.Option(help="tsv, npz, teran, scan, h5, lxmert.")],
    input: Annotated[
        list[Path], typer.Option(help="File of the format, or folder for npz and teran; repeat for several splits.")
    ],
    out: Out,
    dtype: Annotated[str, typer.Option(help="float32, which loses nothing, or float16.")] = "float32",
    target_mb: Annotated[int, typer.Option(min=1, help="Approximate size of a shard.")] = 512,
    as_json: AsJson = False,
) -> None:
    """Read and check other people's feature files, and store them as Arrow shards."""
    from capgrade.pipelines.features.convert import import_regions as stage

    done = stage(format, input, out, dtype=dtype, target_mb=target_mb)
    say(done, as_json, _regions_line(done, out))


@app.command("export")
def export_regions(
    format: Annotated[str, typer.Option(help="tsv, scan, npz.")],
    regions: RegionsDir,
    out: Annotated[Path, typer.Option(help="File to write: any.tsv, {split}_ims.npy; for npz a folder.")],
) -> None:
    """Write our shards in a layout that other code bases read. A tsv or scan file is never replaced."""
    from capgrade.pipelines.features.convert import export_regions as stage

    typer.echo(f"{stage(format, regions, out):,} images as {format} -> {out}")


@app.command("convert")
def convert_weights(
    weights: Annotated[Path, typer.Option(help="Checkpoint in a published layout: .pth, .pkl, .safetensors.")],
    out: Annotated[Path, typer.Option(help="FILE.safetensors to write.")],
    classes: Annotated[Path | None, typer.Option(help="Names of the classes, one per line.")] = None,
    attributes: Annotated[Path | None, typer.Option(help="Names of the attributes, one per line.")] = None,
    as_json: AsJson = False,
) -> None:
    """Convert a published checkpoint of the bottom-up model to safetensors, and check every tensor."""
    from capgrade.pipelines.detectors.weights import convert

    done = convert(weights, out, classes_file=classes, attributes_file=attributes)
    say(done, as_json, f"{done['layout']} -> {out}")


@app.command("show")
def show_regions(
    regions: RegionsDir,
    images: Annotated[Path, typer.Option(help="The images that the regions were made from.")],
    picture: Annotated[Path, typer.Option(help="PNG to draw.")],
    count: Annotated[int, typer.Option(min=1, help="How many images, spread over the folder.")] = 6,
    top: Annotated[int, typer.Option(min=1, help="Boxes per image, the most confident.")] = 6,
) -> None:
    """Draw boxes with classes and attributes on a handful of images."""
    from capgrade.pipelines.pictures.draw_regions import draw_regions as stage

    typer.echo(f"{stage(regions, images, picture, count, top)} images -> {picture}")


@app.command("train")
def train_detector(
    captions: CaptionsDir,
    out: Annotated[Path, typer.Option(help="FILE.safetensors to write.")],
    epochs: Annotated[int, typer.Option(min=1)] = 5,
    batch: Annotated[int, typer.Option(min=1, help="Pictures per step.")] = 8,
    lr: Annotated[float, typer.Option(help="Learning rate, the largest of its cycle.")] = 1e-3,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    bf16: Annotated[bool, typer.Option(help="Autocast: half the time if the processor has bf16.")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:N or auto.")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Train the small detector on the scenes of a captions folder, and measure it on their test split."""
    from capgrade.pipelines.detectors.train import Training, train_and_measure

    params = Training(epochs=epochs, batch=batch, lr=lr, seed=seed, bf16=bf16)
    found = train_and_measure(captions, out, params, device)
    right = f"AP50 {found['ap50']:.3f}, attributes right {found['attribute_accuracy']:.3f}"
    say(found, as_json, f"AP {found['ap']:.3f}, {right} -> {out}")

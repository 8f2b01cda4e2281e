"""Commands that write a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from capgrade.pipelines.cli.options import ENCODER, AsJson, CaptionsDir, Images, Split, require_all, say


def report(
    out: Annotated[Path, Option(help="HTML file to write.")] = Path("report.html"),
    data: Annotated[Path, Option(help="Folder of the outputs, named as in dvc.yaml.")] = Path("data"),
    pictures: Annotated[Path | None, Option(help="Folder for the charts as PNG and SVG.")] = None,
    title: Annotated[str | None, Option(help="Default: the folder's name.")] = None,
    images: Images = None,
) -> None:
    """Everything that a pipeline wrote on one HTML page, which opens from disk and needs no network.

    The page names what is missing, with the command that makes it.
    """
    from capgrade.pipelines.report import report as stage

    done = stage(data, out, pictures, title, images)
    also = f", {len(done.pictures)} pictures -> {pictures}" if pictures else ""
    typer.echo(f"{done.sections} sections, {done.bytes / 1e6:.1f} MB -> {out}{also}")
    for what in done.missing:
        typer.echo(f"not here: {what}")


def audit(
    captions: CaptionsDir,
    relevance: Annotated[Path | None, Option(help="Folder of `capgrade relevance`: every pair.")] = None,
    shards: Annotated[Path | None, Option(help="Folder of `capgrade shards`: estimates by their weights.")] = None,
    images: Images = None,
    out: Annotated[Path, Option(help="HTML file to write, beside a folder of its lists.")] = Path("audit.html"),
    measure: Annotated[str | None, Option(help="Default: the first calibrated one, people before sbert.")] = None,
    calibration: Annotated[
        Path | None, Option(help="What `agree --calibrate` wrote, or crisscrossed, the default.")
    ] = None,
    similarity: Annotated[
        list[Path] | None,
        Option(help="A model's, as `evaluate` takes it: how many of its R@1 errors are likely positives."),
    ] = None,
    stand_in: Annotated[int | None, Option(help="As a model: caption k of each image stands for it.")] = None,
    split: Split = None,
    as_json: AsJson = False,
) -> None:
    """Which negatives are likely positives: how many captions per image and images per caption beside the own captions,
    and which ones; near-duplicates, and own captions that fit nothing; of a model, how many of its R@1 errors."""
    require_all("vl_convert", *([ENCODER] if stand_in is not None else []))
    from capgrade.agreement.calibration import named
    from capgrade.pipelines.audit import audit as stage
    from capgrade.pipelines.audit import lists_folder
    from capgrade.pipelines.audit.page import answers

    found = stage(
        captions, out, relevance=relevance, shards=shards, images=images, split=split, measure=measure,
        calibration=named(calibration) if calibration else None, similarity=similarity or (), stand_in=stand_in,
    )  # fmt: skip
    say(found, as_json, "\n".join([*answers(found), f"{out}, lists in {lists_folder(out)}"]))

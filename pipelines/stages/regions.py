"""Stage `regions`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from capgrade.schemas.block import (
    AnyDevice,
    Natural,
    ParamsBlock,
    Positive,
    Precision,
    Share,
    listed,
)
from capgrade.schemas.natures import (
    Extent,
    How,
    ModelAt,
    PicturesAt,
    Split,
    Where,
    WhereOrName,
)
from capgrade.schemas.stage import Reads, Stage


class RegionsParams(ParamsBlock):
    """`capgrade regions`: pictures or features, the detector, the boxes it keeps, how it runs and
    what is stored."""

    images: PicturesAt | None = None
    """pictures: a folder, zip, tars, Parquet, dataset, captions folder, or a list of image id, tab
    and path"""
    features: Annotated[tuple[Where, ...], BeforeValidator(listed)] = ()
    """instead of pictures: files or folders of features that others made"""
    format: str | None = None
    """of these features: tsv, npz, teran, scan, h5, lxmert or npy"""
    ids: Annotated[tuple[Where, ...], BeforeValidator(listed)] = ()
    """of npy: a text file for each, with an image id a line"""
    input_dtype: Literal["float16", "float32", "float64"] | None = None
    """of tsv and lxmert; None: told by sizes and values"""
    image_column: str | None = None
    """of Parquet files or a dataset that has several of pictures"""
    image_id: Extent[str | None] = None
    """the column of ids there; None: image_id, else the picture's path or row"""
    detector: str = "scenes"
    """one of `capgrade list detectors`; asked for where the pictures are no scenes"""
    weights: WhereOrName | None = None
    """a checkpoint, or "random": seeded, for tests of speed and limits"""
    config: WhereOrName | None = None
    """of detectron2: a file, or a name of its model zoo"""
    model: ModelAt | None = None
    """of patches: efficientnet-lite2, or a vision transformer or convolutional network of
    transformers, its folder or hub id"""
    boxes_of: Where | None = None
    """of patches: a regions folder whose boxes are pooled over, instead of a grid"""
    seed: Natural = 0
    """of random weights"""
    boxes: Annotated[str, BeforeValidator(str), Field(pattern=r"^[1-9]\d*(-[1-9]\d*)?$")] = "36"
    """regions of a picture: N, or MIN-MAX"""
    selection: Literal["bottom_up", "airsplay"] = "bottom_up"
    """airsplay: MAX regressed boxes, as LXMERT's features"""
    confidence: Annotated[float, Field(ge=0, le=1)] = 0.2
    """a box that passes counts towards MIN and MAX"""
    nms_threshold: Share = 0.3
    """of the suppression within each class"""
    proposals: Positive | None = None
    """None: as many as the checkpoint was made with"""
    precision: Precision | None = None
    """of convolutions and products; None: bf16 on a GPU, else float32"""
    device: How[AnyDevice] = "auto"
    """of the detector; auto: a GPU where there is one"""
    batch: Positive = 8
    """pictures of one size at a time"""
    workers: How[Natural] = 2
    """processes that decode and resize; 0: none beside the model's"""
    unreadable: Extent[Literal["fail", "skip"]] = "fail"
    """pictures or features that are missing or damaged; skip: left out and counted"""
    split: Extent[Split | None] = None
    """with captions: of these splits, such as val+test; None: all"""
    dtype: Literal["float16", "float32"] | None = None
    """type of the stored features; None: float16 of a detector's, float32 of others'"""
    target_mb: Positive = 64
    """a shard at most, about; what a stop can lose"""

    @model_validator(mode="after")
    def _fewest_first(self) -> RegionsParams:
        if self.box_range[0] > self.box_range[1]:
            raise ValueError(f"boxes {self.boxes}: write MIN-MAX, the smaller first")
        return self

    @model_validator(mode="after")
    def _one_source(self) -> RegionsParams:
        if self.images and self.features:
            raise ValueError("pictures and features: give images, or features, and not both")
        return self

    @property
    def stored_dtype(self) -> Literal["float16", "float32"]:
        """The type of the stored features."""
        return self.dtype or ("float32" if self.features else "float16")

    @property
    def pictures(self) -> Path | None:
        """Where the pictures lie."""
        return None if self.images is None else Path(self.images)

    @property
    def box_range(self) -> tuple[int, int]:
        """The fewest and the most boxes an image keeps."""
        low, _, high = self.boxes.partition("-")
        return int(low), int(high or low)


def _line(manifest: Mapping[str, Any], params: RegionsParams) -> str:
    """What the folder holds, and how far its values are rounded."""
    images = sum(entry["rows"] for entry in manifest["files"].values())
    error = manifest["rounding"]
    rounded = f"rounded by at most {error['max_abs']:.2g}, {error['max_rel']:.2%} of a value"
    stored = f"{params.stored_dtype}, {rounded if error['max_abs'] else 'not rounded'}"
    numbers = f"{manifest['regions']:,} regions of {manifest['dim']:,} numbers"
    said = f"{images:,} images, {numbers} ({stored})"
    if params.features and manifest["left_out"]:  # a detector has said it before
        said += f"\n{_left_out_line(manifest['left_out'])}"
    return said


def _left_out_line(left_out: list[dict[str, str]]) -> str:
    """How many images were left out, and the first ones."""
    examples = "; ".join(f"{image['file']} ({image['problem']})" for image in left_out[:3])
    others = len(left_out) - 3
    more = f"; and {others} more, see left_out in manifest.json" if others > 0 else ""
    return f"{len(left_out)} images left out: {examples}{more}"


REGIONS = Stage(
    name="regions",
    about="""Regions of images: what a detector finds in each, in Arrow shards; a stopped run goes
on when run again. Or features that others made, which `--features` and `--format` name.

Several GPUs: `torchrun --nproc-per-node 4 -m capgrade.pipelines.cli regions ...`, one process per
GPU.""",
    params=RegionsParams,
    reads={"captions": Reads("captions", needed=False)},
    function="capgrade.pipelines.regions:make_regions",
    line=_line,
    example="--images data/captions --out regions",
    format=4,
    unit="shard, of up to 512 images",
    told=("images", "detector", "model", "weights", "boxes", "features", "format", "split"),
)

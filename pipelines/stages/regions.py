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


class FeaturesParams(ParamsBlock):
    """Features that others made: a format of `capgrade regions import`, its file or folder, and how
    they are stored."""

    format: str
    input: Annotated[tuple[Where, ...], BeforeValidator(listed), Field(min_length=1)]
    """or one alone"""
    ids: Annotated[tuple[Where, ...], BeforeValidator(listed)] = ()
    """of npy: a text file of image ids for each input"""
    input_dtype: Literal["float16", "float32", "float64"] | None = None
    """of tsv and lxmert; None: told by the values"""
    dtype: Literal["float16", "float32"] = "float32"


class RegionsParams(ParamsBlock):
    """`capgrade regions`: pictures or features, the detector, the boxes it keeps, how it runs and
    what is stored."""

    images: PicturesAt | None = None
    """pictures: a folder, zip, tars, Parquet, dataset, captions folder, or a list of image id, tab
    and path"""
    features: FeaturesParams | None = None
    """instead of pictures and a detector"""
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
    """pictures that are missing or damaged; skip: left out and counted"""
    split: Extent[Split | None] = None
    """with captions: of these splits, such as val+test; None: all"""
    dtype: Literal["float16", "float32"] = "float16"
    """type of the stored features"""
    target_mb: Positive = 64
    """a shard at most, about; what a stop can lose"""

    @model_validator(mode="after")
    def _fewest_first(self) -> RegionsParams:
        if self.box_range[0] > self.box_range[1]:
            raise ValueError(f"boxes {self.boxes}: write MIN-MAX, the smaller first")
        return self

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
    dtype = params.dtype if params.images or params.features is None else params.features.dtype
    said = regions_line(manifest, dtype)
    if params.images is None and manifest["left_out"]:  # a detector has said it before
        said += f"\n{left_out_line(manifest['left_out'])}"
    return said


def regions_line(manifest: Mapping[str, Any], dtype: str) -> str:
    """What a folder of regions holds, and how far its values of this type are rounded."""
    images = sum(entry["rows"] for entry in manifest["files"].values())
    error = manifest["rounding"]
    rounded = f"rounded by at most {error['max_abs']:.2g}, {error['max_rel']:.2%} of a value"
    stored = f"{dtype}, {rounded if error['max_abs'] else 'not rounded'}"
    numbers = f"{manifest['regions']:,} regions of {manifest['dim']:,} numbers"
    return f"{images:,} images, {numbers} ({stored})"


def left_out_line(left_out: list[dict[str, str]]) -> str:
    """How many images were left out, and the first ones."""
    examples = "; ".join(f"{image['file']} ({image['problem']})" for image in left_out[:3])
    others = len(left_out) - 3
    more = f"; and {others} more, see left_out in manifest.json" if others > 0 else ""
    return f"{len(left_out)} images left out: {examples}{more}"


REGIONS = Stage(
    name="regions",
    about="""Regions of images: what a detector finds in each, in Arrow shards; a stopped run goes
on when run again.

Several GPUs: `torchrun --nproc-per-node 4 -m capgrade.pipelines.cli regions ...`, one process per
GPU.""",
    params=RegionsParams,
    reads={"captions": Reads("captions", needed=False)},
    function="capgrade.pipelines.regions:make_regions",
    line=_line,
    example="--images data/captions --out regions",
    format=3,
    told=("images", "detector", "model", "weights", "boxes", "split"),
)

"""Stage `captions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from capgrade.schemas.block import Natural, ParamsBlock, Positive, Tokenizer
from capgrade.schemas.natures import DatasetAt, Where
from capgrade.schemas.stage import Stage

_Source = Literal[
    "scenes",
    "coco",
    "karpathy",
    "flickr",
    "precomp",
    "tsv",
    "csv",
    "jsonl",
    "hub",
    "webdataset",
    "memory",
]
_SEVERAL = ("coco", "karpathy", "tsv", "csv", "jsonl", "webdataset")  # take more than one input
WITH_COLUMNS = ("tsv", "csv", "jsonl", "hub", "webdataset")


def _share_or_count(value: float) -> float:
    if value >= 1 and not value.is_integer():
        raise ValueError("give a share below 1, or a whole number of images")
    return value


SplitSize = Annotated[float, Field(gt=0, allow_inf_nan=False), AfterValidator(_share_or_count)]


class Columns(ParamsBlock):
    """Names of the columns of a table or Hugging Face dataset that hold each field; of tars, the
    keys of KEY.json."""

    image_id: str | None = None
    """None: "image_id"; a Hugging Face dataset without an id has "<split>-<row>"."""
    caption_id: str | None = None
    """None: "caption_id" where it exists, else "<image_id>#<k>"."""
    caption: str | None = None
    """None: "caption", a text or a list of texts; of tars, KEY.txt"""
    split: str | None = None
    """None: "split" where it exists, else the split asked for"""
    image_file: str | None = None
    """None: "image_file", "file_name" or "filename" where it exists"""


class ScenesParams(ParamsBlock):
    """The embedded world: how many scenes per split, how large, and the seed of everything."""

    train: Natural = 1000
    val: Natural = 200
    test: Natural = 300
    captions_per_image: Positive = 5
    size: Annotated[int, Field(ge=64, le=1024)] = 224
    """pixels, square"""
    seed: Natural = 0


class CaptionsParams(ParamsBlock):
    """`capgrade captions`: where captions come from and how they are tokenised."""

    source: _Source = "scenes"
    """kind of the input; scenes draws its own"""
    input: DatasetAt | tuple[DatasetAt, ...] | None = None
    """a file, a folder or, for `hub`, a dataset id; several where a source has several"""
    split: str | None = None
    """the split to keep, or its name where the source has no splits"""
    config: str | None = None
    """of a Hugging Face dataset that has several"""
    revision: str | None = None
    """of a dataset on the hub: a commit makes the run repeatable"""
    split_lists: dict[str, Where] = {}
    """files of the image ids of each split, for flickr"""
    divide: dict[str, SplitSize] = {}
    """splits of a source that has none: a share, or so many images; the rest is train"""
    columns: Columns = Columns()
    """columns of image_id, caption_id, caption, split or image_file"""
    tokenizer: Tokenizer = "ptb_py"
    """how captions are cut into words"""
    empty: Literal["refuse", "drop"] = "refuse"
    """what is done with captions without words"""
    scenes: ScenesParams = ScenesParams()
    """sizes of the world that is drawn"""

    @model_validator(mode="after")
    def _fits_the_source(self) -> CaptionsParams:
        """Everything that the source needs is given, and nothing that it would ignore."""
        if self.source not in ("scenes", "memory") and not self.input:
            raise ValueError(f"source {self.source} needs an input, captions.input or --input")
        if self.source == "scenes" and (self.input or self.split):
            given = self.input or self.split
            raise ValueError(
                f"source scenes takes no input or split, here '{given}'; name a source, as"
                " --source csv"
            )
        if self.split_lists and self.source != "flickr":
            raise ValueError(f"source {self.source} takes no split lists, flickr does")
        if self.divide and (self.source == "scenes" or self.split):
            raise ValueError(
                "captions.divide makes splits: leave out"
                f" captions.{'split' if self.split else 'source'}"
            )
        if self.columns != Columns() and self.source not in WITH_COLUMNS:
            raise ValueError(
                f"source {self.source} takes no columns; tsv, csv, jsonl, hub and webdataset do"
            )
        if self.source == "webdataset" and self.columns != Columns(caption=self.columns.caption):
            raise ValueError(
                "source webdataset takes the column caption alone: a key of KEY.json instead of"
                " KEY.txt"
            )
        if len(self.inputs) > 1 and self.source not in _SEVERAL:
            raise ValueError(
                f"source {self.source} takes one input; {', '.join(_SEVERAL)} take several"
            )
        return self

    @property
    def inputs(self) -> tuple[str, ...]:
        """What is read, one after the other."""
        return (self.input,) if isinstance(self.input, str) else self.input or ()


def _line(manifest: Mapping[str, Any], params: CaptionsParams) -> str:
    rows = manifest["files"]["captions.arrow"]["rows"]
    splits = ", ".join(f"{name} {count:,}" for name, count in manifest["splits"].items())
    counts = f"{rows:,} captions of {manifest['images']:,} images ({splits})"
    left_out = (f"left out: {count:,} {reason}" for reason, count in manifest["left_out"].items())
    return "\n".join([counts, *left_out])


CAPTIONS = Stage(
    name="captions",
    about="Read captions from a source, check and tokenise them, and write one Arrow table.",
    params=CaptionsParams,
    reads={},
    function="capgrade.pipelines.captions:captions",
    line=_line,
    example="--source tsv --input captions.tsv --split test --out captions",
)

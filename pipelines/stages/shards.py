"""Stage `shards`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from capgrade.schemas.block import MeasureDevice, Natural, ParamsBlock, Positive, Share
from capgrade.schemas.errors import InputError
from capgrade.schemas.natures import Extent, How, Measures, Split
from capgrade.schemas.stage import Reads, Stage


class WindowsParams(ParamsBlock):
    """Stratified sample: `per_window` captions from each window of `width`, shifted by `stride`.

    Both are shares of the measure's range. The default gives Sentence-BERT, on [-1, 1], the windows
    of BCLS: width 0.2, stride 0.1.
    """

    width: Share = 0.1
    stride: Annotated[float, Field(ge=1e-4, le=1)] = 0.05
    per_window: Natural = 4
    among: Share | Literal["all"] = "all"
    """the share of the captions, drawn for each image, that windows draw from"""


class Sampling(ParamsBlock):
    """Which captions each image keeps, beside its own.

    >>> Sampling(top=8, uniform=16).windows.per_window
    4
    """

    top: Natural = 64
    """captions of highest relevance, by each measure"""
    windows: WindowsParams = WindowsParams()
    """the stratified sample: width, stride, per_window, among"""
    uniform: Natural = 64
    """captions drawn uniformly"""
    seed: Natural = 0
    """of what is drawn"""

    @model_validator(mode="after")
    def _a_chance_for_every_pair(self) -> Self:
        """Without a chance a pair is never kept, and no weight of others makes up for it."""
        windows = self.windows
        if self.uniform == 0 and (windows.per_window == 0 or windows.stride > windows.width):
            why = (
                "no windows"
                if windows.per_window == 0
                else f"stride {windows.stride} above width {windows.width}"
            )
            raise ValueError(
                f"uniform 0 with {why} leaves pairs without a chance, and sums of weights fall"
                " short; set shards.uniform to 1 or more, or windows that cover the range"
            )
        return self


@dataclass(frozen=True)
class ShardsPart:
    """Part `number`, from 1, of `count`: a share of the images' blocks."""

    number: int
    count: int

    @staticmethod
    def parse(text: str) -> ShardsPart:
        """From 3/8. InputError for anything that is no part."""
        found = re.fullmatch(r"(\d+)/(\d+)", text, re.ASCII)
        part = ShardsPart(int(found[1]), int(found[2])) if found else ShardsPart(0, 0)
        if not 1 <= part.number <= part.count:
            remedy = "give its number and how many there are: 1/8 to 8/8"
            raise InputError(f"no part '{text}'", remedy=remedy)
        return part

    def blocks(self, n_blocks: int) -> range:
        """Its blocks, which follow each other; parts have as many or one more than others.

        InputError when some would have none.
        """
        if self.count > n_blocks:
            problem = f"{self.count} parts of {n_blocks} blocks of images"
            raise InputError(problem, remedy="make fewer parts, or lower shards.block_images")
        ends = [number * n_blocks // self.count for number in (self.number - 1, self.number)]
        return range(*ends)

    def folder(self, out: Path) -> Path:
        """OUT.parts/3-of-8."""
        return parts_folder(out) / f"{self.number}-of-{self.count}"


def parts_folder(out: Path) -> Path:
    """Beside the output, for all its parts."""
    return Path(f"{out.resolve()}.parts")


class ShardsParams(Sampling):
    """`capgrade shards`: the sampled subset of captions that each training image keeps."""

    split: Split | None = None
    """the split to score, if there are several"""
    measures: Measures = ("cider", "rouge_l", "sbert")
    """of `capgrade list measures`, and on the command line NAME=FILE for a matrix of others"""
    device: How[MeasureDevice] = "cpu"
    """of blocks; on a GPU values differ by up to 1e-5, and pairs at edges of windows"""
    target_mb: Extent[Positive] = 64
    """size of a shard, about"""
    block_images: How[Positive] = 64
    """images that a worker scores together"""
    exchange: How[str | None] = None
    """URL that workers on other machines exchange files by; None: they see --out"""
    part: How[str | None] = None
    """only part K/N, such as 3/8, into OUT.parts; in any order, on any machine"""
    join: How[bool] = False
    """write OUT from the parts; the same bytes as in one run"""

    @model_validator(mode="after")
    def _parts_before_they_are_joined(self) -> Self:
        if self.part is not None and self.join:
            raise ValueError("--part and --join together: make the parts first, then join them")
        return self

    @property
    def only_part(self) -> ShardsPart | None:
        """The part to make. InputError for what is no part."""
        return None if self.part is None else ShardsPart.parse(self.part)


def _line(manifest: Mapping[str, Any], params: ShardsParams) -> str:
    rows = sum(entry["rows"] for entry in manifest["files"].values())
    files = f"{len(manifest['files'])} {'shard' if params.part is None else 'block'}(s)"
    count = f"{manifest['pairs']:,} pairs of {rows:,} images in {files}"
    return count if params.part is None else f"{count}, part {params.part}"


SHARDS = Stage(
    name="shards",
    about="""Sampled subsets of captions for each image, for training splits: Arrow shards; the
dense matrix is not stored.

Options after `--` go to Apache Beam: `-- --direct_num_workers=2
--direct_running_mode=multi_processing`.""",
    params=ShardsParams,
    reads={"captions": Reads("captions", at_url=True)},
    function="capgrade.pipelines.shards:shards",
    line=_line,
    example="--captions captions --measures cider,rouge_l --out shards",
    format=2,
    on_beam=True,
)

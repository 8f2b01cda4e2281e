"""Stage `relevance`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from capgrade.schemas.block import MeasureDevice, ParamsBlock, Positive
from capgrade.schemas.natures import How, Measures, Split
from capgrade.schemas.stage import Reads, Shown, Stage


class RelevanceParams(ParamsBlock):
    """`capgrade relevance`: the dense matrix of each measure for an evaluation split."""

    split: Split | None = None
    """the split to score, if there are several"""
    measures: Measures = ("cider", "rouge_l", "sbert")
    """of `capgrade list measures`, and on the command line NAME=FILE for a matrix of others"""
    dtype: Literal["float32", "float16"] = "float32"
    """type of the stored values"""
    device: How[MeasureDevice] = "cpu"
    """of blocks; on a GPU values differ by up to 1e-5"""
    block_images: How[Positive] = 64
    """images that a worker scores together"""
    exchange: How[str | None] = None
    """URL that workers on other machines exchange files by; None: they see --out"""


def _line(manifest: Mapping[str, Any], params: RelevanceParams) -> str:
    rows = {
        name: entry["rows"] for name, entry in manifest["files"].items() if name.endswith(".arrow")
    }
    captions = manifest["n_captions"]
    return ", ".join(f"{name} {count:,} x {captions:,}" for name, count in rows.items())


RELEVANCE = Stage(
    name="relevance",
    about="""Dense relevance of every caption to every image, for evaluation splits: one Arrow file
per measure.

Options after `--` go to Apache Beam: `-- --direct_num_workers=2
--direct_running_mode=multi_processing`.""",
    params=RelevanceParams,
    reads={"captions": Reads("captions", at_url=True)},
    function="capgrade.pipelines.relevance:relevance",
    line=_line,
    example="--captions captions --measures people --out relevance",
    format=2,
    on_beam=True,
    shown=(Shown("distribution-*.csv", "plots/distributions"),),
)

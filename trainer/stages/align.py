"""Stage `align`."""

from __future__ import annotations

from typing import Annotated, Any

from capgrade.schemas.block import ParamsBlock, Positive
from capgrade.schemas.natures import As, PicturesAt, Split
from capgrade.schemas.stage import Reads, Stage


class AlignParams(ParamsBlock):
    """`capgrade align`: whose words are drawn, and on which pictures."""

    preset: str | None = None
    """where --run is a folder of runs: the one whose words are drawn, a TERAN's; null in a
    params.yaml: none"""
    split: Annotated[Split | None, As("evaluate.split")] = None
    """None: evaluate.split"""
    images: Annotated[PicturesAt | None, As("regions.images")] = None
    """pictures that the regions are of; None: those of regions.images"""
    count: Positive = 6
    """pictures to draw, spread over the split"""


def _line(aligned: Any, params: AlignParams) -> str:
    return aligned.text()


ALIGN = Stage(
    name="align",
    about="""What the words of a TERAN point at: a picture, and the pointing game if true boxes are
known.""",
    params=AlignParams,
    reads={
        "run": Reads("train", at="runs"),
        "captions": Reads("captions"),
        "regions": Reads("regions"),
    },
    function="capgrade.trainer.alignment.align:align",
    line=_line,
    example=(
        "--run data/runs/scenes_teran --captions data/captions --regions data/regions"
        " --images data/captions --split test --out words"
    ),
    modules=("torch",),
)

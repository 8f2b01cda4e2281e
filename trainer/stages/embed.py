"""Stage `embed`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from capgrade.schemas.block import ParamsBlock, Positive
from capgrade.schemas.natures import As, PicturesAt, Split, Where
from capgrade.schemas.stage import Reads, Stage
from capgrade.trainer.stages.train import TRAIN, BestBy


class EmbedParams(ParamsBlock):
    """`capgrade embed`: the split that a run encodes, and by which of its models."""

    split: Annotated[Split | None, As("evaluate.split")] = None
    """the split to encode; None: evaluate.split"""
    images: Annotated[PicturesAt | None, As("regions.images")] = None
    """pictures, of a model that reads them; None: those of regions.images"""
    unreadable: Literal["fail", "skip"] = "fail"
    """of pictures, as regions.unreadable"""
    best_by: BestBy | None = None
    """the best epoch by train.also_best_by; None: by train.best_by"""
    pooling: str | None = None
    """score a TERN or TERAN by this alignment (MrSw, MwSr, ...), not by its own"""
    coarse: Where | None = None
    """similarity of another model; only what it ranks first is scored"""
    coarse_top: Positive = 100
    """captions per image and images per caption that `coarse` keeps"""


def _line(manifest: Mapping[str, Any], params: EmbedParams) -> str:
    rows = {name: entry["rows"] for name, entry in manifest["files"].items()}
    counts = f"{rows['similarity.npy']:,} images, {rows['items.json']:,} captions"
    if params.coarse is None:
        return counts
    best = f"the {params.coarse_top} best of each image and caption by {params.coarse}"
    return f"{counts}\nscored: {best}; all other pairs are -inf"


EMBED = Stage(
    name="embed",
    about="""Encode a split by a trained model: vectors of images and captions, and the similarity
matrix that `evaluate` scores.

`search` and `explore` look for it in RUN/index, unless --index says where it is.""",
    params=EmbedParams,
    reads={
        "run": Reads("train", at=TRAIN.place),
        "captions": Reads("captions"),
        "regions": Reads("regions", needed=False),
    },
    function="capgrade.trainer.search.index:embed",
    line=_line,
    example=(
        "--run run --captions data/captions --regions data/regions --split test --out run/index"
    ),
    modules=("torch",),
    place="embeddings/${item.run}",
)

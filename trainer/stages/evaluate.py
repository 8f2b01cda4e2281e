"""Stage `evaluate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from capgrade.schemas.block import Natural, ParamsBlock, Positive, Share
from capgrade.schemas.natures import How, Split, Where, WhereOrName
from capgrade.schemas.stage import Reads, Shown, Stage
from capgrade.trainer.stages.embed import EMBED

if TYPE_CHECKING:
    from capgrade.trainer.evaluation.evaluate import Evaluations

_NOT_OF_A_LIST = ("split", "stand_in", "embeddings", "instances", "positives", "judgements")


class EvaluateParams(ParamsBlock):
    """`capgrade evaluate`: whose scores, which labels beside relevance, and which metrics at which
    depths."""

    split: Split | None = None
    """the split to score, if there are several"""
    embeddings: tuple[Where, Where] | None = None
    """in place of a similarity: tables of images and of captions, whose cosines are scored"""
    stand_in: Natural | None = None
    """in place of a similarity: this caption of each image stands for the image and leaves the
    gallery"""
    row_ids: Where | None = None
    """image ids of the rows of a similarity: .txt, .json, .npy"""
    column_ids: Where | None = None
    """caption ids of its columns"""
    lists: WhereOrName | None = None
    """likely positives in place of captions: coco-5k, or a file"""
    likely: Share = 0.5
    """P from which a pair of a list is right"""
    k: tuple[Positive, ...] = (1, 5, 10)
    """cut-offs"""
    p: Positive = 25
    """depth of NDCG"""
    m: tuple[Positive, ...] = (5, 10)
    """sizes of the extension set of semantic recall"""
    fold: tuple[Positive, ...] = ()
    """also average over folds of so many images: 1000 is COCO 1K"""
    metric: tuple[str, ...] = ()
    """these of `capgrade list metrics`, instead of the whole set"""
    above: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = {}
    """measure -> value over which a pair is right: relevant_recall@K, relevant_r@K,
    relevant_map@r"""
    ties: Literal["expected", "reference"] = "expected"
    """how equal scores are ranked"""
    samples: Natural = 1000
    """bootstrap draws of the intervals; 0: none"""
    seed: Natural = 0
    """of these draws"""
    instances: Where | None = None
    """COCO's instances json, for PMRP"""
    positives: WhereOrName | None = None
    """likely positives: a file of `capgrade audit`; coco-5k, or a file as of `lists`"""
    judgements: tuple[WhereOrName, ...] = ()
    """people's scores of pairs, as agree.judgements, to compare the model's scores with"""
    all: How[bool] = False
    """print every metric, not the short table"""

    @model_validator(mode="after")
    def _a_list_is_instead_of_captions(self) -> EvaluateParams:
        for key in _NOT_OF_A_LIST:
            if self.lists is not None and getattr(self, key) not in (None, ()):
                raise ValueError(
                    f"evaluate.{key} with evaluate.lists, which is in place of captions: leave one"
                    " of them out"
                )
        return self


def _line(evaluations: Evaluations, params: EvaluateParams) -> str:
    counts = evaluations.whole.counts
    of_all = f"{counts['images']:,} images, {counts['captions']:,} captions"
    return f"{of_all}\n{evaluations.text(every=params.all or bool(params.metric))}"


EVALUATE = Stage(
    name="evaluate",
    about="""Score a similarity matrix on every retrieval metric, both directions, with intervals.

Scores are those of `embed`, or of another program: images x captions (.npy, .npz, .pt, .arrow,
.csv); of several --similarity the mean. Labels (--relevance) may also be those of `shards` or
`publish`.""",
    params=EvaluateParams,
    reads={
        "captions": Reads("captions", needed=False),
        "similarity": Reads(
            "embed", needed=False, several=True, file=True, at=f"{EMBED.place}/similarity.npy"
        ),
        "relevance": Reads("relevance", needed=False),
    },
    function="capgrade.trainer.evaluation.evaluate:evaluate_files",
    line=_line,
    example="--captions data/captions --split test --similarity run/index/similarity.npy",
    needs_out=False,
    place="evaluation/${item.run}",
    shown=(
        Shown("metrics.json", "metrics/${item.run}.json", metrics=True),
        Shown(
            "curves_k.json",
            "plots/curves/${item.run}.json",
            plot={"x": "k", "y": "recall", "title": "Recall against K, ${item.run}"},
        ),
    ),
    told=(
        "split",
        "embeddings",
        "stand_in",
        "lists",
        "positives",
        "judgements",
        "fold",
        "metric",
        "all",
    ),
)

"""Stage `agree`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from capgrade.schemas.block import ParamsBlock
from capgrade.schemas.natures import As, Measures, Split, WhereOrName
from capgrade.schemas.stage import Reads, Shown, Stage

# Files of the folder. Pairs of one kind have no JUDGED; CALIBRATION is there where it is asked for.
AGREEMENT, JUDGED, CALIBRATION = "agreement.json", "judged.arrow", "calibration.json"


class JudgedColumns(ParamsBlock):
    """Names of the columns of a table of judged texts."""

    candidate: str | None = None
    """None: candidate, cand or mt"""
    references: str | None = None
    """None: references or refs"""
    score: str | None = None
    """None: score or human_score"""


class AgreeParams(ParamsBlock):
    """`capgrade agree`: the judgements and how they are read."""

    judgements: WhereOrName | None = None
    """CxC's or Flickr8k's file, a CSV of scores, a review's folder, or eccv; null in a params.yaml:
    there are none"""
    split: Annotated[Split | None, As("relevance.split")] = None
    """the split that was judged; None: relevance.split"""
    measures: Annotated[Measures, As("relevance.measures")] = ("cider", "rouge_l", "sbert")
    """those that are compared; left out: relevance.measures"""
    mixture: str | None = None
    """name of a weighted sum of the measures to fit, into NAME.yaml, for --params"""
    folds: Annotated[int, Field(ge=2)] = 10
    """of images, by which agreement of the mixture is cross-validated"""
    calibrate: bool = False
    """also fit what each value means to people, into calibration.json, for `audit`"""
    calibration: WhereOrName | None = None
    """a calibration by other judgements, or crisscrossed: judge what values mean by it"""
    accept: float | None = None
    """score from which a person accepts a pair; None: 3 of 5, or half of the shares of yes"""
    scale: Annotated[str, Field(pattern=r"^\S+\.\.\S+$")] | None = None
    """LOW..HIGH, where the file does not say"""
    sampling: Literal["random", "chosen"] | None = None
    """random: any pair was as likely to be judged; None: chosen"""
    columns: JudgedColumns = JudgedColumns()
    """of `agree texts`"""


def _line(agreement: Any, params: AgreeParams) -> str:
    if agreement.judgements is None:
        return agreement.text()
    return f"{agreement.judgements['pairs']:,} judged pairs\n{agreement.text()}"


AGREE = Stage(
    name="agree",
    about="""Agreement of each measure with human judgements: Pearson, Spearman, Kendall, with
intervals, and how well one person agrees with the others.

Where --params has agree.judgements null, it says that there are none.""",
    params=AgreeParams,
    reads={"captions": Reads("captions")},
    function="capgrade.pipelines.agree:agree",
    line=_line,
    example="--captions data/captions --split test --judgements data/captions/truth-test.arrow",
    needs_out=False,
    shown=(Shown(AGREEMENT, "metrics/agree.json", metrics=True),),
    told=("judgements", "split", "measures", "mixture", "folds", "calibrate", "calibration"),
)

"""Who judged the pairs that `agree` compares measures with, in words to show with its figures."""

from pathlib import Path
from typing import Any

from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import read_json

SCALE = "scale"  # column of a table of judgements: `scale_text`, the same in each row
PROMPT = "prompt"  # column of such a table: by which prompt a model was asked
SAMPLING = "sampling"  # column of such a table: RANDOM or CHOSEN, of each pair
ZERO_TO_FIVE, YES_OR_NO = (0.0, 5.0), (0.0, 1.0)
ONE_TO_FOUR = (1.0, 4.0)  # of Flickr8k's experts
# How judged pairs were come by: any pair was as likely, or they were chosen for some likeness.
RANDOM, CHOSEN = "random", "chosen"
# What `agree` writes where a params.yaml names no judgements.
NONE: dict[str, Any] = {"judgements": None, "measures": {}}

ONE_PERSON = "human"  # the row of an agreement that has one rater against the others
PEOPLE, TRUTH, VALUES = "people", "truth", "values"
TITLES = {
    PEOPLE: "Agreement with human judgements",
    TRUTH: "Agreement with the truth of the scenes",
    VALUES: "Agreement with another matrix",
}
SAID = {
    PEOPLE: "scores that people gave",
    TRUTH: "the true relevance of generated scenes, which no person judged",
    VALUES: "values that another program computed, which no person judged",
}


def truth_file(captions_dir: Path, split: str) -> Path | None:
    """The true relevance beside generated captions of a split; None where there is none."""
    path = captions_dir / f"{TRUTH}-{split}.arrow"
    return path if path.is_file() else None


def scale_text(low: float, high: float) -> str:
    """A scale as a column or an option has it: `0..5`."""
    return f"{low:g}..{high:g}"


def parse_scale(text: str) -> tuple[float, float]:
    """The lowest and the highest score that people could give. InputError for another text than
    `LOW..HIGH`."""
    low, dots, high = text.partition("..")
    try:
        scale = float(low), float(high)
        right = dots and scale[0] < scale[1] < float("inf") and scale[0] > float("-inf")
    except ValueError:
        right = False
    if not right:
        raise InputError(
            f"no scale: '{text}'", remedy="give the lowest and the highest score, such as 0..5"
        )
    return scale


def _are_agreement(figures: Any) -> bool:
    """Whether figures are what `capgrade agree --out` writes, or NONE.

    They say who judged, and have the coefficients of each measure, and usually its parameters.
    """
    if figures == NONE:
        return True
    try:
        judged = {"by", "file", "pairs", "split", "captions"} <= figures["judgements"].keys()
        judged = judged and isinstance(figures.get("params", {}), dict)
        return judged and all(
            {"pearson", "spearman"} <= row.keys() for row in figures["measures"].values()
        )
    except (AttributeError, KeyError, TypeError):
        return False


def read_agreement(path: Path) -> dict[str, Any] | None:
    """The figures that `agree` wrote; None where there were no judgements.

    InputError for a file of something else, and for agreement on a table of texts.
    """
    figures: dict[str, Any] = read_json(path)
    if figures == NONE:
        return None
    if not (_are_agreement(figures) and figures["judgements"]["captions"]):
        remedy = "give what capgrade agree --captions --out wrote"
        raise InputError("not agreement figures of captions", file=path, remedy=remedy)
    return figures

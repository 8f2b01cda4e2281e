"""Who judged the pairs that `agree` compares measures with: what stands beside its figures wherever
they are shown."""

from pathlib import Path
from typing import Any

from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import read_json

SCALE = "scale"  # column of a table of judgements: `scale_text`, the same in each row
PROMPT = "prompt"  # column of such a table: by which prompt a model was asked
SAMPLING = "sampling"  # column of such a table: RANDOM or CHOSEN, of each pair
# the last of Flickr8k's experts
ZERO_TO_FIVE, YES_OR_NO, ONE_TO_FOUR = (
    (0.0, 5.0),
    (0.0, 1.0),
    (1.0, 4.0),
)
# how judged pairs were come by: any pair as likely, or for some likeness
RANDOM, CHOSEN = (
    "random",
    "chosen",
)

# what `agree` writes where a params.yaml names none
NONE: dict[str, Any] = {
    "judgements": None,
    "measures": {},
}

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


def scale_text(low: float, high: float) -> str:
    """As a column or an option has it: `0..5`."""
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


def are_agreement(figures: Any) -> bool:
    """Whether it is what `capgrade agree --out` writes: who judged, and the coefficients of each
    measure; or NONE."""
    if figures == NONE:
        return True
    try:
        judged = {"by", "file", "pairs", "split", "captions"} <= figures["judgements"].keys()
        return judged and all(
            {"pearson", "spearman"} <= row.keys() for row in figures["measures"].values()
        )
    except (AttributeError, KeyError, TypeError):
        return False


def read_agreement(path: Path) -> dict[str, Any] | None:
    """None where there were no judgements. InputError for a file of something else, and for
    agreement on a table of texts."""
    figures: dict[str, Any] = read_json(path)
    if figures == NONE:
        return None
    if not (are_agreement(figures) and figures["judgements"]["captions"]):
        remedy = "give what capgrade agree --captions --out wrote"
        raise InputError("not agreement figures of captions", file=path, remedy=remedy)
    return figures

"""How metrics are written: their units, their digits, and which value is the best."""

from __future__ import annotations

import re
from collections.abc import Callable

from capgrade.metrics.catalogue import CATALOGUE, SUM_OF, family_of

DIRECTION_WORDS = {"i2t": "image to text", "t2i": "text to image"}
DIRECTIONS = tuple(DIRECTION_WORDS)
SUM_NAMES = tuple(SUM_OF)  # stored as they are printed, 0 to 600
JUDGED = "judged_tau_b"  # agreement of a model's scores with judgements, whose name is in brackets


def _unit_of(name: str) -> str:
    """fraction, rank, tau or cosine; of a sum and of an unknown metric a fraction."""
    if is_judged(name):
        return "tau"
    base = family_of(name)
    return CATALOGUE[base].unit if base else "fraction"


def sort_key_of(name: str) -> tuple[int, list[str | int]]:
    """The key that sorts metrics in the order of the catalogue, and recall@5 before recall@10."""
    numbers: list[str | int] = [
        int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)
    ]
    base = family_of(name)
    return (list(CATALOGUE).index(base) if base else len(CATALOGUE)), numbers


def best_of(name: str) -> Callable[..., float] | None:
    """`min` of ranks, `max` of most metrics; None of lambda, which says nothing of how good a model
    is."""
    return {"rank": min, "cosine": None}.get(_unit_of(name), max)


def is_judged(name: str) -> bool:
    """Whether this is the agreement with judgements: judged_tau_b[CrowdFlowerAnnotations]."""
    return name.partition("[")[0] == JUDGED


def is_sum(name: str) -> bool:
    """Whether this is rsum or nsum, nsum[sbert] too."""
    return name.partition("[")[0] in SUM_OF


def scale(name: str) -> int:
    """What a value is multiplied by where it is shown: 100 for a fraction, shown in percent."""
    return 1 if is_sum(name) or _unit_of(name) in ("rank", "tau", "cosine") else 100


def format_value(name: str, value: float) -> str:
    """A number as the field prints it: percent of a fraction and sums to one decimal, tau and
    cosine to three.

    >>> format_value("recall@1", 0.2634)
    '26.3'
    """
    if value != value:
        return "-"
    digits = 3 if _unit_of(name) in ("tau", "cosine") else 1
    return f"{scale(name) * value:.{digits}f}"


def format_gap(name: str, value: float) -> str:
    """A difference, one digit finer than the values."""
    return f"{scale(name) * value:+.{4 if _unit_of(name) in ('tau', 'cosine') else 2}f}"

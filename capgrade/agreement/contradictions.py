"""How often a judge contradicts itself when a question is put in other words or another order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from capgrade.agreement.calibration import ACCEPTED_FROM
from capgrade.agreement.judgement_files import read_prompts
from capgrade.schemas.errors import InputError

GRADES = 5  # steps of a scale that a grade is one of, as of 0 to 5


def contradictions(
    path: Path, scale: tuple[float, float] | None, accept: float | None
) -> dict[str, Any] | None:
    """Of a table of `capgrade judge` with several prompts: `pairs`, and of them the shares whose
    scores by two prompts are more than one `grade` apart, a fifth of the scale, and on both sides
    of the score that accepts, another `verdict`. None of a table without.

    `scale` and `accept` are those of people's judgements: `accept` counts where the judge answers
    on the same scale, else 3 of 0 to 5 and half of 0 to 1. InputError as `read_people`, and for a
    table that does not say its scale.
    """
    given, its = read_prompts(path)
    if not given:
        return None
    if its is None:
        raise InputError(
            "several prompts, and no scale", file=path, remedy="add a column `scale`, such as 0..5"
        )
    low, high = its
    least = (
        accept if accept is not None and its == scale else ACCEPTED_FROM.get(its, (low + high) / 2)
    )
    apart = [max(scores) - min(scores) > (high - low) / GRADES * (1 + 1e-9) for scores in given]
    both = [min(scores) < least <= max(scores) for scores in given]
    return {
        "pairs": len(given),
        "grade": sum(apart) / len(given),
        "verdict": sum(both) / len(given),
    }

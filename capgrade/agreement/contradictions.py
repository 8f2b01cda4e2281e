"""How often a judge contradicts itself when a question has other words or another order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from capgrade.agreement.calibration import ACCEPTED_FROM
from capgrade.agreement.judgement_files import read_prompts
from capgrade.schemas.errors import InputError

GRADES = 5  # grades in a scale, as 0 to 5 has


def contradictions(
    path: Path, scale: tuple[float, float] | None, accept: float | None
) -> dict[str, Any] | None:
    """Of a table of `capgrade judge` with several prompts: the number of `pairs`; `grade`, the
    share whose scores by two prompts differ by more than a grade, a fifth of the scale; and
    `verdict`, the share that one prompt accepts and another does not. None for one prompt.

    `scale` and `accept` are those of people's judgements. On another scale the judge accepts from
    ACCEPTED_FROM on, or from the middle. InputError as `read_people`, and for a table without a
    scale."""
    scores_by_prompt, its_scale = read_prompts(path)
    if not scores_by_prompt:
        return None
    if its_scale is None:
        raise InputError(
            "several prompts, and no scale", file=path, remedy="add a column `scale`, such as 0..5"
        )
    low, high = its_scale
    accept_from = (
        accept
        if accept is not None and its_scale == scale
        else ACCEPTED_FROM.get(its_scale, (low + high) / 2)
    )
    differ = [
        max(scores) - min(scores) > (high - low) / GRADES * (1 + 1e-9)
        for scores in scores_by_prompt
    ]
    contradict = [min(scores) < accept_from <= max(scores) for scores in scores_by_prompt]
    return {
        "pairs": len(scores_by_prompt),
        "grade": sum(differ) / len(scores_by_prompt),
        "verdict": sum(contradict) / len(scores_by_prompt),
    }

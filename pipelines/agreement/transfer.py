"""How far a calibration holds for people it was not learnt from: what values mean by it, judged by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from capgrade.pipelines.agreement.calibration import ACCEPTED, SCORE, scale_of
from capgrade.pipelines.agreement.curve import Curve, reliability
from capgrade.pipelines.agreement.ratings import Judgements

GRADE = "_grade"


def meanings(labels: Mapping[str, np.ndarray], curves: Mapping[str, Curve]) -> dict[str, np.ndarray]:
    """Of each measure with a curve: the human score to be expected, 0..5; the probability that a person accepts, 0..1;
    and the grade, the whole number nearest to the score, halves up. Each float64 [n]."""
    found: dict[str, np.ndarray] = {}
    for name, curve in curves.items():
        score = curve.expected(labels[name])
        found |= {name + SCORE: score, name + ACCEPTED: curve.probability(labels[name])}
        found[name + GRADE] = np.floor(score + 0.5)
    return found


def held(meant: Mapping[str, np.ndarray], people: Judgements, other: np.ndarray) -> dict[str, Any]:
    """Column of probabilities -> {"ece", "reliability"} among the `other` pairs, bool [n]; accepted as `scale_of` these
    judgements has it."""
    columns = [name for name in meant if name.endswith(ACCEPTED)]
    if not columns:
        return {}
    yes = (people.score[other] >= scale_of(people).accept).astype(np.float64)
    found = {name: reliability(meant[name][other], yes) for name in columns}
    return {name: {"ece": ece, "reliability": table} for name, (ece, table) in found.items()}

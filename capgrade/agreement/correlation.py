"""How well values of judged pairs agree with people: of a measure, and of a model's scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from capgrade.agreement.judgements import Judgements, Within
from capgrade.metrics.formats import JUDGED
from capgrade.schemas.errors import InputError


def correlate(values: np.ndarray, people: Judgements, owner: np.ndarray) -> dict[str, Any]:
    """`coefficients` of values of the judged pairs, float [n], their `intervals`, and
    `bootstrapped_spearman` where it is known. owner int64 [n]: the image of each pair's caption."""
    # scipy.stats takes as long to import as all else of an evaluation, and few need it.
    from capgrade.agreement.coefficients import bootstrapped_spearman, coefficients, intervals

    results: dict[str, Any] = dict(coefficients(values, people, owner == people.image))
    results["intervals"] = intervals(values, people, owner)
    half = bootstrapped_spearman(values, people)
    return {**results, "spearman_bootstrap": half} if half else results


def agreement_of_scores(
    scores: np.ndarray, owner: np.ndarray, people: Judgements
) -> dict[str, Any]:
    """How a model's scores agree with people on the pairs that these judged.

    scores float [n_images, n_captions], of any range: the figures are correlations. owner int64
    [n_captions]: the row of each caption's image. Returns `correlate`, with the numbers of `pairs`,
    of `own` ones among them (scope `non_original` leaves these out), and of `left_out` judgements,
    which are of other images or captions. Raises InputError for pairs within one modality, numbers
    beyond the matrix, and a judged pair whose score is not finite.
    """
    if isinstance(people, Within):
        remedy = "give judgements of an image and a caption"
        raise InputError(f"judgements of pairs of {people.of}", remedy=remedy)
    for kind, numbers, size in zip(
        ("images", "captions"), (people.image, people.caption), scores.shape, strict=True
    ):
        if not len(numbers) or not 0 <= numbers.min() <= numbers.max() < size:
            between = f"{numbers.min()} to {numbers.max()}" if len(numbers) else "none"
            remedy = "number them as rows and columns of the scores"
            raise InputError(f"judged {kind} {between}, scores of {size}", remedy=remedy)
    values = np.asarray(scores[people.image, people.caption], np.float64)
    if lacking := np.count_nonzero(~np.isfinite(values)):
        problem = f"{lacking:,} of {len(values):,} judged pairs have no finite score"
        raise InputError(problem, remedy="score every judged pair, without a coarse model")
    owners = owner[people.caption]
    counts = {"own": int(np.count_nonzero(owners == people.image)), "left_out": people.left_out}
    return {"pairs": len(values), **counts, **correlate(values, people, owners)}


def _judged_column(name: str) -> str:
    """What tables call the agreement with these judgements."""
    return f"{JUDGED}[{name}]"


def judged_values(judgements: Mapping[str, Any]) -> dict[str, float]:
    """Column -> Kendall's tau-b over other captions' pairs, of all pairs where there is no other
    one; NaN where it is not defined. `judgements`: name -> `agreement_of_scores`, also as JSON has
    it."""
    found = {name: row["kendall"].get(_scope(row), np.nan) for name, row in judgements.items()}
    return {_judged_column(name): float(value) for name, value in found.items()}


def judged_intervals(judgements: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Column -> interval of `judged_values`, where there is one."""
    found = {name: row["intervals"]["kendall"].get(_scope(row)) for name, row in judgements.items()}
    return {_judged_column(name): (pair[0], pair[1]) for name, pair in found.items() if pair}


def _scope(row: Mapping[str, Any]) -> str:
    return "non_original" if row["own"] < row["pairs"] else "all"

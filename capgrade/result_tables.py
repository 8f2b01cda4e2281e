"""Evaluations as the table of a paper: one row a run, metrics of both directions side by side, in
Markdown and in LaTeX."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from capgrade.comparison import Column, compare, find_columns, reported_columns, values_of
from capgrade.metrics.catalogue import RECALL, with_measure
from capgrade.metrics.formats import DIRECTION_WORDS, best_of, format_value, is_judged
from capgrade.metrics.uncertainty import correct
from capgrade.schemas.errors import InputError, check_choice, choose_from
from capgrade.schemas.tables import Bold, Style, latex, markdown

if TYPE_CHECKING:
    from capgrade.evaluation import Evaluation

LEVEL = 0.05  # a larger p, corrected for a column's runs, does not tell a value from the best
_OF_PAPERS = (*RECALL, "rsum")
_SHORT = {"recall": "R", "ndcg": "NDCG", "ncs": "NCS", "medr": "MedR", "meanr": "MeanR"}


@dataclass(frozen=True)
class Result:
    """Numbers of a run by direction and metric, and its evaluation where values of queries are
    there too."""

    values: Mapping[Column, float]
    measure: str = ""
    evaluation: Evaluation | None = None

    @classmethod
    def of(cls, evaluation: Evaluation) -> Result:
        """The numbers of an evaluation."""
        judged = {("", name): value for name, value in evaluation.judged.items()}
        return cls(values_of(evaluation) | judged, evaluation.basis.measure, evaluation)


def table_of(
    results: Mapping[str, Result], metrics: Sequence[str] | None = None, style: Style = "markdown"
) -> str:
    """A table of runs by label, a row each, columns grouped by direction, sums last.

    Bold are the best of a column and what a paired test does not tell from it; without a test of
    the same queries, what prints the same. A single run has none. `metrics` without a measure in
    brackets are of the first measure; None takes those of papers, and agreement with judgements.
    InputError for another style, a metric that a run lacks, and where the first measures of the
    runs differ.
    """
    check_choice("style", style, get_args(Style))
    columns = _columns(results, metrics)
    for label, result in results.items():
        if lacking := [
            name for column in columns for name in column[1:] if column not in result.values
        ]:
            known = dict.fromkeys(name for _, name in result.values)
            problem = f"no {lacking[0]} was evaluated"
            raise InputError(problem, file=label, remedy=choose_from(lacking[0], known))
    bold = _best(results, columns) if len(results) > 1 else set()
    rows = [
        [
            label,
            *(
                (Bold if (label, column) in bold else str)(
                    format_value(column[1], result.values[column])
                )
                for column in columns
            ),
        ]
        for label, result in results.items()
    ]
    if style == "markdown":
        heads = [f"{direction} {name}".strip() for direction, name in columns]
        return markdown(["run", *heads], rows)
    sizes = [("", 1)]
    for direction in dict.fromkeys(direction for direction, _ in columns):
        size = sum(of == direction for of, _ in columns)
        sizes.append((DIRECTION_WORDS.get(direction, ""), size))
    return latex(["", *(_short_name(name) for _, name in columns)], rows, groups=sizes)


def _short_name(name: str) -> str:
    """R@5 of recall@5, as papers have it."""
    base, at, rest = name.partition("@")
    return f"{_SHORT.get(base, base)}{at}{rest}"


def _columns(results: Mapping[str, Result], metrics: Sequence[str] | None) -> list[Column]:
    """Each direction's columns together, the sums last."""
    first = next(iter(results.values()))
    if metrics:
        for name in metrics:
            _require_one_measure(name, results)
        found = find_columns(list(first.values), metrics, first.measure)
    else:
        judged = [column for column in first.values if is_judged(column[1])]
        others = [column for column in first.values if column not in judged]
        found = [column for column in others if column[1] in _OF_PAPERS]
        found = [*(found or reported_columns(others)), *judged]
    order = [*DIRECTION_WORDS, ""]
    return sorted(found, key=lambda column: order.index(column[0]))


def _require_one_measure(name: str, results: Mapping[str, Result]) -> None:
    """InputError where a graded metric without a measure is of two."""
    if with_measure(name, "any") == name:
        return
    of: dict[str, str] = {}
    for label, result in results.items():
        of.setdefault(result.measure, label)
    if len(of) > 1:
        (measure, label), (second, other) = list(of.items())[:2]
        problem = f"{name} is of {second} here, and of {measure} in {label}"
        remedy = (
            f"name the measure: {name}[{measure}], or evaluate all runs with the same relevance"
        )
        raise InputError(problem, file=other, remedy=remedy)


def _best(results: Mapping[str, Result], columns: Sequence[Column]) -> set[tuple[str, Column]]:
    """The cells that are the best of their column, or as good."""
    bold: set[tuple[str, Column]] = set()
    best_of_column: dict[str, list[Column]] = {}
    for column in columns:
        pick = best_of(column[1])
        known = {
            label: result.values[column]
            for label, result in results.items()
            if not math.isnan(result.values[column])
        }
        if pick is None or not known:
            continue
        best = pick(known.values())
        text = format_value(column[1], best)
        bold |= {
            (n, column) for n, value in known.items() if format_value(column[1], value) == text
        }
        first = next(label for label, value in known.items() if value == best)
        if not is_judged(column[1]):  # of pairs, not of queries, which the test exchanges
            best_of_column.setdefault(first, []).append(column)
    for label, won in best_of_column.items():
        bold |= _within_noise(results, label, won)
    return bold


def groups_of(
    results: Mapping[str, Result], columns: Sequence[Column]
) -> dict[Column, dict[str, int]]:
    """The group of each run in each column, by label: 1 of the best and of what a paired test does
    not tell from it, 2 of the best of all others and what is not told from that, and so on.

    Tests are those of bold cells. A column without an order, and agreement with judgements, which
    no test exchanges, are left out; so is a run without a value.
    """
    groups: dict[Column, dict[str, int]] = {
        column: {} for column in columns if best_of(column[1]) and not is_judged(column[1])
    }
    number = 0
    while True:
        number += 1
        of_left: dict[tuple[str, ...], list[Column]] = {}  # columns with the same runs left
        for column, found in groups.items():
            left = tuple(
                label
                for label, result in results.items()
                if label not in found and not math.isnan(result.values[column])
            )
            if left:
                of_left.setdefault(left, []).append(column)
        if not of_left:
            return groups
        for left, these in of_left.items():
            for label, column in _best({label: results[label] for label in left}, these):
                groups[column][label] = number


def _within_noise(
    results: Mapping[str, Result], best: str, columns: Sequence[Column]
) -> set[tuple[str, Column]]:
    """The cells of these columns that a paired test does not tell from those of the best run."""
    ours = results[best].evaluation
    if ours is None:
        return set()
    like = {
        label: result.evaluation
        for label, result in results.items()
        if label != best
        and result.evaluation is not None
        and ours.basis.ids
        and ours.basis.unlike(result.evaluation.basis) is None
        and ours.protocol == result.evaluation.protocol
    }
    if not like:
        return set()
    found = compare({best: ours, **like}, list(dict.fromkeys(name for _, name in columns)))
    return {
        (label, (row.direction, row.metric))
        for row in found.rows
        if (row.direction, row.metric) in columns
        for label, test in correct(
            {label: test for label, test in zip(like, row.tests, strict=True) if test is not None}
        ).items()
        if test.corrected >= LEVEL
    }

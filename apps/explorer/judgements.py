"""Reviewers' ratings as judgements for `capgrade agree`, their agreement, and R@10 by reviewers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import krippendorff
import numpy as np

from capgrade.agreement.judgement_files import read_raters, reviewed
from capgrade.apps.explorer.plans import estimate_accepted
from capgrade.apps.explorer.ratings import ReviewRatings
from capgrade.metrics.formats import DIRECTION_WORDS
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_text
from capgrade.schemas.judges import SAMPLING, SCALE, YES_OR_NO, ZERO_TO_FIVE, scale_text
from capgrade.schemas.lines import csv_text
from capgrade.schemas.out_files import refuse_file
from capgrade.schemas.reviews import POOL, SCORES, SEMANTIC_MAP, ReviewPlan

RELEVANT = 4  # the lowest score of a relevant pair, in SemanticMap's protocol
HEADER = ("image_id", "caption_id", "score", "reviewers", SCALE)
Level = Literal["ordinal", "interval"]
LEVELS: tuple[Level, ...] = ("ordinal", "interval")
Table = Mapping[str, Mapping[int, float]]  # reviewer -> item -> score


def export_judgements(ratings: ReviewRatings, out: Path, force: bool = False) -> int:
    """Write a CSV that `capgrade agree --judgements` reads: the mean score of each rated pair and
    the number of its ratings; returns the number of rows. InputError when nothing has been rated,
    and where a file is at `out`, but with `force`."""
    text, rows = judgements_csv(ratings)
    if not rows:
        raise InputError(
            "nothing has been rated", file=ratings.folder, remedy="review first: capgrade explore"
        )
    refuse_file(out, force)
    write_text(out, text)
    return rows


def judgements_csv(ratings: ReviewRatings) -> tuple[str, int]:
    """The text of `export_judgements` and its number of rows; for a pool with a column that says
    whether a pair was drawn at random."""
    judged, scale = reviewed(ratings.folder), scale_text(*ZERO_TO_FIVE)
    rows = [
        (pair.first, pair.second, f"{np.mean(pair.ratings):.6g}", len(pair.ratings), scale)
        for pair in judged
    ]
    if ratings.plan.protocol != POOL:
        return csv_text(HEADER, rows), len(rows)
    with_sampling = [(*row, pair.sampling) for row, pair in zip(rows, judged, strict=True)]
    return csv_text((*HEADER, SAMPLING), with_sampling), len(rows)


def measure_agreement(
    ratings: ReviewRatings, judged: Table | None = None, scale: tuple[float, float] = ZERO_TO_FIVE
) -> dict[str, Any]:
    """Krippendorff's alpha (ordinal and interval) and the number of ratings; for SemanticMap's
    protocol R@10, and for a pool the captions per image that each rater accepts.

    `judged` are scores of other raters, such as models, on `scale`: 0 to 5, or yes and no. "people"
    is the alpha of the reviewers alone, "with_people" that of each other rater and the reviewers'
    mean. alpha is None where it is not defined: no pair has two ratings, or all scores are equal.
    """
    people, judged, items = ratings.read_all(), judged or {}, len(ratings.plan.items)
    raters: dict[str, Mapping[int, float]] = {**people, **judged}
    if both := sorted(set(people) & set(judged)):
        raise InputError(f"'{both[0]}' is a reviewer too", remedy="name the rater otherwise")
    if scale not in (ZERO_TO_FIVE, YES_OR_NO) or (people and scale != ZERO_TO_FIVE):
        problem = f"answers of {scale_text(*scale)} in a review of {scale_text(*ZERO_TO_FIVE)}"
        raise InputError(problem, remedy="judge on one scale")
    result: dict[str, Any] = {
        "protocol": ratings.plan.protocol,
        "items": items,
        "reviewers": {name: len(table) for name, table in raters.items()},
        "rated_twice": int((np.isfinite(rating_matrix(raters, items)).sum(axis=0) > 1).sum()),
        "alpha": _alphas(raters, items),
    }
    rated = np.flatnonzero(np.isfinite(of_people := rating_matrix(people, items)).any(axis=0))
    mean = dict(zip(rated.tolist(), np.nanmean(of_people[:, rated], axis=0).tolist(), strict=True))
    if judged:
        result["people"] = _alphas(people, items)
        result["with_people"] = {
            name: _alphas({"": table, "mean": mean}, items) for name, table in judged.items()
        }
    if ratings.plan.protocol == SEMANTIC_MAP:
        result["recall"] = judged_recall(ratings.plan, raters)
    if ratings.plan.protocol == POOL:
        accept = RELEVANT if scale == ZERO_TO_FIVE else 0.5
        tables = {**raters, "mean of people": mean} if len(people) > 1 else raters
        result["accepted"] = {
            name: estimate_accepted(ratings.plan, table, accept) for name, table in tables.items()
        }
    return result


def _alphas(table: Table, items: int) -> dict[str, float | None]:
    return {level: alpha(rating_matrix(table, items), level) for level in LEVELS}


def read_judge_tables(
    paths: Sequence[Path], plan: ReviewPlan
) -> tuple[dict[str, dict[int, float]], tuple[float, float]]:
    """rater -> item -> score, of the plan's pairs in tables of `capgrade judge`, and their scale.
    InputError as `read_raters`, where a table has none of the pairs, for a rater in two tables, and
    for two scales."""
    judged, scale = dict[str, dict[int, float]](), None
    pairs = [(item.image_id, item.caption_id) for item in plan.items]
    for path in paths:
        of_file, its_scale = read_raters(path)
        if scale not in (None, its_scale):
            raise InputError(
                "another scale than the file before", file=path, remedy="judge on one scale"
            )
        scale = its_scale
        of_plan = {
            name: {k: scores[x] for k, x in enumerate(pairs) if x in scores}
            for name, scores in of_file.items()
        }
        of_plan = {name: table for name, table in of_plan.items() if table}
        if not of_plan:
            remedy = "judge them: capgrade judge --pairs FOLDER"
            raise InputError("none of the review's pairs", file=path, remedy=remedy)
        if twice := judged.keys() & of_plan.keys():
            raise InputError(
                f"'{min(twice)}' is in another file too", file=path, remedy="give each model once"
            )
        judged |= of_plan
    return judged, scale or ZERO_TO_FIVE


def rating_matrix(table: Table, items: int) -> np.ndarray:
    """float64 [reviewers, items], NaN where nothing was rated."""
    matrix = np.full((len(table), items), np.nan)
    for row, ratings in zip(matrix, table.values(), strict=True):
        row[list(ratings)] = list(ratings.values())
    return matrix


def alpha(matrix: np.ndarray, level: Level) -> float | None:
    """Krippendorff's alpha over the pairs with two ratings or more; None where it is not defined:
    without such pairs, or where all their scores are equal."""
    shared = matrix[:, np.isfinite(matrix).sum(axis=0) > 1] if len(matrix) else matrix
    values = shared[np.isfinite(shared)]
    if len(np.unique(values)) < 2:
        return None
    # Scores of models may lie between those that people give, such as 3.5.
    domain = np.union1d(np.array(SCORES, float), values)
    return float(
        krippendorff.alpha(reliability_data=shared, value_domain=domain, level_of_measurement=level)
    )


def judged_recall(plan: ReviewPlan, raters: Table) -> dict[str, Any]:
    """SemanticMap's R@10 in percent, of the labels, of each reviewer, and the reviewers' mean.

    A missed query is a hit for a reviewer who rates one of its ten results RELEVANT or more. Its
    share among the misses whose results are all rated stands for all: R = (hits + misses * share) /
    queries. Misses rated in part are left out: some could already be hits, none could be a miss,
    so the share would be too high. `misses` are all of the plan, `misses_judged` those that count.
    """
    queries, hits = plan.facts["queries"], plan.facts["hits"]
    items_of_query: dict[str | None, list[int]] = {}  # query -> its items
    for k, item in enumerate(plan.items):
        items_of_query.setdefault(item.query, []).append(k)
    matrix = rating_matrix(raters, len(plan.items))
    # NaN where a result of the query is not rated.
    best = np.stack([matrix[:, items].max(axis=1) for items in items_of_query.values()], axis=1)
    relevant = {
        name: row[np.isfinite(row)] >= RELEVANT for name, row in zip(raters, best, strict=True)
    }
    recall = {
        name: float(100 * (hits + (queries - hits) * is_hit.mean()) / queries)
        for name, is_hit in relevant.items()
        if len(is_hit)
    }
    return {
        # Older plans do not say their direction: there was only this one.
        "direction": plan.facts.get("direction", "t2i"),
        "images": plan.facts.get("images"),
        "labels": 100 * hits / queries,
        "reviewers": recall,
        "mean": float(np.mean(list(recall.values()))) if recall else None,
        "misses": len(items_of_query),
        "misses_judged": {name: len(is_hit) for name, is_hit in relevant.items()},
    }


def agreement_rows(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The result of `measure_agreement` as names and values, for the page and the terminal."""

    def format_value(value: float | None, decimals: int = 3, missing: str = "–") -> str:
        return missing if value is None else f"{value:.{decimals}f}"

    undefined = "– (needs pairs that two people rated, and two different scores)"
    rows = [
        (f"rated by {name}", f"{n:,} of {result['items']:,}")
        for name, n in result["reviewers"].items()
    ]
    rows.append(("pairs rated by two or more", f"{result['rated_twice']:,}"))
    rows += [
        (f"Krippendorff's alpha, {level}", format_value(v, missing=undefined))
        for level, v in result["alpha"].items()
    ]
    for name, row in result.get("with_people", {}).items():
        rows.append((f"alpha of {name} with people's mean, ordinal", format_value(row["ordinal"])))
    for name, estimate in result.get("accepted", {}).items():
        value = (
            "–"
            if estimate is None
            else f"{estimate['accepted']:.2f} ({estimate['low']:.2f} to {estimate['high']:.2f})"
        )
        rows.append((f"other captions per image that {name} accepts", value))
    if recall := result.get("recall"):
        direction = DIRECTION_WORDS[recall["direction"]]
        where = direction + (f", {recall['images']:,} images" if recall["images"] else "")
        rows.append((f"R@10 of the labels, {where}", format_value(recall["labels"], 1)))
        for name, n in recall["misses_judged"].items():
            name_of_row = f"R@10 by {name}, from {n:,} of {recall['misses']:,} misses, rated whole"
            rows.append((name_of_row, format_value(recall["reviewers"].get(name), 1)))
        rows.append((f"R@10, mean of reviewers, {where}", format_value(recall["mean"], 1)))
    return rows

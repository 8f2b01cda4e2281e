"""What reviewers said: judgements for `capgrade agree`, how far they agree, R@10 judged again."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import krippendorff
import numpy as np

from capgrade.agreement.judgement_files import read_raters, reviewed
from capgrade.evaluation import DIRECTION_WORDS
from capgrade.explorer.plans import accepted_per_image
from capgrade.explorer.ratings import ReviewRatings
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_text
from capgrade.schemas.judges import SAMPLING, SCALE, YES_OR_NO, ZERO_TO_FIVE, scale_text
from capgrade.schemas.lines import csv_text
from capgrade.schemas.output import refuse_file, starting
from capgrade.schemas.reviews import POOL, SCORES, SEMANTIC_MAP, ReviewPlan

RELEVANT = 4  # from this score on an image counts as found, in SemanticMap's protocol
HEADER = ("image_id", "caption_id", "score", "reviewers", SCALE)
Level = Literal["ordinal", "interval"]
LEVELS: tuple[Level, ...] = ("ordinal", "interval")
Table = Mapping[str, Mapping[int, float]]  # reviewer -> item -> score


def export(ratings: ReviewRatings, out: Path) -> int:
    """Write a CSV that `capgrade agree --judgements` reads: the mean score of each rated pair and
    by how many it was rated; returns its rows. InputError when nothing has been rated, and for a
    file at `out` that is something else."""
    text, rows = judgements_csv(ratings)
    if not rows:
        raise InputError(
            "nothing has been rated", file=ratings.folder, remedy="review first: capgrade explore"
        )
    refuse_file(out, "CSV of judgements", starting(",".join(HEADER).encode()))
    write_text(out, text)
    return rows


def judgements_csv(ratings: ReviewRatings) -> tuple[str, int]:
    """The text of `export` and its rows, as the review's folder is read for `agree`; of a pool,
    whether each pair was drawn at random."""
    found, scale = reviewed(ratings.folder), scale_text(*ZERO_TO_FIVE)
    rows = [
        (one.first, one.second, f"{np.mean(one.ratings):.6g}", len(one.ratings), scale)
        for one in found
    ]
    if ratings.plan.protocol != POOL:
        return csv_text(HEADER, rows), len(rows)
    drawn = [(*row, one.sampling) for row, one in zip(rows, found, strict=True)]
    return csv_text((*HEADER, SAMPLING), drawn), len(rows)


def agreement(
    ratings: ReviewRatings, judged: Table | None = None, scale: tuple[float, float] = ZERO_TO_FIVE
) -> dict[str, Any]:
    """Krippendorff's alpha (ordinal and interval), how much was rated, for SemanticMap's protocol
    R@10, and for a pool the captions per image that each rater accepts (`accepted_per_image`).

    `judged` are other raters' scores, such as a model's, of `scale`: 0 to 5, or yes and no.
    "people" is the alpha without them, "with_people" that of each one and the mean of people. alpha
    is None where it is not defined: no pair that two rated, or one score throughout.
    """
    people, judged, items = ratings.all(), judged or {}, len(ratings.plan.items)
    found: dict[str, Mapping[int, float]] = {**people, **judged}
    if both := sorted(set(people) & set(judged)):
        raise InputError(f"'{both[0]}' is a reviewer too", remedy="name the rater otherwise")
    if scale not in (ZERO_TO_FIVE, YES_OR_NO) or (people and scale != ZERO_TO_FIVE):
        problem = f"answers of {scale_text(*scale)} in a review of {scale_text(*ZERO_TO_FIVE)}"
        raise InputError(problem, remedy="judge on one scale")
    result: dict[str, Any] = {
        "protocol": ratings.plan.protocol,
        "items": items,
        "reviewers": {name: len(table) for name, table in found.items()},
        "rated_twice": int((np.isfinite(rating_matrix(found, items)).sum(axis=0) > 1).sum()),
        "alpha": _alphas(found, items),
    }
    rated = np.flatnonzero(np.isfinite(by := rating_matrix(people, items)).any(axis=0))
    mean = dict(zip(rated.tolist(), np.nanmean(by[:, rated], axis=0).tolist(), strict=True))
    if judged:
        result["people"] = _alphas(people, items)
        result["with_people"] = {
            name: _alphas({"": table, "mean": mean}, items) for name, table in judged.items()
        }
    if ratings.plan.protocol == SEMANTIC_MAP:
        result["recall"] = judged_recall(ratings.plan, found)
    if ratings.plan.protocol == POOL:
        least = RELEVANT if scale == ZERO_TO_FIVE else 0.5
        tables = {**found, "mean of people": mean} if len(people) > 1 else found
        result["accepted"] = {
            name: accepted_per_image(ratings.plan, table, least) for name, table in tables.items()
        }
    return result


def _alphas(found: Table, items: int) -> dict[str, float | None]:
    return {level: alpha(rating_matrix(found, items), level) for level in LEVELS}


def read_judged(
    paths: Sequence[Path], plan: ReviewPlan
) -> tuple[dict[str, dict[int, float]], tuple[float, float]]:
    """Rater -> item -> score, of the plan's pairs in tables of `capgrade judge`, and their scale.
    InputError as `read_raters`, where a table has none of the pairs, for a rater in two tables, and
    for two scales."""
    judged, scale = dict[str, dict[int, float]](), None
    pairs = [(item.image_id, item.caption_id) for item in plan.items]
    for path in paths:
        given, its = read_raters(path)
        if scale not in (None, its):
            raise InputError(
                "another scale than the file before", file=path, remedy="judge on one scale"
            )
        scale = its
        found = {
            name: {k: scores[x] for k, x in enumerate(pairs) if x in scores}
            for name, scores in given.items()
        }
        found = {name: table for name, table in found.items() if table}
        if not found:
            remedy = "judge them: capgrade judge --pairs FOLDER"
            raise InputError("none of the review's pairs", file=path, remedy=remedy)
        if twice := judged.keys() & found.keys():
            raise InputError(
                f"'{min(twice)}' is in another file too", file=path, remedy="give each model once"
            )
        judged |= found
    return judged, scale or ZERO_TO_FIVE


def rating_matrix(found: Table, items: int) -> np.ndarray:
    """float64 [reviewers, items], NaN where nothing was rated."""
    matrix = np.full((len(found), items), np.nan)
    for row, table in zip(matrix, found.values(), strict=True):
        row[list(table)] = list(table.values())
    return matrix


def alpha(matrix: np.ndarray, level: Level) -> float | None:
    """Krippendorff's alpha over the pairs that two people or more rated; None where it is not
    defined."""
    shared = matrix[:, np.isfinite(matrix).sum(axis=0) > 1] if len(matrix) else matrix
    values = shared[np.isfinite(shared)]
    if len(np.unique(values)) < 2:
        return None
    domain = np.union1d(np.array(SCORES, float), values)  # a model may answer 3.5
    return float(
        krippendorff.alpha(reliability_data=shared, value_domain=domain, level_of_measurement=level)
    )


def judged_recall(plan: ReviewPlan, found: Table) -> dict[str, Any]:
    """SemanticMap's R@10 in percent, of the labels, of each reviewer, and the reviewers' mean.

    A missed query counts as found by a reviewer who rates one of its ten results RELEVANT or more.
    The share found among the misses that a reviewer has rated whole stands for all misses: R =
    (hits + misses * share) / queries. A miss that is rated in part does not count, also where a
    result of it was found relevant: it would count as soon as found and never as not found.
    `misses` are all that the plan asks about, `misses_judged` those that counted.
    """
    queries, hits = plan.facts["queries"], plan.facts["hits"]
    asked: dict[str | None, list[int]] = {}  # query -> its items
    for k, item in enumerate(plan.items):
        asked.setdefault(item.query, []).append(k)
    matrix = rating_matrix(found, len(plan.items))
    # NaN where not rated whole
    best = np.stack([matrix[:, items].max(axis=1) for items in asked.values()], axis=1)
    relevant = {
        name: row[np.isfinite(row)] >= RELEVANT for name, row in zip(found, best, strict=True)
    }
    recall = {
        name: float(100 * (hits + (queries - hits) * some.mean()) / queries)
        for name, some in relevant.items()
        if len(some)
    }
    return {
        "direction": plan.facts.get("direction", "t2i"),  # plans of before it was a choice
        "images": plan.facts.get("images"),
        "labels": 100 * hits / queries,
        "reviewers": recall,
        "mean": float(np.mean(list(recall.values()))) if recall else None,
        "misses": len(asked),
        "misses_judged": {name: len(some) for name, some in relevant.items()},
    }


def agreement_rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What `agreement` found as names and values, for the page and the terminal."""

    def shown(value: float | None, decimals: int = 3, missing: str = "–") -> str:
        return missing if value is None else f"{value:.{decimals}f}"

    undefined = "– (needs pairs that two people rated, and two different scores)"
    rows = [
        (f"rated by {name}", f"{n:,} of {found['items']:,}")
        for name, n in found["reviewers"].items()
    ]
    rows.append(("pairs rated by two or more", f"{found['rated_twice']:,}"))
    rows += [
        (f"Krippendorff's alpha, {level}", shown(v, missing=undefined))
        for level, v in found["alpha"].items()
    ]
    for name, row in found.get("with_people", {}).items():
        rows.append((f"alpha of {name} with people's mean, ordinal", shown(row["ordinal"])))
    for name, one in found.get("accepted", {}).items():
        value = (
            "–" if one is None else f"{one['accepted']:.2f} ({one['low']:.2f} to {one['high']:.2f})"
        )
        rows.append((f"other captions per image that {name} accepts", value))
    if recall := found.get("recall"):
        way = DIRECTION_WORDS[recall["direction"]]
        of = way + (f", {recall['images']:,} images" if recall["images"] else "")
        rows.append((f"R@10 of the labels, {of}", shown(recall["labels"], 1)))
        for name, n in recall["misses_judged"].items():
            said = f"R@10 by {name}, from {n:,} of {recall['misses']:,} misses, rated whole"
            rows.append((said, shown(recall["reviewers"].get(name), 1)))
        rows.append((f"R@10, mean of reviewers, {of}", shown(recall["mean"], 1)))
    return rows

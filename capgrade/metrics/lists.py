"""Metrics of top-k lists against graded judgements: what a query's list holds, and what the best
list would."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.metrics.base import share
from capgrade.schemas.errors import InputError
from capgrade.schemas.say import warn

if TYPE_CHECKING:
    from capgrade.metrics.runs import Qrels, Run

_GRADED = ("ndcg", "ndcg_exp", "ncs")
_KINDS = (*_GRADED, "recall", "r", "precision", "mrr", "map", "r_precision", "map@r")
WITHOUT_K = ("r_precision", "map@r")


def score_run(run: Run, qrels: Qrels, names: Sequence[str], above: float) -> np.ndarray:
    """float64 [judged queries, names]: 0 for a judged query that the run lacks, which a warning
    counts. InputError for an unknown metric, and where run and judgements share no query or no
    document."""
    chosen = [_named(name) for name in names]
    asked, answered = (pa.array(queries, pa.string()) for queries in (qrels.queries, run.queries))
    run_of = pc.index_in(asked, answered).fill_null(-1).to_numpy()
    if not (run_of >= 0).any():
        raise InputError(
            "run and judgements have no query in common", remedy="give both the same ids"
        )
    (run_document, ours), (qrel_document, theirs) = run.coded, qrels.coded
    # the last: what nobody judged
    document_of = pc.index_in(ours, theirs).fill_null(len(theirs)).to_numpy()
    if len(ours) and (document_of == len(theirs)).all():
        there = f", '{theirs[0]}' there" if len(theirs) else "; nothing is judged"
        problem = f"run and judgements have no document in common: '{ours[0]}' here{there}"
        raise InputError(problem, remedy="give both the same ids")
    if missing := int((run_of < 0).sum()):
        warn(
            f"{missing:,} of {len(run_of):,} judged queries have no list in the run: they count"
            " as 0"
        )
    query, width = np.repeat(np.arange(len(run_of)), np.diff(qrels.start)), len(theirs) + 1
    positives = np.bincount(query, qrels.relevance > above, len(run_of)).astype(np.int64)
    deepest = min(max(k for _, k in chosen), len(ours))
    depth = np.where(
        any(kind in WITHOUT_K for kind, _ in chosen), np.maximum(positives, deepest), deepest
    )
    sizes = np.where(run_of < 0, 0, np.minimum(np.diff(run.start)[run_of], depth))
    listed, place = _places(sizes)
    key = listed * width + document_of[run_document[run.start[run_of][listed] + place]]
    judged = query * width + qrel_document
    order = np.argsort(judged)
    at = order[np.minimum(np.searchsorted(judged, key, sorter=order), len(order) - 1)]
    found = _Ranked(listed, place + 1, np.where(judged[at] == key, qrels.relevance[at], 0))
    ideal = found
    if any(kind in _GRADED for kind, _ in chosen):
        descending = qrels.relevance[np.lexsort((-qrels.relevance, query))]
        ideal = _Ranked(query, _places(np.diff(qrels.start))[1] + 1, descending)
    return np.stack([_values(*one, found, ideal, positives, above) for one in chosen], axis=1)


class _Ranked(NamedTuple):
    """Documents of one query after the other, best first: whose, at which place from 1, and the
    relevance."""

    query: np.ndarray
    place: np.ndarray
    relevance: np.ndarray


def _places(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of so many items in each row, one after the other: the row, and the place in it from 0."""
    return np.repeat(np.arange(len(sizes)), sizes), np.arange(sizes.sum()) - np.repeat(
        np.cumsum(sizes) - sizes, sizes
    )


def _values(
    kind: str, k: int, found: _Ranked, ideal: _Ranked, positives: np.ndarray, above: float
) -> np.ndarray:
    """A metric of each query: `found` is its list, `ideal` all that is judged; `positives` says how
    many count."""

    def total(one: _Ranked, terms: np.ndarray) -> np.ndarray:
        return np.bincount(one.query, terms, len(positives))

    def gains(one: _Ranked) -> np.ndarray:
        gain = 2.0**one.relevance - 1 if kind == "ndcg_exp" else one.relevance
        return total(
            one, (one.place <= k) * (gain if kind == "ncs" else gain / np.log2(one.place + 1))
        )

    if kind in _GRADED:
        return share(gains(found), gains(ideal))
    hits = (found.relevance > above) & (
        found.place <= (positives[found.query] if kind in WITHOUT_K else k)
    )
    count = total(found, hits)
    if kind == "precision":
        return count / k
    if kind in ("r", "r_precision"):
        return share(count, positives, np.nan)
    # hits at this place and before it
    so_far = hits.cumsum() - (count.cumsum() - count)[found.query]
    if kind in ("map", "map@r"):
        return share(total(found, hits * so_far / found.place), positives, np.nan)
    best = total(found, (hits & (so_far == 1)) / found.place)  # of the first hit
    return np.where(positives > 0, best if kind == "mrr" else best > 0, np.nan)


def _named(name: str) -> tuple[str, int]:
    """The kind and its cut-off."""
    match = re.fullmatch(r"([a-z_]+(?:@r)?)(?:@([1-9]\d*))?", name)
    kind = match[1] if match else ""
    if match is None or kind not in _KINDS or (match[2] is None) != (kind in WITHOUT_K):
        usage = ", ".join(kind if kind in WITHOUT_K else f"{kind}@K" for kind in _KINDS)
        raise InputError(
            f"metric {name!r} is not one of ranked lists", remedy=f"use one of: {usage}"
        )
    return kind, int(match[2] or 0)

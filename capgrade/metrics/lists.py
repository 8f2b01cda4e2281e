"""Metrics of top-k lists against graded judgements: what a query's list holds, and what the best list would."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.metrics.base import share
from capgrade.metrics.gains import discounts
from capgrade.schemas.errors import InputError
from capgrade.schemas.say import warn

if TYPE_CHECKING:
    from capgrade.metrics.runs import Qrels, Run

KINDS = ("ndcg", "ndcg_exp", "ncs", "recall", "r", "precision", "mrr", "map", "r_precision", "map@r")
WITHOUT_K = ("r_precision", "map@r")


def score_run(run: Run, qrels: Qrels, names: Sequence[str], above: float) -> np.ndarray:
    """float64 [judged queries, names]: 0 for a judged query that the run lacks, which a warning counts. InputError for
    an unknown metric, and where run and judgements share no query or no document."""
    chosen = [_named(name) for name in names]
    run_of = pc.index_in(pa.array(qrels.queries), pa.array(run.queries)).fill_null(-1).to_numpy()
    if not (run_of >= 0).any():
        raise InputError("run and judgements have no query in common", remedy="give both the same ids")
    (run_document, ours), (qrel_document, theirs) = run.coded, qrels.coded
    document_of = pc.index_in(ours, theirs).fill_null(len(theirs)).to_numpy()  # the last: what nobody judged
    if len(ours) and (document_of == len(theirs)).all():
        there = f", '{theirs[0]}' there" if len(theirs) else "; nothing is judged"
        problem = f"run and judgements have no document in common: '{ours[0]}' here{there}"
        raise InputError(problem, remedy="give both the same ids")
    if missing := int((run_of < 0).sum()):
        warn(f"{missing:,} of {len(run_of):,} judged queries have no list in the run: they count as 0")
    queries, width = np.arange(len(run_of)), len(theirs) + 1
    query = np.repeat(queries, np.diff(qrels.start))
    positives = np.bincount(query, qrels.relevance > above, len(run_of)).astype(np.int64)
    depth = max(k or int(positives.max()) for _, k in chosen)
    sizes = np.where(run_of < 0, 0, np.minimum(np.diff(run.start)[run_of], depth))
    key = np.repeat(queries, sizes) * width + document_of[run_document[_heads(run.start[run_of], sizes)]]
    judged = query * width + qrel_document
    order = np.argsort(judged)
    at = order[np.minimum(np.searchsorted(judged, key, sorter=order), len(order) - 1)]
    found = _padded(sizes, np.where(judged[at] == key, qrels.relevance[at], 0))
    best = np.minimum(np.diff(qrels.start), depth)
    falling = np.lexsort((-qrels.relevance, query))
    ideal = _padded(best, qrels.relevance[falling[_heads(qrels.start[:-1], best)]])
    return np.stack([_values(*one, found, ideal, positives, above) for one in chosen], axis=1)


def _heads(start: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The places of so many items from each start on, one after the other."""
    return np.repeat(start - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())


def _padded(sizes: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The values of one query after the other as rows, zeros behind."""
    rows = np.zeros((len(sizes), int(sizes.max())))
    rows[np.arange(rows.shape[1]) < sizes[:, None]] = values
    return rows


def _values(kind: str, k: int, found: np.ndarray, ideal: np.ndarray, positives: np.ndarray, above: float) -> np.ndarray:
    """A metric of each query: `found` the relevance of its list, `ideal` all judged, falling, and how many count."""
    if kind in ("ndcg", "ndcg_exp", "ncs"):
        weights = np.ones(k) if kind == "ncs" else discounts(k)
        gains = [2.0 ** some[:, :k] - 1 if kind == "ndcg_exp" else some[:, :k] for some in (found, ideal)]
        part, whole = (some @ weights[: some.shape[1]] for some in gains)
        return share(part, whole)
    place = np.arange(1, found.shape[1] + 1)
    hits = (found > above) & (place <= (positives[:, None] if kind in WITHOUT_K else k))
    if kind == "precision":
        return hits.sum(axis=1) / k
    if kind in ("r", "r_precision"):
        return share(hits.sum(axis=1), positives, np.nan)
    if kind in ("map", "map@r"):
        return share((hits * hits.cumsum(axis=1) / place).sum(axis=1), positives, np.nan)
    best = (hits / place).max(axis=1, initial=0)  # of the first hit
    return np.where(positives > 0, best if kind == "mrr" else best > 0, np.nan)


def _named(name: str) -> tuple[str, int]:
    """The kind and its cut-off."""
    match = re.fullmatch(r"([a-z_]+(?:@r)?)(?:@([1-9]\d*))?", name)
    kind = match[1] if match else ""
    if match is None or kind not in KINDS or (match[2] is None) != (kind in WITHOUT_K):
        usage = ", ".join(kind if kind in WITHOUT_K else f"{kind}@K" for kind in KINDS)
        raise InputError(f"metric {name!r} is not one of ranked lists", remedy=f"use one of: {usage}")
    return kind, int(match[2] or 0)

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
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.say import warn

if TYPE_CHECKING:
    from capgrade.metrics.runs import Qrels, Run

_GRADED = ("ndcg", "ndcg_exp", "ncs")
_KINDS = (*_GRADED, "recall", "r", "precision", "mrr", "map", "r_precision", "map@r")
WITHOUT_K = ("r_precision", "map@r")


def score_run(run: Run, qrels: Qrels, names: Sequence[str], above: float) -> np.ndarray:
    """float64 [judged queries, names]: 0 for a judged query that the run lacks, and by every metric
    but the graded ones for one without a relevant document; a warning counts both. InputError for
    an unknown metric, and where run and judgements share no query or no document."""
    chosen = [_parse_metric(name) for name in names]
    asked, answered = (pa.array(queries, pa.string()) for queries in (qrels.queries, run.queries))
    run_of = pc.index_in(asked, answered).fill_null(-1).to_numpy()
    if not (run_of >= 0).any():
        raise InputError(
            "run and judgements have no query in common", remedy="give both the same ids"
        )
    (run_document, run_ids), (qrel_document, judged_ids) = run.document_codes, qrels.document_codes
    # A document that nobody judged has the number behind the last judged one.
    document_of = pc.index_in(run_ids, judged_ids).fill_null(len(judged_ids)).to_numpy()
    if len(run_ids) and (document_of == len(judged_ids)).all():
        example = f", '{judged_ids[0]}' there" if len(judged_ids) else "; nothing is judged"
        problem = f"run and judgements have no document in common: '{run_ids[0]}' here{example}"
        raise InputError(problem, remedy="give both the same ids")
    if missing := int((run_of < 0).sum()):
        warn(
            f"{missing:,} of {len(run_of):,} judged queries have no list in the run: they count"
            " as 0"
        )
    query, width = np.repeat(np.arange(len(run_of)), np.diff(qrels.start)), len(judged_ids) + 1
    positives = np.bincount(query, qrels.relevance > above, len(run_of)).astype(np.int64)
    if bare := int((positives == 0).sum()):
        warn(
            f"{bare:,} of {len(run_of):,} judged queries have no document with relevance above"
            f" {above:g}: they count as 0"
        )
    deepest = min(max(k for _, k in chosen), len(run_ids))
    depth = np.where(
        any(kind in WITHOUT_K for kind, _ in chosen), np.maximum(positives, deepest), deepest
    )
    sizes = np.where(run_of < 0, 0, np.minimum(np.diff(run.start)[run_of], depth))
    listed, place = _places(sizes)
    key = listed * width + document_of[run_document[run.start[run_of][listed] + place]]
    judged = query * width + qrel_document
    order = np.argsort(judged)
    at = order[np.minimum(np.searchsorted(judged, key, sorter=order), len(order) - 1)]
    retrieved = _RankedDocuments(
        listed, place + 1, np.where(judged[at] == key, qrels.relevance[at], 0)
    )
    ideal = retrieved
    if any(kind in _GRADED for kind, _ in chosen):
        descending = qrels.relevance[np.lexsort((-qrels.relevance, query))]
        ideal = _RankedDocuments(query, _places(np.diff(qrels.start))[1] + 1, descending)
    return np.stack(
        [_score_queries(*metric, retrieved, ideal, positives, above) for metric in chosen], axis=1
    )


class _RankedDocuments(NamedTuple):
    """Documents of one query after the other, best first: the query's number, the place from 1, and
    the relevance."""

    query: np.ndarray
    place: np.ndarray
    relevance: np.ndarray


def _places(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row and place from 0 of each item, where row i has `sizes[i]` items in turn."""
    row = np.repeat(np.arange(len(sizes)), sizes)
    return row, np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _score_queries(
    kind: str,
    k: int,
    retrieved: _RankedDocuments,
    ideal: _RankedDocuments,
    positives: np.ndarray,
    above: float,
) -> np.ndarray:
    """A metric of each query: `retrieved` is its list, `ideal` all that is judged; `positives` says
    how many count. A query without any has 0, as in trec_eval, so that all metrics are means of the
    same queries."""

    def total(documents: _RankedDocuments, terms: np.ndarray) -> np.ndarray:
        return np.bincount(documents.query, terms, len(positives))

    def gains(documents: _RankedDocuments) -> np.ndarray:
        gain = 2.0**documents.relevance - 1 if kind == "ndcg_exp" else documents.relevance
        return total(
            documents,
            (documents.place <= k)
            * (gain if kind == "ncs" else gain / np.log2(documents.place + 1)),
        )

    if kind in _GRADED:
        return share(gains(retrieved), gains(ideal))
    hits = (retrieved.relevance > above) & (
        retrieved.place <= (positives[retrieved.query] if kind in WITHOUT_K else k)
    )
    count = total(retrieved, hits)
    if kind == "precision":
        return count / k
    if kind in ("r", "r_precision"):
        return share(count, positives)
    # The number of hits of the query at this place and before it.
    so_far = hits.cumsum() - (count.cumsum() - count)[retrieved.query]
    if kind in ("map", "map@r"):
        return share(total(retrieved, hits * so_far / retrieved.place), positives)
    best = total(retrieved, (hits & (so_far == 1)) / retrieved.place)  # of the first hit
    return best if kind == "mrr" else (best > 0).astype(np.float64)


def _parse_metric(name: str) -> tuple[str, int]:
    """The kind and its cut-off."""
    match = re.fullmatch(r"([a-z_]+(?:@r)?)(?:@([1-9]\d*))?", name)
    kind = match[1] if match else ""
    if match is None or kind not in _KINDS or (match[2] is None) != (kind in WITHOUT_K):
        known = [kind if kind in WITHOUT_K else f"{kind}@K" for kind in _KINDS]
        remedy = choose_from(re.sub(r"\d+", "K", name), known)
        raise InputError(f"metric {name!r} is not one of ranked lists", remedy=remedy)
    return kind, int(match[2] or 0)

"""Metrics of top-k lists against graded judgements: what a query's list holds, and what the best list would."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.kernels import njit
from capgrade.schemas.errors import InputError
from capgrade.schemas.say import warn

if TYPE_CHECKING:
    from capgrade.metrics.runs import Qrels, Run

KINDS = ("ndcg", "ndcg_exp", "ncs", "recall", "r", "precision", "mrr", "map", "r_precision", "map@r")
WITHOUT_K = ("r_precision", "map@r")


@njit(cache=True, nogil=True)
def _gain(value, exponential):
    return 2.0**value - 1.0 if exponential else value


@njit(cache=True, nogil=True)
def _dcg(values, k, exponential):
    total = 0.0
    for p in range(min(k, len(values))):
        total += _gain(values[p], exponential) / np.log2(p + 2.0)
    return total


@njit(cache=True, nogil=True)
def _share(part, whole):
    return part / whole if whole > 0 else 0.0


@njit(cache=True, nogil=True)
def _one(kind, k, found, ideal, positives, above):
    """A metric of one query: `found` the relevance of its list, `ideal` all judged, falling, and how many count."""
    if kind <= 1:
        return _share(_dcg(found, k, kind == 1), _dcg(ideal, k, kind == 1))
    if kind == 2:
        return _share(found[:k].sum(), ideal[:k].sum())
    if kind != 5 and positives == 0:
        return np.nan
    k = positives if kind >= 8 else k
    hits, precision, first = 0, 0.0, 0
    for p in range(min(k, len(found))):
        if found[p] > above:
            hits += 1
            precision += hits / (p + 1)
            first = first if first > 0 else p + 1
    if kind == 3:
        return 1.0 if hits > 0 else 0.0
    if kind == 4 or kind == 8:
        return hits / positives
    if kind == 5:
        return hits / k
    if kind == 6:
        return 1.0 / first if first > 0 else 0.0
    return precision / positives  # 7 and 9


@njit(cache=True, nogil=True)
def _kernel(
    run_of, run_start, run_document, qrel_start, qrel_document, relevance, document_of, n_documents, kinds, ks, above
):
    """`run_of` is the run's query of each judged query, -1 for none; `document_of` the judged document of each of the
    run's, -1 for none."""
    out = np.zeros((len(run_of), len(kinds)))
    gain = np.zeros(n_documents + 1)  # the last stands for what nobody judged
    for q in range(len(run_of)):
        judged = slice(qrel_start[q], qrel_start[q + 1])
        for k in range(qrel_start[q], qrel_start[q + 1]):
            gain[qrel_document[k]] = relevance[k]
        first, last = (run_start[run_of[q]], run_start[run_of[q] + 1]) if run_of[q] >= 0 else (0, 0)
        found = np.empty(last - first)
        for k in range(first, last):
            found[k - first] = gain[document_of[run_document[k]]]
        ideal = np.sort(relevance[judged])[::-1]
        positives = 0
        for value in ideal:
            positives += value > above
        for m in range(len(kinds)):
            out[q, m] = _one(kinds[m], ks[m], found, ideal, positives, above)
        for k in range(qrel_start[q], qrel_start[q + 1]):
            gain[qrel_document[k]] = 0.0
    return out


def score_run(run: Run, qrels: Qrels, names: Sequence[str], above: float) -> np.ndarray:
    """float64 [judged queries, names]: 0 for a judged query that the run lacks, which a warning counts. InputError for
    an unknown metric, and where run and judgements share no query or no document."""
    chosen = [_named(name) for name in names]
    run_of = pc.index_in(pa.array(qrels.queries), pa.array(run.queries)).fill_null(-1).to_numpy()
    if not (run_of >= 0).any():
        raise InputError("run and judgements have no query in common", remedy="give both the same ids")
    (run_document, ours), (qrel_document, theirs) = run.coded, qrels.coded
    document_of = pc.index_in(ours, theirs).fill_null(-1).to_numpy()
    if len(ours) and not (document_of >= 0).any():
        there = f", '{theirs[0]}' there" if len(theirs) else "; nothing is judged"
        problem = f"run and judgements have no document in common: '{ours[0]}' here{there}"
        raise InputError(problem, remedy="give both the same ids")
    if missing := int((run_of < 0).sum()):
        warn(f"{missing:,} of {len(run_of):,} judged queries have no list in the run: they count as 0")
    kinds, ks = (np.array(column, np.int64) for column in zip(*chosen, strict=True))
    return _kernel(
        run_of, run.start, run_document, qrels.start, qrel_document, qrels.relevance, document_of, len(theirs), kinds,
        ks, above,
    )  # fmt: skip


def _named(name: str) -> tuple[int, int]:
    """The kind's number and its cut-off."""
    match = re.fullmatch(r"([a-z_]+(?:@r)?)(?:@([1-9]\d*))?", name)
    kind = match[1] if match else ""
    if match is None or kind not in KINDS or (match[2] is None) != (kind in WITHOUT_K):
        usage = ", ".join(kind if kind in WITHOUT_K else f"{kind}@K" for kind in KINDS)
        raise InputError(f"metric {name!r} is not one of ranked lists", remedy=f"use one of: {usage}")
    return KINDS.index(kind), int(match[2] or 0)

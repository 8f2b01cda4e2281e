"""Retrieval metrics on arrays: one value for each query, from numpy arrays or torch tensors on any device.

`scores` [Q, N] are similarities of Q queries (rows) and N candidates (columns); `relevance` [Q, N] is graded; `own` is
bool [Q, N], or `Positives`, which hold absent ones too and need no matrix. Values come back as float64 [Q]: numpy for
numpy, a tensor on the scores' device for tensors. Tied scores count as every order of them, each as likely
(`ties="expected"`); "reference" takes the later index first. NaN, and shapes that do not fit, are InputError.
Definitions beside other packages: docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from capgrade.metrics import arrays as on_arrays
from capgrade.metrics.arrays import Collapse, Positives, coco_codes, human_lists
from capgrade.metrics.ranking import Ties
from capgrade.schemas.errors import InputError

__all__ = [
    "Collapse", "Positives", "asp", "coco_codes", "coherent_score", "collapse", "first_rank", "human_lists",
    "kendall_tau", "map_at_r", "ncs", "ndcg", "pmrp", "r_precision", "recall", "recall_share", "semantic_map",
    "semantic_recall",
]  # fmt: skip

Matrix = Any  # numpy array or torch tensor


def ndcg(
    scores: Matrix, relevance: Matrix, k: int = 25, *, gain: Literal["linear", "exponential"] = "linear",
    ties: Ties = "expected",
) -> Any:  # fmt: skip
    """NDCG@k = sum_{p<=k} g(rel_p) / log2(p + 1) over that of the best order; in [0, 1], 0 if nothing is relevant.

    relevance >= 0. g is rel (linear; Messina et al. 2021, eq. 7-8) or 2^rel - 1 (exponential; Burges et al. 2005).

    >>> ndcg(np.array([[0.9, 0.2, 0.5]]), np.array([[0.0, 1.0, 2.0]]), k=2).round(4)
    array([0.4796])
    """
    return _of_relevance(on_arrays.ndcg, scores, relevance, k=k, gain=gain, ties=ties)


def ncs(
    scores: Matrix, relevance: Matrix, k: int = 5, *, form: Literal["paper", "eq5"] = "paper", ties: Ties = "expected"
) -> Any:
    """NCS@k = relevance of the k retrieved / the k largest relevances; in [0, 1] (Biten et al. 2022, section 3.3).

    relevance >= 0. eq5: only those retrieved that are among the k most relevant count.

    >>> ncs(np.array([[0.9, 0.2, 0.5]]), np.array([[1.0, 3.0, 2.0]]), k=2)
    array([0.6])
    """
    return _of_relevance(on_arrays.ncs, scores, relevance, k=k, form=form, ties=ties)


def asp(scores: Matrix, relevance: Matrix, *, ties: Ties = "expected") -> Any:
    """ASP = mean over candidates of min / max of their ranks by score and by relevance; in (0, 1] (Li et al. 2022).

    >>> asp(np.array([[0.9, 0.2]]), np.array([[0.0, 1.0]]))
    array([0.5])
    """
    return _of_relevance(on_arrays.asp, scores, relevance, ties=ties)


def kendall_tau(scores: Matrix, relevance: Matrix, *, variant: Literal["a", "b"] = "a") -> Any:
    """Kendall's tau of scores and relevance over all candidates; in [-1, 1]. b: ties leave the denominator, as scipy.

    >>> kendall_tau(np.array([[0.9, 0.2, 0.5]]), np.array([[3.0, 1.0, 2.0]]))
    array([1.])
    """
    return _of_relevance(on_arrays.kendall_tau, scores, relevance, variant=variant)


def coherent_score(scores: Matrix, relevance: Matrix, k: int = 5, *, variant: Literal["a", "b"] = "b") -> Any:
    """CS@k: Kendall's tau of scores and relevance over the k retrieved; in [-1, 1] (Zhou et al. 2020). k >= 2.

    >>> coherent_score(np.array([[0.9, 0.2, 0.5]]), np.array([[1.0, 9.0, 2.0]]), k=2)
    array([-1.])
    """
    return _of_relevance(on_arrays.coherent_score, scores, relevance, k=k, variant=variant)


def semantic_recall(
    scores: Matrix, relevance: Matrix, k: int = 5, m: int = 5, *, weight: Literal["hard", "soft"] = "hard",
    ties: Ties = "expected",
) -> Any:  # fmt: skip
    """SR@k(m): the share of the m most relevant that is among the k retrieved; in [0, 1] (Biten et al. 2022, eq. 4).

    soft weighs a hit by its relevance, which is then >= 0.

    >>> semantic_recall(np.array([[0.9, 0.2, 0.5]]), np.array([[1.0, 3.0, 2.0]]), k=2, m=2)
    array([0.5])
    """
    return _of_relevance(on_arrays.semantic_recall, scores, relevance, k=k, m=m, weight=weight, ties=ties)


def recall(scores: Matrix, own: Matrix, k: int = 1, *, ties: Ties = "expected") -> Any:
    """R@K of image-text retrieval: 1 if any own candidate is among the first k; NaN for a query without one.

    >>> recall(np.array([[0.9, 0.2], [0.7, 0.1]]), np.eye(2, dtype=bool))
    array([1., 0.])
    """
    return _of_own(on_arrays.recall, scores, own, k=k, ties=ties)


def recall_share(scores: Matrix, own: Matrix, k: int = 5, *, ties: Ties = "expected") -> Any:
    """The share of the own candidates that is among the first k, as information retrieval has recall; in [0, 1].

    >>> recall_share(np.array([[0.9, 0.2, 0.5]]), np.array([[True, True, False]]), k=2)
    array([0.5])
    """
    return _of_own(on_arrays.recall_share, scores, own, k=k, ties=ties)


def first_rank(scores: Matrix, own: Matrix, *, ties: Ties = "expected") -> Any:
    """The rank of the first own candidate, from 1; its median is medr, its mean meanr.

    >>> first_rank(np.array([[0.9, 0.2], [0.7, 0.1]]), np.eye(2, dtype=bool))
    array([1., 2.])
    """
    return _of_own(on_arrays.first_rank, scores, own, ties=ties)


def map_at_r(scores: Matrix, own: Matrix, *, ties: Ties = "expected") -> Any:
    """mAP@R: precision at each hit among the first R, over R, the number of own candidates (Musgrave et al. 2020).

    >>> map_at_r(np.array([[0.9, 0.2, 0.5]]), np.array([[True, True, False]]))
    array([0.5])
    >>> map_at_r(np.array([[0.9, 0.2, 0.5]]), Positives.from_lists([[0, -1, -1, -1]]))  # three are not in the gallery
    array([0.25])
    """
    return _of_own(on_arrays.map_at_r, scores, own, ties=ties)


def r_precision(scores: Matrix, own: Matrix, *, ties: Ties = "expected") -> Any:
    """The share of own candidates among the first R, R their number; in [0, 1].

    >>> r_precision(np.array([[0.9, 0.2, 0.5]]), np.array([[True, False, True]]))
    array([1.])
    """
    return _of_own(on_arrays.r_precision, scores, own, ties=ties)


def pmrp(scores: Matrix, query_codes: Matrix, candidate_codes: Matrix, *, ties: Ties = "expected") -> Any:
    """PMRP: R-Precision with the candidates as positives whose object classes differ from the query's in at most zeta
    places, mean over zeta = 0, 1, 2; in [0, 1] (Chun et al. 2021). NaN for a query without any class.

    Codes are 0/1, [Q, classes] and [N, classes], as `coco_codes` gives them. A candidate without any class leaves.

    >>> pmrp(np.array([[0.9, 0.2]]), np.array([[1, 0, 0]]), np.array([[0, 1, 1], [1, 0, 0]]))
    array([0.])
    """
    found = on_arrays.pmrp(as_numpy(scores), as_numpy(query_codes), as_numpy(candidate_codes), ties=ties)
    return _like(scores, found)


def semantic_map(scores: Matrix, k: int = 5, *, query_group: Matrix = None, candidate_group: Matrix = None) -> Any:
    """lambda@K: the mean cosine of the K candidates of highest cosine; in [-1, 1] (Nawaz et al. "SemanticMap").

    With groups int [Q] and [N], a query's own candidates, those of its group, are left out. There is no ground truth in
    it: a model that maps everything to one point scores 1. Never read it without `collapse`.

    >>> semantic_map(np.array([[0.5, 0.25, 0.75]]), k=2)
    array([0.625])
    """
    groups = [None if group is None else as_numpy(group) for group in (query_group, candidate_group)]
    if (groups[0] is None) != (groups[1] is None):
        raise InputError("one of two groups is given", remedy="give query_group and candidate_group, or neither")
    pairs, (left, right) = "kept" if query_group is None else "removed", groups
    found = on_arrays.semantic_map(as_numpy(scores), k=k, pairs=pairs, query_group=left, candidate_group=right)
    return _like(scores, found)


def collapse(scores: Matrix) -> Collapse:
    """Does lambda@K mean anything? It does not where the best candidate is within 0.1 of the average one.

    >>> collapse(np.array([[0.5, 0.25, 0.75]])).collapsed
    False
    """
    return on_arrays.collapse(as_numpy(scores))


def as_numpy(values: Matrix) -> np.ndarray:
    """An array of numbers; of a tensor those that it holds, wherever it lies, bfloat16 as float32."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if str(values.dtype) == "torch.bfloat16" else values
        return np.asarray(values.numpy())
    return np.asarray(values)


def lists_of(own: Matrix, shape: tuple[int, ...]) -> Positives:
    """The True cells of each row; `Positives` as they are. InputError for what is no bool matrix of this shape."""
    if isinstance(own, Positives):
        return own
    marks = as_numpy(own)
    if marks.dtype != np.bool_ or marks.shape != shape:
        problem = f"own is {marks.dtype} {list(marks.shape)}, scores are {list(shape)}"
        raise InputError(problem, remedy="give bool [queries, candidates], or Positives")
    indptr = np.concatenate([[0], np.cumsum(marks.sum(axis=1))]).astype(np.int64)
    return Positives(indptr, np.nonzero(marks)[1].astype(np.int64), np.zeros(len(marks), np.int64))


def _of_own(function: Callable[..., np.ndarray], scores: Matrix, own: Matrix, **options: Any) -> Any:
    similarity = as_numpy(scores)
    return _like(scores, function(similarity, lists_of(own, similarity.shape), **options))


def _of_relevance(function: Callable[..., np.ndarray], scores: Matrix, relevance: Matrix, **options: Any) -> Any:
    return _like(scores, function(as_numpy(scores), as_numpy(relevance), **options))


def _like(scores: Matrix, found: np.ndarray) -> Any:
    """The values as what the scores are."""
    if not hasattr(scores, "detach"):
        return found
    import torch

    return torch.from_numpy(found).to(scores.device)

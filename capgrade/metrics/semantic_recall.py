"""Semantic recall SR@K(m): recall over the m most relevant items, whoever they belong to."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from capgrade.metrics.base import Block, Matrix, Positives, Queries, check_choice, check_k, of_matrix, per_query
from capgrade.metrics.ncs import depth_without, ideal_weights, top_sum
from capgrade.metrics.ranking import Array, Ties
from capgrade.schemas.compiled import njit
from capgrade.schemas.errors import InputError

WEIGHTS = ("hard", "soft")


@njit(cache=True, nogil=True)
def _kernel(order, end, ideal, ideal_end, values, skip, groups, k, m, soft):
    rows, n = order.shape
    out, weights = np.zeros(rows), np.empty(n)
    for row in range(rows):
        power = 1 if soft else 0
        whole = ideal_weights(ideal[row], ideal_end[row], values[row], skip[row], groups, m, power, weights)
        if whole > 0:
            out[row] = top_sum(order[row], end[row], weights, skip[row], groups, k) / whole
    return out


def sr_of(block: Block, relevance: str, k: int, m: int, weight: str, removes: bool) -> Array:
    """`semantic_recall` of a block."""
    skip, groups = block.groups(removes)
    removed = block.positives() if removes else None
    labels = block.gains if weight == "soft" else block.graded
    graded = labels(relevance, depth_without(removed, m))
    ranking, ideal = block.ranking(depth_without(removed, k)), graded.ranking
    return _kernel(
        ranking.order,
        ranking.end,
        ideal.order,
        ideal.end,
        graded.values,
        skip,
        groups,
        k,
        m,
        weight == "soft",
    )


def semantic_recall(
    scores: Matrix, relevance: Matrix, k: int = 5, m: int = 5, *, weight: str = "hard",
    query_group: Matrix = None, candidate_group: Matrix = None, ties: Ties = "expected",
) -> Any:  # fmt: skip
    """SR@k(m) = |G~ ∩ Q_k| / |G~|: the share of the m most relevant that is among the k retrieved; in [0, 1].

    `soft` weighs a hit by its relevance, which is then >= 0. Biten et al. 2022, eq. 4 ("the most similar m"); at most
    k/m where k < m. Candidates that tie at the m-th place are members with the probability a random order gives. With
    groups int [Q] and [N], a query's own candidates leave the ranking and G~. The authors' code extends images
    instead, five captions each: `extension_set`, and sr_authors of the catalogue.

    >>> semantic_recall(np.array([[0.9, 0.2, 0.5]]), np.array([[1.0, 3.0, 2.0]]), k=2, m=2)
    array([0.5])
    """
    k, m, removes = check_k(k), check_k(m), query_group is not None
    check_choice("weight", weight, WEIGHTS)
    groups = query_group, candidate_group
    score = partial(sr_of, relevance="", k=k, m=m, weight=weight, removes=removes)
    return of_matrix(scores, score, relevance=relevance, groups=groups, ties=ties)


def extension_images(relevance: Array, owner: Array, *, m: int, depth: int = 30) -> Array:
    """The m images that extend each image's ground truth, (n_images, m), as metric.py:get_intersection finds them.

    relevance (n_images, n_captions), owner (n_captions,). Every caption of an image lists its `depth` most relevant
    images; scores add up over the lists; the m largest sums follow, the image itself left out.
    Among ties the code's order: later image first in a list, first listed first in the sum.
    """
    images = relevance.shape[0]
    if m >= images:
        raise InputError(f"{m} extending images asked of {images}", remedy="lower m")
    depth = min(depth, images)
    listing = Queries(relevance.T, ties="reference")
    lists = per_query(listing, lambda block: _first(block, depth)).astype(np.int64)
    captions = np.argsort(owner, kind="stable")
    bounds = np.searchsorted(owner[captions], np.arange(images + 1))
    found = np.empty((images, m), np.int64)
    for image in range(images):
        rows = captions[bounds[image] : bounds[image + 1]]
        scores = relevance[lists[rows], rows[:, None]]
        found[image] = _merged(lists[rows], scores, image, m)
    return found


def _first(block: Block, depth: int) -> Array:
    block.finite("relevance")  # scores are added up
    return block.ranking(depth).order[:, :depth]


def _merged(lists: Array, scores: Array, image: int, m: int) -> Array:
    """The m images of largest summed score, first listed first among equals."""
    listed, first, place = np.unique(lists, return_index=True, return_inverse=True)
    sums = np.bincount(place.ravel(), weights=scores.ravel().astype(np.float64), minlength=len(listed))
    ranked = listed[np.lexsort((first, -sums))]
    ranked = ranked[ranked != image]
    if len(ranked) < m:
        raise InputError(f"image {image} has {len(ranked)} candidates to extend it by", remedy="raise depth, lower m")
    return ranked[:m]


def extension_set(images: Array, query_image: Array, candidate_image: Array) -> Positives:
    """The candidates of the images that extend each query's image: the authors' relevant items.

    For image queries all captions of the m images, for caption queries the m images of the caption's image.
    """
    by_image = np.argsort(candidate_image, kind="stable")
    bounds = np.searchsorted(candidate_image[by_image], np.arange(int(candidate_image.max()) + 2))
    members = [
        np.concatenate([by_image[bounds[other] : bounds[other + 1]] for other in extending]) for extending in images
    ]
    return Positives.from_lists([members[image] for image in query_image])


@njit(cache=True, nogil=True)
def _authors_kernel(order, end, indptr, indices, values, skip, groups, k, soft):
    rows, n = order.shape
    out, weights = np.full(rows, np.nan), np.zeros(n)
    for row in range(rows):
        members = indices[indptr[row] : indptr[row + 1]]
        if members.size > 0:
            total = 1e-20
            for item in members:
                total += values[row, item]
            for item in members:
                weights[item] = values[row, item] / total if soft else 1.0
            out[row] = top_sum(order[row], end[row], weights, skip[row], groups, k) / members.size
            weights[members] = 0.0
    return out


def sr_authors_of(block: Block, lists: str, k: int, weight: str, relevance: str) -> Array:
    """SR@K(m) of metric.py: the share of the extending items (`extension_set`) among the first K without own items.

    `soft` as the code has it: hits weighted N / (sum of N + 1e-20) and divided by their number once more, so the
    maximum is 1/|G~|.
    """
    chosen = block.positives(lists)
    skip, groups = block.groups(True)
    ranking = block.ranking(depth_without(block.positives(), k))
    values = block.gains(relevance, 1).values
    return _authors_kernel(
        ranking.order, ranking.end, chosen.indptr, chosen.indices, values, skip, groups, k, weight == "soft"
    )

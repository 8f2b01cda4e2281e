"""Semantic recall SR@K(m): recall over the m most relevant items, whoever they belong to."""

from __future__ import annotations

from typing import Any

import numpy as np

from capgrade.metrics.base import (
    Matrix,
    Queries,
    QueryBlock,
    check_k,
    own_positives,
    score_matrix,
    score_queries,
    share,
)
from capgrade.metrics.positives import Positives
from capgrade.metrics.ranking import TieRule, chances
from capgrade.schemas.arrays import Array
from capgrade.schemas.errors import InputError, check_choice

_WEIGHTS = ("hard", "soft")


def sr_of(
    block: QueryBlock,
    relevance: str,
    k: int,
    m: int,
    weight: str = "hard",
    remove_own: bool = False,
) -> Array:
    """`semantic_recall` of a block."""
    values = (block.gains if weight == "soft" else block.relevance)(relevance)
    left_out = block.groups(remove_own)
    ideal, weights = block.ideal(relevance), np.empty(values.shape)
    chances(ideal.order, ideal.end, m, *left_out, weights)
    if weight == "soft":
        weights *= values
    return share(
        block.gains_at(block.ranking, weights, k, left_out).sum(axis=1), weights.sum(axis=1)
    )


def semantic_recall(
    scores: Matrix,
    relevance: Matrix,
    k: int = 5,
    m: int = 5,
    *,
    weight: str = "hard",
    query_group: Matrix = None,
    candidate_group: Matrix = None,
    ties: TieRule = "expected",
) -> Any:
    """SR@k(m) = |G~ ∩ Q_k| / |G~|: the share of the m most relevant that is among the k retrieved;
    in [0, 1].

    `soft` weighs a hit by its relevance, which is then >= 0. Biten et al. 2022, eq. 4 ("the most
    similar m"); at most k/m where k < m. Candidates that tie at the m-th place are members with the
    probability a random order gives. With groups int [Q] and [N], a query's own candidates leave
    the ranking and G~. The authors' code extends images instead, five captions each:
    `extension_set`, and sr_authors of the catalogue.

    >>> semantic_recall(np.array([[0.9, 0.2, 0.5]]), np.array([[1.0, 3.0, 2.0]]), k=2, m=2)
    array([0.5])
    """
    return score_matrix(
        scores,
        sr_of,
        relevance=relevance,
        groups=(query_group, candidate_group),
        ties=ties,
        k=check_k(k),
        m=check_k(m),
        weight=check_choice("weight", weight, _WEIGHTS),
    )


def extension_images(relevance: Array, owner: Array, *, m: int, depth: int = 30) -> Array:
    """The m images that extend each image's ground truth, (n_images, m), as
    metric.py:get_intersection finds them.

    relevance (n_images, n_captions), owner (n_captions,). Every caption of an image lists its
    `depth` most relevant images; scores add up over the lists; the m largest sums follow, the image
    itself left out. Among ties the code's order: later image first in a list, first listed first in
    the sum.
    """
    images = relevance.shape[0]
    if m >= images:
        raise InputError(f"{m} extending images asked of {images}", remedy="lower m")
    depth = min(depth, images)

    def listed(block: QueryBlock) -> Array:
        block.finite_similarity("relevance")  # scores are added up
        return block.ranking.order[:, :depth]

    lists = score_queries(Queries(relevance.T, ties="reference"), listed).astype(np.int64)
    captions = np.argsort(owner, kind="stable")
    bounds = np.searchsorted(owner[captions], np.arange(images + 1))
    extending = np.empty((images, m), np.int64)
    for image in range(images):
        rows = captions[bounds[image] : bounds[image + 1]]
        candidates, first, place = np.unique(lists[rows], return_index=True, return_inverse=True)
        scores = relevance[lists[rows], rows[:, None]].astype(np.float64)
        sums = np.bincount(place.ravel(), weights=scores.ravel(), minlength=len(candidates))
        ranked = candidates[np.lexsort((first, -sums))]
        ranked = ranked[ranked != image]
        if len(ranked) < m:
            raise InputError(
                f"image {image} has {len(ranked)} candidates to extend it by",
                remedy="raise depth, lower m",
            )
        extending[image] = ranked[:m]
    return extending


def extension_set(images: Array, query_image: Array, candidate_image: Array) -> Positives:
    """The candidates of the images that extend each query's image: the authors' relevant items.

    For image queries all captions of the m images, for caption queries the m images of the
    caption's image.
    """
    positives, m = own_positives(images[query_image].ravel(), candidate_image), images.shape[1]
    return Positives(positives.indptr[::m], positives.indices, positives.absent[::m])


def extension_name(relevance: str, m: int) -> str:
    """What the lists of the m extending images are called among a task's positives."""
    return f"{relevance} extended by {m}"


def sr_authors_of(
    block: QueryBlock, relevance: str, k: int, m: int, weight: str = "hard", remove_own: bool = True
) -> Array:
    """SR@K(m) of metric.py: the share of the extending items (`extension_set`) among the first K
    without own items.

    `soft` as the code has it: hits weighted N / (sum of N + 1e-20) and divided by their number once
    more, so the maximum is 1/|G~|.
    """
    extending, gains = block.positives(extension_name(relevance, m)), None
    size = np.diff(extending.indptr)
    if weight == "soft":
        row = extending.queries
        gains = block.gains(relevance)[row, extending.indices].astype(np.float64)
        gains /= (np.bincount(row, gains, len(size)) + 1e-20)[row]
    return share(
        block.hits_at(extending, k, gains=gains, remove_own=remove_own).sum(axis=1), size, np.nan
    )

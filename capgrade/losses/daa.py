"""Losses on smooth ranks: DAA's differentiable ASP, and Smooth-AP."""

from __future__ import annotations

import torch
from torch import Tensor

from capgrade.losses.base import (
    Above0,
    LossForm,
    ScoreMatrix,
    batch_of,
    both_directions,
    require_all_known,
    zero_of,
)
from capgrade.losses.declared import declared

STEEPEST = 50.0  # of an exponent: beyond it a difference gives no gradient


def _soft_ranks(x: Tensor, known: Tensor, temperature: float, form: LossForm = "paper") -> Tensor:
    """1 + sum_{a != c} sigmoid((x_ba - x_bc) / temperature) over known a: [B, C] -> [B, C]; 1 is
    the best. `known` may be what each a counts.

    authors: the first x is read x_ab, as their code does (model.py of DAA, SmoothRank): a column
    beside a row.
    """
    first = x.T if form == "authors" else x
    difference = (first[:, :, None] - x[:, None, :]) / temperature  # a, c
    above = difference.clamp(-STEEPEST, STEEPEST).sigmoid()
    counts = known[:, :, None] * ~torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
    return 1 + (above * counts).sum(dim=1)


@declared("relevance")
def daa(
    scores: ScoreMatrix,
    relevance: Tensor | None = None,
    own: Tensor | None = None,
    known: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    temperature: Above0 = 0.001,
    form: LossForm = "paper",
) -> Tensor:
    """(1 - ASP of images) + (1 - ASP of captions), ASP = mean over pairs of min / max of the two
    soft ranks; in 0..2.

    One rank is by similarity, the other by relevance, both over candidates of known relevance, each
    counting its weight where relevance was sampled; no gradient goes into relevance. Their weight
    is 25 on COCO, 10 on Flickr30K. `authors`: InputError unless every relevance is known. Source:
    Li et al. 2022, eq. 8-10; Loss.DAA of their model.py, whose temperature is 0.001 whatever is
    given. O(B C^2) memory. Shapes and errors: see `capgrade.losses`.

    >>> float(daa(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.eye(2)))
    0.0
    """
    batch = batch_of("daa", scores, relevance, own, known, weights, counts=True)
    if form == "authors":
        require_all_known(batch, "daa")
    total = zero_of(batch)
    for direction in both_directions(batch, "relevance"):
        counts = direction.counts
        by_score = _soft_ranks(direction.scores, counts, temperature, form)
        by_relevance = _soft_ranks(direction.relevance.float(), counts, temperature, form).detach()
        share = torch.minimum(by_score, by_relevance) / torch.maximum(by_score, by_relevance)
        total = total + 1 - (share * counts).sum() / counts.sum().clamp(min=1)
    return total


@declared()
def smooth_ap(
    scores: ScoreMatrix, own: Tensor | None = None, *, temperature: Above0 = 0.01
) -> Tensor:
    """(1 - mean AP) of both directions, positives the own items: AP of query b is the mean over
    positives c of rank among positives / rank among all, by soft ranks (Brown et al. 2020, eq. 6);
    in 0..2.

    O(B C^2) memory. Shapes and errors: see `capgrade.losses`.

    >>> round(float(smooth_ap(torch.tensor([[0.9, 0.1], [0.2, 0.8]]))), 4)
    0.0
    """
    batch = batch_of("smooth_ap", scores, own=own)
    total = zero_of(batch)
    for direction in both_directions(batch):
        among_own = _soft_ranks(direction.scores, direction.own, temperature)
        among_all = _soft_ranks(direction.scores, torch.ones_like(direction.own), temperature)
        precision = among_own / among_all
        total = (
            total + 1 - ((precision * direction.own).sum(dim=1) / direction.own.sum(dim=1)).mean()
        )
    return total

"""Triplet losses with fixed margins: VSE++, and Triplet-SN of BCLS, whose hardest negative is smooth."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from capgrade.losses.base import Above0, Scores, Way, batch_of, both_ways, counted, graded_ways, nothing
from capgrade.losses.declared import declared

TOLERANCE = 1e-6  # of a relevance of size 1: rounding
Negative = Literal["hard", "random", "soft"]
Negatives = Literal["hard", "random", "soft", "sum"]


@declared()
def triplet(
    scores: Scores, own: Tensor | None = None, *,
    margin: float = 0.2, negatives: Negatives = "hard", spare_own: bool = False,
) -> Tensor:  # fmt: skip
    """sum_i [margin + S_in - S_ii]+ over both directions, n the negatives of i.

    negatives: hard (the most similar; VSE++'s max_violation), random (one drawn evenly), soft (the least similar) or
    sum (all of them). As in the authors' code other captions of the same image count as negatives, unless `spare_own`.
    Shapes and errors: see `capgrade.losses`.
    Source: Faghri et al. 2018, eq. 5 and 6; model.py of vsepp, ContrastiveLoss.

    >>> float(triplet(torch.tensor([[0.9, 0.8], [0.1, 0.9]])))
    0.2...
    """
    batch = batch_of("triplet", scores, own=own)
    total = nothing(batch)
    for way in both_ways(batch):
        total = total + _one_way(way, ~way.own if spare_own else ~way.itself, margin, negatives)
    return total


def _one_way(way: Way, allowed: Tensor, margin: float, negatives: Negatives) -> Tensor:
    cost = (margin + way.scores - way.paired(way.scores)[:, None]).clamp(min=0)
    if negatives == "sum":
        return counted(cost.masked_fill(~allowed, 0), allowed).sum()
    rows = allowed.any(dim=1)
    chosen = choose(way.scores.detach(), allowed, negatives)
    return counted(cost.gather(1, chosen[:, None])[:, 0][rows]).sum()


def choose(scores: Tensor, allowed: Tensor, negatives: Negative) -> Tensor:
    """int64 [P]: one allowed column per row; any where none is allowed. Random ones by torch's generator."""
    if negatives == "random":
        order = torch.rand(scores.shape, device="cpu").to(scores.device)
        return order.masked_fill(~allowed, -1).argmax(dim=1)
    far = torch.finfo(scores.dtype).max
    if negatives == "hard":
        return scores.masked_fill(~allowed, -far).argmax(dim=1)
    return scores.masked_fill(~allowed, far).argmin(dim=1)


@declared("relevance")
def triplet_sn(
    scores: Scores, relevance: Tensor | None = None, own: Tensor | None = None, known: Tensor | None = None, *,
    margin: float = 0.2, gamma: Above0 = 50.0,
) -> Tensor:  # fmt: skip
    """sum_i [s_i - S_ii + margin]+ over both directions, s_i = 1/gamma log sum_n exp(gamma S_in).

    n: candidates of known relevance r_in < r_ii, whatever the measure's scale. BCLS writes r_in < 1: its labels have
    r_ii = 1, so the two are the same there (a duplicate of the caption is no negative). Relevance above the own pair's,
    which a measure that leaves the own caption out may give, is no negative either.
    The sum is not normalised: s exceeds the maximum by at most log(B - 1) / gamma.
    Source: BCLS, eq. 14 and 15; the paper gives no margin, this is its host's (SGRAF).
    Shapes and errors: see `capgrade.losses`.

    >>> round(float(triplet_sn(torch.tensor([[0.9, 0.8], [0.1, 0.9]]), torch.eye(2))), 4)
    0.2
    """
    batch = batch_of("triplet_sn", scores, relevance, own, known)
    total = nothing(batch)
    for way in graded_ways(batch):
        most = way.paired(way.relevance)[:, None]
        negative = way.known & ~way.itself & (way.relevance < most - TOLERANCE * most.abs().clamp(min=1))
        rows = negative.any(dim=1)
        some = way.scores[rows].masked_fill(~negative[rows], -float("inf"))
        cost = (gamma * some).logsumexp(dim=1) / gamma - way.paired(way.scores)[rows] + margin
        total = total + counted(cost.clamp(min=0)).sum()
    return total

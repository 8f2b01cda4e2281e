"""Triplet losses with fixed margins."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from capgrade.losses.base import Scores, Way, batch_of, both_ways, counted, nothing
from capgrade.losses.declared import declared

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

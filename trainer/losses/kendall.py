"""The Kendall ranking loss of BCLS: candidates in the order of their relevance."""

from __future__ import annotations

import torch
from torch import Tensor

from capgrade.schemas.errors import InputError
from capgrade.trainer.losses.base import Above0, ScoredBatch, graded_ways, nothing

TOLERANCE = 1e-6  # a pair's relevance to itself is 1 up to rounding


def kendall(batch: ScoredBatch, *, alpha: float = 0.2) -> Tensor:
    """sum_ijk 1[r_ij > r_ik + alpha] [S_ik - S_ij]+ over both directions; O(B^3) (BCLS, eq. 5 and 17, no margin).

    j and k are candidates of known relevance.
    """
    total = nothing(batch)
    for way, relevance, known in graded_ways(batch):
        for scores, r, ok in zip(way.scores, relevance, known, strict=True):  # one query at a time: [N, N]
            above = (r[:, None] > r[None, :] + alpha) & ok[:, None] & ok[None, :]
            total = total + ((scores[None, :] - scores[:, None]).clamp(min=0) * above).sum()
    return total


def kendall_windows(batch: ScoredBatch, *, alpha: Above0 = 0.2, beta: Above0 = 0.1) -> Tensor:
    """SW-HS (BCLS, eq. 19 and 20): 1/M sum over windows m and queries i of [max_neg S - min_pos S]+, both directions.

    Window m spans lo..lo + alpha with lo = -1 + m beta, m = 1..M, M = (2 - alpha) / beta; positives have
    relevance >= lo + alpha, negatives <= lo. The paper draws the windows and does not write their bounds; these give
    its M = 18 (formulas of the docs). A window without either adds nothing. For relevance in -1..1.
    """
    count, total = windows(alpha, beta), nothing(batch)
    low = -1 + beta * torch.arange(1, count + 1, device=batch.scores.device)
    for way, relevance, known in graded_ways(batch):
        scores, r = way.scores[None], relevance[None]  # windows before queries: [M, P, N]
        positive = (r >= low[:, None, None] + alpha - TOLERANCE) & known
        negative = (r <= low[:, None, None] + TOLERANCE) & known
        nearest = scores.masked_fill(~positive, torch.inf).amin(dim=2)
        farthest = scores.masked_fill(~negative, -torch.inf).amax(dim=2)
        both = positive.any(dim=2) & negative.any(dim=2)
        total = total + (farthest[both] - nearest[both]).clamp(min=0).sum() / count
    return total


def windows(alpha: float, beta: float) -> int:
    """M, how many windows of width alpha and stride beta -1..1 holds. InputError for none."""
    if (count := round((2 - alpha) / beta)) < 1:
        problem = f"no window of alpha {alpha} and beta {beta} fits -1..1"
        raise InputError(problem, remedy="give an alpha below 2 and a smaller beta")
    return count

"""The Kendall ranking loss of BCLS: candidates in the order of their relevance."""

from __future__ import annotations

import torch
from torch import Tensor

from capgrade.losses.base import Above0, Scores, batch_of, counted, graded_ways, nothing
from capgrade.losses.declared import declared
from capgrade.schemas.errors import InputError

TOLERANCE = 1e-6  # a pair's relevance to itself is 1 up to rounding


@declared("relevance")
def kendall(
    scores: Scores, relevance: Tensor | None = None, own: Tensor | None = None, known: Tensor | None = None, *,
    alpha: float = 0.2,
) -> Tensor:  # fmt: skip
    """sum_ijk 1[r_ij > r_ik + alpha] [S_ik - S_ij]+ over both directions (BCLS, eq. 5 and 17, no margin).

    j and k are candidates of known relevance. O(B C^2) time. Shapes and errors: see `capgrade.losses`.

    >>> float(kendall(torch.tensor([[0.9, 0.8], [0.1, 0.9]]), torch.eye(2)))
    0.0
    """
    batch = batch_of("kendall", scores, relevance, own, known)
    total = nothing(batch)
    for way in graded_ways(batch):
        for s, r, ok in zip(way.scores, way.relevance, way.known, strict=True):  # one query at a time: [N, N]
            above = (r[:, None] > r[None, :] + alpha) & ok[:, None] & ok[None, :]
            total = total + counted((s[None, :] - s[:, None]).clamp(min=0) * above, above).sum()
    return total


def windows(alpha: float, beta: float) -> int:
    """M, how many windows of width alpha and stride beta -1..1 holds. InputError for none."""
    if (count := round((2 - alpha) / beta)) < 1:
        problem = f"no window of alpha {alpha} and beta {beta} fits -1..1"
        raise InputError(problem, remedy="give an alpha below 2 and a smaller beta")
    return count


@declared("relevance", windows, (-1.0, 1.0))
def kendall_windows(
    scores: Scores, relevance: Tensor | None = None, own: Tensor | None = None, known: Tensor | None = None, *,
    alpha: Above0 = 0.2, beta: Above0 = 0.1,
) -> Tensor:  # fmt: skip
    """SW-HS (BCLS, eq. 19 and 20): 1/M sum over windows m and queries i of [max_neg S - min_pos S]+, both directions.

    Window m spans lo..lo + alpha with lo = -1 + m beta, m = 1..M, M = (2 - alpha) / beta; positives have
    relevance >= lo + alpha, negatives <= lo. The paper draws the windows and does not write their bounds; these give
    its M = 18 (formulas of the docs). A window without either adds nothing. For relevance in -1..1.
    Shapes and errors: see `capgrade.losses`.

    >>> round(float(kendall_windows(torch.tensor([[0.5, 0.8], [0.1, 0.9]]), torch.eye(2))), 4)
    0.15
    """
    batch = batch_of("kendall_windows", scores, relevance, own, known)
    count, total = windows(alpha, beta), nothing(batch)
    low = -1 + beta * torch.arange(1, count + 1, device=batch.scores.device)
    for way in graded_ways(batch):
        s, r = way.scores[None], way.relevance[None]  # windows before queries: [M, P, N]
        positive = (r >= low[:, None, None] + alpha - TOLERANCE) & way.known
        negative = (r <= low[:, None, None] + TOLERANCE) & way.known
        nearest = s.masked_fill(~positive, torch.inf).amin(dim=2)
        farthest = s.masked_fill(~negative, -torch.inf).amax(dim=2)
        both = positive.any(dim=2) & negative.any(dim=2)
        total = total + counted((farthest[both] - nearest[both]).clamp(min=0)).sum() / count
    return total

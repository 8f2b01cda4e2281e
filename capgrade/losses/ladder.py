"""The ladder loss (Zhou et al. 2020): several rungs of relevance, each with its margin."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from capgrade.losses.base import Scores, batch_of, counted, graded_ways, nothing
from capgrade.losses.declared import declared
from capgrade.schemas.errors import InputError


def check_rungs(thresholds: Sequence[float], margins: Sequence[float], weights: Sequence[float]) -> None:
    """InputError unless there is a margin and a weight for each rung: one more than thresholds."""
    if not len(thresholds) + 1 == len(margins) == len(weights):
        problem = f"loss 'ladder' has {len(thresholds)} thresholds, {len(margins)} margins, {len(weights)} weights"
        raise InputError(problem, remedy="give one margin and one weight more than thresholds")


@declared("relevance", check_rungs)
def ladder(
    scores: Scores, relevance: Tensor | None = None, own: Tensor | None = None, known: Tensor | None = None, *,
    thresholds: Sequence[float] = (0.63,), margins: Sequence[float] = (0.2, 0.01),
    weights: Sequence[float] = (1.0, 0.25),
) -> Tensor:  # fmt: skip
    """sum over queries i and rungs l of weight_l [margin_l + max_{below l} S - min_{above l} S]+, both directions.

    Rung 0 has only the pair itself above it; rung l has candidates of relevance >= thresholds[l - 1] above, the pair
    too, and those of less below. Rungs one side of which is empty add nothing; unknown relevance is on neither side.
    Hardest pairs as CVSE++ takes them (eq. 6 and 7); its relevance is a BERT score learnt for the purpose.
    One margin and one weight more than thresholds. Shapes and errors: see `capgrade.losses`.

    >>> round(float(ladder(torch.tensor([[0.9, 0.8], [0.1, 0.9]]), torch.eye(2))), 4)
    0.2
    """
    batch = batch_of("ladder", scores, relevance, own, known)
    total = nothing(batch)
    for way in graded_ways(batch):
        itself, seen = way.itself, way.known
        rungs = [itself, *((way.relevance >= threshold) & seen | itself for threshold in thresholds)]
        for above, margin, weight in zip(rungs, margins, weights, strict=True):
            below = seen & ~above
            rows = below.any(dim=1)
            worst = way.scores.masked_fill(~below, -torch.inf).amax(dim=1)[rows]
            best = way.scores.masked_fill(~above, torch.inf).amin(dim=1)[rows]
            total = total + weight * counted((margin + worst - best).clamp(min=0)).sum()
    return total

"""InfoNCE, today's baseline: a softmax over the batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from capgrade.trainer.losses.base import Above0, ScoredBatch, Way, both_ways, graded_ways, nothing


def info_nce(
    batch: ScoredBatch,
    *,
    temperature: Above0 = 0.05,
    targets: Literal["own", "relevance"] = "own",
    softness: Above0 = 0.1,
) -> Tensor:
    """Mean cross-entropy of softmax(S / temperature) in both directions (CLIP).

    own: the pair itself is right, everything else wrong. relevance: the target is softmax(r / softness) over
    candidates of known relevance, and the softmax of scores is over these too (SoftCLIP's idea).
    """
    total = nothing(batch)
    for way, target, seen in _own(batch) if targets == "own" else _soft(batch, softness):
        log = (way.scores / temperature).masked_fill(~seen, -torch.inf).log_softmax(dim=1)
        total = total - (target * log.masked_fill(~seen, 0)).sum(dim=1).mean()
    return total / 2


def _own(batch: ScoredBatch) -> Iterator[tuple[Way, Tensor, Tensor]]:
    for way in both_ways(batch):
        yield way, way.itself.float(), torch.ones_like(way.own)


def _soft(batch: ScoredBatch, softness: float) -> Iterator[tuple[Way, Tensor, Tensor]]:
    for way, relevance, known in graded_ways(batch):
        seen = known | way.itself
        yield way, (relevance.float() / softness).masked_fill(~seen, -torch.inf).softmax(dim=1), seen

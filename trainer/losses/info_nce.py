"""InfoNCE, today's baseline: a softmax over the batch."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from capgrade.trainer.losses.base import Above0, ScoredBatch, asked, both_ways


def info_nce(
    batch: ScoredBatch,
    *,
    temperature: Above0 = 0.05,
    targets: Literal["own", "relevance"] = "own",
    softness: Above0 = 0.1,
) -> Tensor:
    """Mean cross-entropy of softmax(S / temperature) in both directions (CLIP).

    own: the pair itself is right, everything else wrong. relevance: the target is softmax(r / softness) over
    candidates of known relevance, and the softmax of scores is over these too.
    """
    if targets == "own":
        known = torch.ones_like(batch.own)
        wanted = [torch.eye(len(batch.scores), device=batch.scores.device)] * 2
    else:
        relevance, known = asked(batch)
        known = known | torch.eye(len(known), dtype=torch.bool, device=known.device)
        wanted = [
            (r.float() / softness).masked_fill(~seen, -torch.inf).softmax(dim=1)
            for r, seen in ((relevance, known), (relevance.T, known.T))
        ]
    total = batch.scores.new_zeros((), dtype=torch.float32)
    for way, seen, target in zip(both_ways(batch), (known, known.T), wanted, strict=True):
        log = (way.scores.float() / temperature).masked_fill(~seen, -torch.inf).log_softmax(dim=1)
        total = total - (target * log.masked_fill(~seen, 0)).sum(dim=1).mean()
    return total / 2

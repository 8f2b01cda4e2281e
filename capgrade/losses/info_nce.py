"""InfoNCE, today's baseline: a softmax over the batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor

from capgrade.losses.base import (
    Above0,
    ScoredBatch,
    Scores,
    Way,
    batch_of,
    both_ways,
    graded_ways,
    nothing,
)
from capgrade.losses.declared import declared
from capgrade.schemas.errors import InputError

TEMPERATURE, SOFTNESS = 0.05, 0.1


@declared("relevance")
def soft_info_nce(
    scores: Scores, relevance: Tensor | None = None, own: Tensor | None = None, known: Tensor | None = None, *,
    temperature: Above0 | Tensor = TEMPERATURE, softness: Above0 = SOFTNESS,
) -> Tensor:  # fmt: skip
    """-mean_i sum_j q_ij log softmax_j(S_ij / temperature), q_i = softmax(r_i / softness), in both directions.

    Soft-target InfoNCE (SoftCLIP's idea, Gao et al. 2023, with graded relevance for its self-similarity): targets have
    a temperature of their own, and both softmaxes are over what is known and the pair; `temperature` may be a tensor
    that is learned. Shapes and errors: see `capgrade.losses`.

    >>> relevance = torch.tensor([[1.0, 0.5], [0.2, 1.0]])
    >>> worse, better = (float(soft_info_nce(s, relevance, temperature=1.0)) for s in (relevance.flip(0), relevance))
    >>> better < worse
    True
    """
    batch = batch_of("soft_info_nce", scores, relevance, own, known)
    ways = []
    for way in graded_ways(batch):
        seen = way.known | way.itself
        ways.append((way, (way.relevance.float() / softness).masked_fill(~seen, -torch.inf).softmax(dim=1), seen))
    return _cross_entropy(batch, ways, temperature)


@declared("relevance")
def info_nce(
    scores: Scores, own: Tensor | None = None, relevance: Tensor | None = None, known: Tensor | None = None, *,
    temperature: Above0 | Tensor = TEMPERATURE, targets: Literal["own", "relevance"] = "own",
    softness: Above0 = SOFTNESS,
) -> Tensor:  # fmt: skip
    """Mean cross-entropy of softmax(S / temperature) in both directions (CLIP).

    targets: own (the pair itself is right, everything else wrong; `own` only says which cells are pairs where B != C)
    or relevance (`soft_info_nce`, whose `softness` it is). `temperature` may be a tensor that is learned. Shapes and
    errors: see `capgrade.losses`.

    >>> round(float(info_nce(torch.zeros(4, 4))), 4) == round(torch.tensor(4.0).log().item(), 4)
    True
    """
    if targets == "relevance":
        return soft_info_nce(scores, relevance, own, known, temperature=temperature, softness=softness)
    if relevance is not None or known is not None:
        problem = "loss 'info_nce' of own targets takes no relevance"
        raise InputError(problem, remedy="give targets='relevance', or leave relevance and known out")
    batch = batch_of("info_nce", scores, own=own)
    ways = ((way, way.itself.float(), torch.ones_like(way.own)) for way in both_ways(batch))
    return _cross_entropy(batch, ways, temperature)


def _cross_entropy(
    batch: ScoredBatch, ways: Iterable[tuple[Way, Tensor, Tensor]], temperature: float | Tensor
) -> Tensor:
    """Of each way's target, [P, N], over what is seen, bool [P, N]."""
    total = nothing(batch)
    for way, target, seen in ways:
        log = (way.scores / temperature).masked_fill(~seen, -torch.inf).log_softmax(dim=1)
        total = total - (target * log.masked_fill(~seen, 0)).sum(dim=1).mean()
    return total / 2

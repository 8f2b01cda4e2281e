"""Contrastive losses: InfoNCE, a softmax over the batch, and the sigmoid, each cell a yes-or-no
question; both with graded answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from capgrade.losses.base import (
    Above0,
    Direction,
    ScoredBatch,
    ScoreMatrix,
    batch_of,
    both_directions,
    require_tensors,
    zero_of,
)
from capgrade.losses.declared import declared
from capgrade.schemas.block import Finite
from capgrade.schemas.errors import InputError

TEMPERATURE, SOFTNESS = 0.05, 0.1


@declared("relevance", divides=True)
def soft_info_nce(
    scores: ScoreMatrix,
    relevance: Tensor | None = None,
    own: Tensor | None = None,
    known: Tensor | None = None,
    *,
    temperature: Above0 | Tensor = TEMPERATURE,
    softness: Above0 = SOFTNESS,
) -> Tensor:
    """-mean_i sum_j q_ij log softmax_j(S_ij / temperature), q_i = softmax(r_i / softness), in both
    directions.

    Soft-target InfoNCE (SoftCLIP's idea, Gao et al. 2023, with graded relevance for its
    self-similarity): targets have a temperature of their own, and both softmaxes are over what is
    known and the pair; `temperature` may be a tensor that is learned. Shapes and errors: see
    `capgrade.losses`.

    >>> relevance = torch.tensor([[1.0, 0.5], [0.2, 1.0]])
    >>> worse, better = (float(soft_info_nce(s, relevance, temperature=1.0)) for s in
    ...     (relevance.flip(0), relevance))
    >>> better < worse
    True
    """
    batch = batch_of("soft_info_nce", scores, relevance, own, known)
    targets = []
    for direction in both_directions(batch, "relevance"):
        known = direction.known | direction.itself
        target = (direction.relevance.float() / softness).masked_fill(~known, -torch.inf)
        targets.append((direction, target.softmax(dim=1), known))
    return _cross_entropy(batch, targets, temperature)


@declared("relevance", divides=True)
def info_nce(
    scores: ScoreMatrix,
    own: Tensor | None = None,
    relevance: Tensor | None = None,
    known: Tensor | None = None,
    *,
    temperature: Above0 | Tensor = TEMPERATURE,
    targets: Literal["own", "relevance"] = "own",
    softness: Above0 = SOFTNESS,
    mask_above: Finite | None = None,
) -> Tensor:
    """Mean cross-entropy of softmax(S / temperature) in both directions (CLIP).

    targets: own (the pair itself is right, everything else wrong; `own` only says which cells are
    pairs where B != C) or relevance (`soft_info_nce`, whose `softness` it is). With `mask_above`,
    of own targets, a cell beside the pair is no negative where its relevance is above that: it is
    left out of the softmax. `temperature` may be a tensor that is learned. Shapes and errors: see
    `capgrade.losses`.

    >>> round(float(info_nce(torch.zeros(4, 4))), 4) == round(torch.tensor(4.0).log().item(), 4)
    True
    """
    if targets == "relevance":
        if mask_above is not None:
            problem = "mask_above of loss 'info_nce' is of own targets"
            raise InputError(problem, remedy="leave mask_above or targets out")
        return soft_info_nce(
            scores, relevance, own, known, temperature=temperature, softness=softness
        )
    if mask_above is not None:
        batch = batch_of("info_nce", scores, relevance, own, known)
        masked = [
            (
                direction,
                direction.itself.float(),
                direction.itself | ~(direction.known & (direction.relevance > mask_above)),
            )
            for direction in both_directions(batch, "relevance")
        ]
        return _cross_entropy(batch, masked, temperature)
    if relevance is not None or known is not None:
        problem = "loss 'info_nce' of own targets takes no relevance"
        remedy = "give targets='relevance' or mask_above, or leave relevance and known out"
        raise InputError(problem, remedy=remedy)
    batch = batch_of("info_nce", scores, own=own)
    own_alone = [
        (direction, direction.itself.float(), torch.ones_like(direction.own))
        for direction in both_directions(batch)
    ]
    return _cross_entropy(batch, own_alone, temperature)


def _cross_entropy(
    batch: ScoredBatch,
    targets: Iterable[tuple[Direction, Tensor, Tensor]],
    temperature: float | Tensor,
) -> Tensor:
    """Mean over directions, each with its targets, [P, N], and what is known, bool [P, N]."""
    total = zero_of(batch)
    for direction, target, known in targets:
        log = (direction.scores / temperature).masked_fill(~known, -torch.inf).log_softmax(dim=1)
        # A score may be -inf, and 0 times -inf would be NaN.
        total = total - (target * log.masked_fill(target == 0, 0)).sum(dim=1).mean()
    return total / 2


def _check_range(low: float, high: float, **_: object) -> None:
    """InputError for a range that does not rise."""
    if high <= low:
        raise InputError(
            f"loss 'sigmoid' has low {low:g} and high {high:g}", remedy="give a high above low"
        )


@declared("relevance", _check_range, divides=True)
def sigmoid(
    scores: ScoreMatrix,
    relevance: Tensor | None = None,
    own: Tensor | None = None,
    known: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    temperature: Above0 | Tensor = 0.1,
    bias: Finite | Tensor = -10.0,
    targets: Literal["own", "relevance"] = "relevance",
    low: Finite = 0.0,
    high: Finite = 1.0,
) -> Tensor:
    """-1/B sum_ij y_ij log s(x_ij) + (1 - y_ij) log s(-x_ij), x = S / temperature + bias, s the
    sigmoid, B images.

    targets: own (y is 1 for own pairs, 0 for all others: SigLIP, Zhai et al. 2023, eq. of section
    3.2 and algorithm 1, whose temperature and bias these are at the start) or relevance (y = (r -
    low) / (high - low), between 0 and 1, and 1 for own pairs; cells of unknown relevance are left
    out, the others count their weight). Tensors without `relevance` have own targets. Temperature
    and bias may be tensors that are learned. Shapes and errors: see `capgrade.losses`.

    >>> round(float(sigmoid(torch.zeros(2, 2), temperature=1.0, bias=0.0)), 4)
    1.3863
    """
    batch = batch_of("sigmoid", scores, relevance, own, known, weights, counts=True)
    target, counted = batch.own.float(), torch.ones_like(batch.own)
    if not isinstance(scores, ScoredBatch) and relevance is None:
        targets = "own"
    if targets == "relevance":
        (labels,) = require_tensors(batch, "relevance")
        graded = ((labels.float() - low) / (high - low)).clamp(0, 1)
        target = torch.where(batch.own, torch.ones_like(graded), graded)
        counted = counted if batch.known is None else batch.known | batch.own
    x = batch.scores.float() / temperature + bias
    cells = target * logsigmoid(x) + (1 - target) * logsigmoid(-x)
    if targets == "relevance" and batch.weights is not None:
        cells = cells * batch.weights.float().where(~batch.own, 1)
    return zero_of(batch) - cells.masked_fill(~counted, 0).sum() / len(x)

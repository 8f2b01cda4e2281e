"""The sigmoid loss, every cell of a batch a yes-or-no question of its own, with graded answers."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from capgrade.losses.base import Above0, Finite, ScoredBatch, Scores, batch_of, nothing, required
from capgrade.losses.declared import declared
from capgrade.schemas.errors import InputError


@declared("relevance")
def sigmoid(
    scores: Scores, relevance: Tensor | None = None, own: Tensor | None = None, known: Tensor | None = None,
    weights: Tensor | None = None, *, temperature: Above0 | Tensor = 0.1, bias: Finite | Tensor = -10.0,
    targets: Literal["own", "relevance"] = "relevance", low: Finite = 0.0, high: Finite = 1.0,
) -> Tensor:  # fmt: skip
    """-1/B sum_ij y_ij log s(x_ij) + (1 - y_ij) log s(-x_ij), x = S / temperature + bias, s the sigmoid, B images.

    targets: own (y is 1 for own pairs, 0 for all others: SigLIP, Zhai et al. 2023, eq. of section 3.2 and algorithm 1,
    whose temperature and bias these are at the start) or relevance (y = (r - low) / (high - low), between 0 and 1, and
    1 for own pairs; cells of unknown relevance are left out, the others count their weight). Tensors without
    `relevance` have own targets. Temperature and bias may be tensors that are learned. Shapes and errors: see
    `capgrade.losses`.

    >>> round(float(sigmoid(torch.zeros(2, 2), temperature=1.0, bias=0.0)), 4)
    1.3863
    """
    batch = batch_of("sigmoid", scores, relevance, own, known, weights)
    if high <= low:
        raise InputError(f"loss 'sigmoid' has low {low:g} and high {high:g}", remedy="give a high above low")
    wanted, seen = batch.own.float(), torch.ones_like(batch.own)
    if not isinstance(scores, ScoredBatch) and relevance is None:
        targets = "own"
    if targets == "relevance":
        (given,) = required(batch, "relevance")
        graded = ((given.float() - low) / (high - low)).clamp(0, 1)
        wanted = torch.where(batch.own, torch.ones_like(graded), graded)
        seen = seen if batch.known is None else batch.known | batch.own
    x = batch.scores.float() / temperature + bias
    cells = wanted * logsigmoid(x) + (1 - wanted) * logsigmoid(-x)
    if targets == "relevance" and batch.weights is not None:
        cells = cells * batch.weights.float().where(~batch.own, 1)
    return nothing(batch) - cells.masked_fill(~seen, 0).sum() / len(x)

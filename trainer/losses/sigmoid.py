"""The sigmoid loss, every cell of a batch a yes-or-no question of its own, with graded answers."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import logsigmoid

from capgrade.schemas.errors import InputError
from capgrade.trainer.losses.base import Above0, ScoredBatch, required

Finite = Annotated[float, Field(allow_inf_nan=False)]


def sigmoid(
    batch: ScoredBatch,
    *,
    temperature: Above0 = 0.1,
    bias: Finite = -10.0,
    targets: Literal["own", "relevance"] = "relevance",
    low: Finite = 0.0,
    high: Finite = 1.0,
) -> Tensor:
    """-1/B sum_ij y_ij log s(x_ij) + (1 - y_ij) log s(-x_ij), x = S / temperature + bias, s the sigmoid, B images.

    own: y is 1 for own pairs, 0 for all others: SigLIP (Zhai et al. 2023, eq. of section 3.2 and algorithm 1, whose
    temperature and bias these are at the start). relevance: y = (r - low) / (high - low), between 0 and 1, and 1 for
    own pairs; cells of unknown relevance are left out, the others count their weight.
    """
    if high <= low:
        raise InputError(f"loss 'sigmoid' has low {low:g} and high {high:g}", remedy="give a high above low")
    wanted, seen = batch.own.float(), torch.ones_like(batch.own)
    if targets == "relevance":
        (relevance,) = required(batch, "relevance")
        graded = ((relevance.float() - low) / (high - low)).clamp(0, 1)
        wanted = torch.where(batch.own, torch.ones_like(graded), graded)
        seen = seen if batch.known is None else batch.known | batch.own
    x = batch.scores.float() / temperature + bias
    cells = wanted * logsigmoid(x) + (1 - wanted) * logsigmoid(-x)
    if targets == "relevance" and batch.weights is not None:
        cells = cells * batch.weights.float().where(~batch.own, 1)
    return -cells.masked_fill(~seen, 0).sum() / len(x)

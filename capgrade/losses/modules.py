"""Losses as modules: options are kept, a temperature and a bias learned."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from capgrade.losses.base import Scores
from capgrade.losses.declared import DEFAULTS, checked
from capgrade.losses.info_nce import SOFTNESS, TEMPERATURE, info_nce, soft_info_nce
from capgrade.losses.sam import sam
from capgrade.losses.sigmoid import sigmoid
from capgrade.schemas.errors import InputError


class Sam(torch.nn.Module):
    """`sam` with its options kept: `Sam(tau=3.0)(scores, relevance, own=None, known=None)`.

    >>> Sam(tau=1.0)(torch.eye(2), torch.eye(2)).shape
    torch.Size([])
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        checked({"name": "sam", **options})
        self.options = options

    def forward(
        self, scores: Scores, relevance: Tensor, own: Tensor | None = None, known: Tensor | None = None
    ) -> Tensor:
        return sam(scores, relevance, own, known, **self.options)


class _Scaled(torch.nn.Module):
    """A temperature above 0, learned as its logarithm unless `learn` is False."""

    def __init__(self, temperature: float, learn: bool) -> None:
        super().__init__()
        if not temperature > 0:
            raise InputError(f"temperature {temperature:g}", remedy="give one above 0, such as 0.05")
        self.log_temperature = torch.nn.Parameter(torch.tensor(float(temperature)).log(), requires_grad=learn)

    @property
    def temperature(self) -> Tensor:
        return self.log_temperature.exp()


class InfoNCE(_Scaled):
    """`info_nce` with a temperature that is learned: `InfoNCE(temperature=0.07)(scores, own=None)`.

    >>> [name for name, _ in InfoNCE().named_parameters()]
    ['log_temperature']
    """

    def __init__(self, temperature: float = TEMPERATURE, *, learn: bool = True) -> None:
        super().__init__(temperature, learn)

    def forward(self, scores: Scores, own: Tensor | None = None) -> Tensor:
        return info_nce(scores, own, temperature=self.temperature)


class SoftInfoNCE(_Scaled):
    """`soft_info_nce` with a temperature that is learned; the targets' `softness` is not.

    >>> SoftInfoNCE(softness=0.2)(torch.eye(2), torch.eye(2)).requires_grad
    True
    """

    def __init__(self, temperature: float = TEMPERATURE, *, softness: float = SOFTNESS, learn: bool = True) -> None:
        super().__init__(temperature, learn)
        self.softness = float(checked({"name": "soft_info_nce", "softness": softness})["softness"])

    def forward(
        self, scores: Scores, relevance: Tensor, own: Tensor | None = None, known: Tensor | None = None
    ) -> Tensor:
        return soft_info_nce(scores, relevance, own, known, temperature=self.temperature, softness=self.softness)


class Sigmoid(_Scaled):
    """`sigmoid` with a temperature and a bias that are learned, as SigLIP has them.

    >>> sorted(name for name, _ in Sigmoid().named_parameters())
    ['bias', 'log_temperature']
    """

    def __init__(
        self, temperature: float = DEFAULTS["sigmoid"]["temperature"], bias: float = DEFAULTS["sigmoid"]["bias"], *,
        low: float = DEFAULTS["sigmoid"]["low"], high: float = DEFAULTS["sigmoid"]["high"], learn: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(temperature, learn)
        self.bias = torch.nn.Parameter(torch.tensor(float(bias)), requires_grad=learn)
        self.low, self.high = low, high

    def forward(
        self, scores: Scores, relevance: Tensor | None = None, own: Tensor | None = None,
        known: Tensor | None = None, weights: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        options: dict[str, Any] = {"low": self.low, "high": self.high}
        return sigmoid(scores, relevance, own, known, weights, temperature=self.temperature, bias=self.bias, **options)

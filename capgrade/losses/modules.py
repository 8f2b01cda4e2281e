"""Losses as modules: options are kept, a temperature and a bias learned."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from capgrade.losses.base import Scores
from capgrade.losses.declared import DEFAULTS, LOSSES, checked
from capgrade.schemas.errors import InputError


class LossModule(torch.nn.Module):
    """A loss with its options kept: those of `LEARNED` as parameters, unless `learn` is False, a temperature as its
    logarithm. Options, given by name, and arguments are those of the function, InputError too."""

    NAME: ClassVar[str]
    LEARNED: ClassVar[tuple[str, ...]] = ("temperature",)

    def __init__(self, *unnamed: Any, **options: Any) -> None:
        super().__init__()
        if unnamed:
            problem = f"{type(self).__name__}({unnamed[0]!r}): an option without its name"
            raise InputError(problem, remedy=f"write {next(iter(DEFAULTS[self.NAME]))}=...")
        learn = options.pop("learn", True) if self.LEARNED else False
        self.options = {**DEFAULTS[self.NAME], **checked(self.NAME, options)}
        start = {name: torch.tensor(float(self.options.pop(name))) for name in self.LEARNED}
        if "temperature" in start:
            self.log_temperature = torch.nn.Parameter(start.pop("temperature").log(), requires_grad=learn)
        for name, value in start.items():
            self.register_parameter(name, torch.nn.Parameter(value, requires_grad=learn))

    @property
    def temperature(self) -> Tensor:
        return self.log_temperature.exp()

    def forward(self, scores: Scores, *labels: Tensor | None, **named: Tensor | None) -> Tensor:
        """What follows the scores is as the function has it: relevance, own, known, ..."""
        learned = {name: getattr(self, name) for name in self.LEARNED}
        return LOSSES[self.NAME].function(scores, *labels, **named, **self.options, **learned)


class Sam(LossModule):
    """`sam`, nothing learned: `Sam(tau=3.0)(scores, relevance, own=None, known=None)`.

    >>> Sam(tau=1.0)(torch.eye(2), torch.eye(2)).shape
    torch.Size([])
    """

    NAME, LEARNED = "sam", ()


class InfoNCE(LossModule):
    """`info_nce` with a temperature that is learned: `InfoNCE(temperature=0.07)(scores, own=None)`.

    >>> [name for name, _ in InfoNCE().named_parameters()]
    ['log_temperature']
    """

    NAME = "info_nce"


class SoftInfoNCE(LossModule):
    """`soft_info_nce` with a temperature that is learned; the targets' `softness` is not.

    >>> SoftInfoNCE(softness=0.2)(torch.eye(2), torch.eye(2)).requires_grad
    True
    """

    NAME = "soft_info_nce"


class Sigmoid(LossModule):
    """`sigmoid` with a temperature and a bias that are learned, as SigLIP has them.

    >>> sorted(name for name, _ in Sigmoid().named_parameters())
    ['bias', 'log_temperature']
    """

    NAME, LEARNED = "sigmoid", ("temperature", "bias")

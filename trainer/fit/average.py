"""Averaged weights: validated and kept in place of the last ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """Of every parameter w the mean a <- decay a + (1 - decay) w after each step; a starts as w. Without a decay there
    is none. Running statistics are not averaged: the last ones stand beside the mean."""

    def __init__(self, model: nn.Module, decay: float | None) -> None:
        self.model, self.decay = model, decay
        self.values = {} if decay is None else {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self) -> None:
        """After a step."""
        if self.decay is not None:
            for name, parameter in self.model.named_parameters():
                self.values[name].lerp_(parameter, 1 - self.decay)

    @contextmanager
    @torch.no_grad()
    def in_place(self) -> Iterator[None]:
        """The model has the averaged weights while the block runs, then its own again."""
        own: dict[str, Tensor] = {}
        for name, parameter in self.model.named_parameters() if self.values else ():
            own[name] = parameter.detach().clone()
            parameter.copy_(self.values[name])
        try:
            yield
        finally:
            for name, parameter in self.model.named_parameters() if own else ():
                parameter.copy_(own[name])

    def load(self, values: dict[str, Tensor]) -> None:
        """The mean that a stopped run had reached."""
        for name, value in values.items():
            self.values[name].copy_(value)

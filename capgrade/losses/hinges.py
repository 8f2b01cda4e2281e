"""How many hinges of a loss are active: where all are, the sizes of labels do not reach its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

_told: ContextVar[list[Tensor] | None] = ContextVar("told", default=None)


@contextmanager
def counting() -> Iterator[list[Tensor]]:
    """Inside, losses tell of their hinges: int64 [2] on the device, how many are active and how many there are."""
    told: list[Tensor] = []
    token = _told.set(told)
    try:
        yield told
    finally:
        _told.reset(token)


def counted(costs: Tensor, among: Tensor | None = None) -> Tensor:
    """The same costs, [..]+ of hinges; `among`, bool of their shape: which are one, the others being 0 (None: all)."""
    if (told := _told.get()) is not None:
        active = costs.detach().count_nonzero()
        number = torch.full_like(active, costs.numel()) if among is None else among.count_nonzero()
        told.append(torch.stack([active, number]))
    return costs

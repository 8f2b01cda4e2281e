"""How many hinges of a loss are active: where none is at 0, labels do not reach the gradient beyond their sign."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

_counts: ContextVar[list[tuple[Tensor, Tensor | int]] | None] = ContextVar("counts", default=None)


@contextmanager
def counting() -> Iterator[list[tuple[Tensor, Tensor | int]]]:
    """Inside, losses tell of their hinges: how many are active and how many there are, on the device."""
    found: list[tuple[Tensor, Tensor | int]] = []
    token = _counts.set(found)
    try:
        yield found
    finally:
        _counts.reset(token)


def counted(costs: Tensor, among: Tensor | None = None) -> Tensor:
    """The same costs, [..]+ of hinges; `among`, bool of their shape: which are one, the others being 0 (None: all)."""
    if (found := _counts.get()) is not None:
        number = costs.numel() if among is None else among.count_nonzero()
        found.append((costs.detach().count_nonzero(), number))
    return costs

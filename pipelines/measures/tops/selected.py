"""The captions of highest relevance from values on a device: selected there, so that only they leave it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

ROW = (1 << 32) - 1  # rows and their order in the lower half of a key


def select(chunks: Iterable[Tensor], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows int64 and values float32 [images, k] of the best columns of chunks float32 [images, captions], which follow
    one another; in falling order, equal values by rising row. `k` is at most the number of columns."""
    best, first = None, 0
    for values in chunks:
        keys = _keys(values, first)
        both = keys if best is None else torch.cat([best, keys], dim=1)
        best = both.topk(min(k, both.shape[1]), dim=1).values
        first += values.shape[1]
    assert best is not None
    return ROW - (best & ROW).cpu().numpy(), _values(best).cpu().numpy()


def _keys(values: Tensor, first: int) -> Tensor:
    """int64, of which the greater is the better: the order of a value's bits, then the earlier row. -0 counts as 0."""
    rows = torch.arange(first, first + values.shape[1], device=values.device)
    bits = (values + 0.0).contiguous().view(torch.int32)
    return (_rising(bits).long() << 32) | (ROW - rows)


def _values(keys: Tensor) -> Tensor:
    return _rising((keys >> 32).int()).view(torch.float32)


def _rising(bits: Tensor) -> Tensor:
    """Bits of floats as numbers in the floats' order, and back."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)

"""The captions of highest relevance from values on a device: selected there, so that only they leave it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from capgrade.schemas.bits import FACTORS, SHIFTS

HALF = (1 << 32) - 1


def select(
    chunks: Iterable[Tensor], k: int, images: np.ndarray, captions: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Rows int64 and values float32 [images, k] of the best columns of chunks float32 [images, captions], which follow
    one another; in falling order, equal values by the hashes uint64 of images and of captions (`Ties`). `k` is at most
    the number of columns. None where half of a hash, which is what is compared, does not tell which captions these are.
    """
    best, rows, first = None, None, 0
    for values in chunks:
        seeds, hashes = (torch.as_tensor(x.view(np.int64), device=values.device) for x in (images, captions))
        keys = _keys(values, seeds[:, None] + hashes[first : first + values.shape[1]])
        held = 0 if best is None else best.shape[1]
        both = keys if best is None else torch.cat([best, keys], dim=1)
        best, at = both.topk(min(k + 1, both.shape[1]), dim=1)  # one more tells whether the last one ties
        mine = at - held + first
        rows = mine if rows is None else torch.where(at < held, rows.gather(1, at.clamp(max=held - 1)), mine)
        first += values.shape[1]
    assert best is not None and rows is not None
    if (best[:, k - 1 : -1] == best[:, k:]).any():
        return None
    return rows[:, :k].cpu().numpy(), _values(best[:, :k]).cpu().numpy()


def _keys(values: Tensor, seeds: Tensor) -> Tensor:
    """int64, of which the greater is the better: the order of a value's bits, then half of the hash. -0 counts as 0."""
    bits = (values + 0.0).contiguous().view(torch.int32)
    return (_rising(bits).long() << 32) | (HALF - _shifted(_mixed(seeds), 32))


def _mixed(x: Tensor) -> Tensor:
    """`schemas.bits.mix` of uint64 as int64, which multiplies alike."""
    for shift, factor in zip(SHIFTS, FACTORS, strict=False):
        x = (x ^ _shifted(x, shift)) * (factor - (1 << 64))
    return x ^ _shifted(x, SHIFTS[-1])


def _shifted(x: Tensor, by: int) -> Tensor:
    """To the right, with zeros on the left."""
    return (x >> by) & ((1 << 64 - by) - 1)


def _values(keys: Tensor) -> Tensor:
    return _rising((keys >> 32).int()).view(torch.float32)


def _rising(bits: Tensor) -> Tensor:
    """Bits of floats as numbers in the floats' order, and back."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)

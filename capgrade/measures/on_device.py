"""Measures on a GPU: blocks by torch, within 1e-5 of the CPU's kernels.

A measure's form stands beside it (`cider.device`, `rouge.device`, `sbert.device`,
`image_text.device`); here is what they share. The same fitted arrays go to the device once a
worker, and the same kernels fold an image's references. The device does the rest: the product, the
updates of postings, the steps of the subsequences. Other measures, and captions left out of their
own references, stay with the processor. A value does not depend on the block that it is in:
products have one shape, and what a device may add in any order are whole numbers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from capgrade.devices import device_of
from capgrade.measures.base import Fill, Fitted, OfReferences

_QUERIES, TARGETS = 512, 2048  # of a product
STEPS = 2.0**40  # of whole numbers, between 0 and 1
F = TypeVar("F", bound=OfReferences)


def on_device(fitted: Fitted, device: str) -> Fitted:
    """The measure with its blocks on `device`, "cuda" or "cuda:1".

    Itself for "cpu", and where it has no such form. InputError when there is no such device.
    """
    return fitted if device == "cpu" else fitted.on_device(device_of(device))


class OnDevice(Fitted, Generic[F]):
    """A fitted measure and a device. A subclass says how images' values are made there."""

    def __init__(self, fitted: F, device: torch.device) -> None:
        self.fitted: F = fitted
        self.device = device
        self.ref_ptr, self.refs, self.leave_out = fitted.ref_ptr, fitted.refs, fitted.leave_out

    @property
    def columns(self) -> int:
        return self.fitted.columns

    def filler(self, images: np.ndarray, start: int) -> Fill:
        values = self._values(images)

        def fill(first: int, last: int, out: np.ndarray) -> None:
            out[:, : last - first] = values(first, last).cpu().numpy()

        return fill

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        return self.fitted.pairs(images, captions)

    def own_left_out(self, images: np.ndarray) -> np.ndarray:
        return self.fitted.own_left_out(images)

    @abstractmethod
    def _values(self, images: np.ndarray) -> Callable[[int, int], Tensor]:
        """A function that scores caption rows first..last: float32 [images, captions]."""

    def _to_device(self, array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, device=self.device)


def product(queries: Tensor, targets: Tensor) -> Tensor:
    """float32 [queries, targets] from unit vectors, in tiles of one shape.

    The order in which a device sums, and so the last bits, may depend on the shape.
    """
    out = queries.new_empty(len(queries), len(targets))
    for row in range(0, len(queries), _QUERIES):
        tile_queries = _padded(queries[row : row + _QUERIES], _QUERIES)
        for column in range(0, len(targets), TARGETS):
            tile = out[row : row + _QUERIES, column : column + TARGETS]
            product = tile_queries @ _padded(targets[column : column + TARGETS], TARGETS).T
            tile.copy_(product[: tile.shape[0], : tile.shape[1]])
    return out


def _padded(vectors: Tensor, rows: int) -> Tensor:
    return torch.nn.functional.pad(vectors, (0, 0, 0, rows - len(vectors)))


def to_steps(values: Tensor) -> Tensor:
    """Values of 0 to a few thousand as int64 steps, whose sum is the same in any order."""
    return (values.double() * STEPS).round().long()

"""A bound on cosines by products in bfloat16, which processors with AMX make several times as fast as in float32.

Write ^ for rounded to bfloat16, e for the length of what rounding took. For a query x and a caption y,
x.y = x^.y^ + x^.(y - y^) + (x - x^).y <= x^.y^ + |x^| e(y) + e(x) |y|. Processors multiply bfloat16 exactly and add in
float32, so a sum of d terms errs by at most d 2**-24 / (1 - d 2**-24) |x^| |y^| (Higham 2002, 3.1), and its result once
more by 2**-8 of itself, when it is rounded to bfloat16.
"""

from __future__ import annotations

from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from capgrade.pipelines.measures.tops import sbert_kernel as kernel

if TYPE_CHECKING:
    from torch import Tensor

TILE = 4096  # captions multiplied at a time, at least
PRODUCTS = 320 * TILE  # at a time: they stay in the second-level cache; each time, threads start and end
CPU = Path("/proc/cpuinfo")


def has_amx(cpu: Path = CPU) -> bool:
    """Whether this processor multiplies matrices of bfloat16, as Linux tells, and torch makes use of it."""
    if not cpu.exists() or "amx_bf16" not in cpu.read_text(encoding="ascii", errors="replace"):
        return False
    try:
        import torch
    except ImportError:
        return False
    return torch.backends.mkldnn.is_available()


class Rounded(NamedTuple):
    """Captions in bfloat16."""

    captions: np.ndarray  # float32 [n_captions, d]
    rounded: Tensor  # bfloat16, the same
    error: float  # the largest length of what rounding took of a caption
    length: float  # of the longest caption

    def beside(self, queries: np.ndarray, start: np.ndarray) -> RoundedBeside:
        """The bounds of these images, queries float32 [n, d], those of an image from start[image] on."""
        asked, error, length = _rounded(queries)
        d = queries.shape[1]
        sums = (length + error) * (self.length + self.error)
        slack = (
            (length + error) * self.error + error * self.length + (2 * d * 2.0**-24 + 2.0**-8 * (1 + 2.0**-8)) * sums
        )
        return RoundedBeside(self, queries, asked, start, np.float32(slack * (1 + 2.0**-20)))


class RoundedBeside(NamedTuple):
    """As `sbert.Beside`."""

    all: Rounded
    queries: np.ndarray
    rounded: Tensor
    start: np.ndarray
    slack: np.float32  # that a product of what was rounded is below the cosine at most

    def bounds(self, threads: Executor) -> np.ndarray:
        """The product has torch's threads, not these."""
        import torch

        captions, tile = self.all.rounded, max(TILE, PRODUCTS // len(self.rounded))
        out = np.empty((len(self.start) - 1, len(captions)), np.float32)
        for at in range(0, len(captions), tile):
            products = self.rounded @ captions[at : at + tile].T
            kernel.fold_rounded(products.view(torch.uint16).numpy(), self.start, self.slack, out[:, at : at + tile])
        return out

    def multiplied(self, bounds: np.ndarray, gate: np.ndarray, ptr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows, values = np.empty(ptr[-1], np.int64), np.empty(ptr[-1], np.float32)
        kernel.rows_reaching(bounds, gate, ptr, rows)
        kernel.multiply_listed(self.queries, self.start, self.all.captions, ptr, rows, values)
        return rows, values


def round_captions(captions: np.ndarray) -> Rounded:
    """Captions float32 [n_captions, d]."""
    return Rounded(captions, *_rounded(captions))


def _rounded(vectors: np.ndarray) -> tuple[Tensor, float, float]:
    """In bfloat16; the largest length of what that took of one, and the length of the longest."""
    import torch

    out = torch.empty(vectors.shape, dtype=torch.bfloat16)
    errors, lengths = [0.0], [0.0]
    for at in range(0, len(vectors), TILE):
        some = torch.from_numpy(np.array(vectors[at : at + TILE]))
        out[at : at + TILE] = some
        taken = some.double() - out[at : at + TILE].double()
        errors.append(float(taken.norm(dim=1).max()))
        lengths.append(float(some.double().norm(dim=1).max()))
    return out, max(errors), max(lengths)

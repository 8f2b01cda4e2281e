"""A bound on cosines by products in bfloat16, which processors with AMX make several times as fast as in float32.

Write ^ for rounded to bfloat16, e for the length of what rounding took. For a query x and a caption y,
x.y = x^.y^ + x^.(y - y^) + (x - x^).y <= x^.y^ + |x^| e(y) + e(x) |y|. Processors multiply bfloat16 exactly and add in
float32, so a sum of d terms errs by at most d 2**-24 / (1 - d 2**-24) |x^| |y^| (Higham 2002, 3.1), and its result once
more by 2**-8 of itself, when it is rounded to bfloat16.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from capgrade.pipelines.measures.tops import sbert_kernel as kernel
from capgrade.pipelines.measures.tops.sbert_kernel import Candidates
from capgrade.pipelines.measures.tops.sbert_reaching import Hits, keys_below, reaching
from capgrade.schemas.threads import in_threads

if TYPE_CHECKING:
    from torch import Tensor

TILES = 1024, 4096  # captions multiplied at a time, at least and at most
PRODUCTS = 2**20  # at a time: they stay in the second-level cache
STEP = 4096  # captions rounded at a time
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

    @contextmanager
    def beside(self, queries: np.ndarray, start: np.ndarray) -> Iterator[RoundedBeside]:
        """The bounds of these images, queries float32 [n, d], those of an image from start[image] on."""
        import torch

        threads = torch.get_num_threads()
        asked, error, length = _rounded(queries)
        d = queries.shape[1]
        sums = (length + error) * (self.length + self.error)
        slack = (
            (length + error) * self.error + error * self.length + (2 * d * 2.0**-24 + 2.0**-8 * (1 + 2.0**-8)) * sums
        )
        try:
            yield RoundedBeside(self, queries, asked, start, np.float32(slack * (1 + 2.0**-20)))
        finally:
            torch.set_num_threads(threads)  # what new threads get, too


@dataclass(frozen=True)
class RoundedBeside:
    """As `sbert_walk.Beside`."""

    all: Rounded
    queries: np.ndarray
    rounded: Tensor
    start: np.ndarray
    above: np.float32
    _rooms: threading.local = field(default_factory=threading.local)

    @property
    def tile(self) -> int:
        return int(np.clip(PRODUCTS // len(self.rounded) // TILES[0] * TILES[0], *TILES))

    def reaching(self, first: int, last: int, gates: np.ndarray) -> Hits:
        import torch

        room = self._room()[:, : last - first]
        torch.mm(self.rounded, self.all.rounded[first:last].T, out=room)
        bits = room.view(torch.int16).numpy()
        return reaching(bits, self.start, keys_below(gates - np.float64(self.above), np.int16))

    def _room(self) -> Tensor:
        """A thread's memory for products, which it makes alone."""
        import torch

        if not hasattr(self._rooms, "products"):
            torch.set_num_threads(1)
            self._rooms.products = torch.empty((len(self.rounded), self.tile), dtype=torch.bfloat16)
        found: Tensor = self._rooms.products
        return found

    def multiply(self, found: Candidates, gates: np.ndarray) -> None:
        in_threads(kernel.multiply_rest, len(gates), self.queries, self.start, self.all.captions, found)


def round_captions(captions: np.ndarray) -> Rounded:
    """Captions float32 [n_captions, d]."""
    return Rounded(captions, *_rounded(captions))


def _rounded(vectors: np.ndarray) -> tuple[Tensor, float, float]:
    """In bfloat16; the largest length of what that took of one, and the length of the longest."""
    import torch

    out = torch.empty(vectors.shape, dtype=torch.bfloat16)
    errors, lengths = [0.0], [0.0]
    for at in range(0, len(vectors), STEP):
        some = torch.from_numpy(np.array(vectors[at : at + STEP]))
        out[at : at + STEP] = some
        taken = some.double() - out[at : at + STEP].double()
        errors.append(float(taken.norm(dim=1).max()))
        lengths.append(float(some.double().norm(dim=1).max()))
    return out, max(errors), max(lengths)

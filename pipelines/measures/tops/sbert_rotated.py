"""A bound on cosines by some of their coordinates.

Rotated to their principal axes, embeddings have most of their length in the first coordinates. A product of those, with
the norm of the rest as one coordinate more, is at least the cosine (Cauchy and Schwarz), and costs a quarter of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from capgrade.pipelines.measures.tops import sbert_kernel as kernel
from capgrade.pipelines.measures.tops.sbert_kernel import Candidates
from capgrade.pipelines.measures.tops.sbert_reaching import Hits, keys_below, reaching
from capgrade.schemas.threads import in_threads

SHORT = 95  # coordinates that the bound of all captions multiplies; with the norm of the rest 64
LONG = 190  # and that of those which it cannot rule out
SAMPLE = 16384  # captions that the axes are found on; any axes give the same tops
TILE = 1024  # captions multiplied at a time
STEP = 65536  # and rotated


class Rotated(NamedTuple):
    """Captions along orthogonal axes."""

    captions: np.ndarray  # float32 [n_captions, d]
    axes: np.ndarray  # float64 [d, d], columns by falling length of the captions along them
    short: np.ndarray  # float32 [n_captions, SHORT + 1]
    long: np.ndarray  # float32 [n_captions, LONG - SHORT + 1]: what comes after those

    @contextmanager
    def beside(self, queries: np.ndarray, start: np.ndarray) -> Iterator[RotatedBeside]:
        """The bounds of these images, queries float32 [n, d], those of an image from start[image] on."""
        short, long = rotated(queries, self.axes)
        yield RotatedBeside(kernel.Pair(queries, short, long, self.captions, self.short, self.long), start)


@dataclass(frozen=True)
class RotatedBeside:
    """As `sbert_walk.Beside`."""

    pair: kernel.Pair
    start: np.ndarray
    above: np.float32 = np.float32(0)
    tile: int = TILE
    _rooms: threading.local = field(default_factory=threading.local)

    def reaching(self, first: int, last: int, gates: np.ndarray) -> Hits:
        if not hasattr(self._rooms, "products"):
            self._rooms.products = np.empty((len(self.pair.short), TILE), np.float32)
        some = self.pair.captions_short[first:last]
        products = np.matmul(self.pair.short, some.T, out=self._rooms.products[:, : last - first])
        return reaching(products.view(np.int32), self.start, keys_below(gates, np.int32))

    def multiply(self, found: Candidates, gates: np.ndarray) -> None:
        """More coordinates first, then whole."""
        in_threads(kernel.multiply_rest_by_parts, len(gates), self.pair, self.start, gates, found)


def rotate(captions: np.ndarray) -> Rotated:
    """To the eigenvectors of the second moments of some captions, float32 [n_captions, d]."""
    some = captions[:: -(-len(captions) // SAMPLE)].astype(np.float64)
    axes = np.linalg.eigh(some.T @ some)[1][:, ::-1]
    short = np.empty((len(captions), SHORT + 1), np.float32)
    long = np.empty((len(captions), LONG - SHORT + 1), np.float32)
    for at in range(0, len(captions), STEP):
        short[at : at + STEP], long[at : at + STEP] = rotated(captions[at : at + STEP], axes)
    return Rotated(captions, np.ascontiguousarray(axes), short, long)


def rotated(vectors: np.ndarray, axes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first SHORT coordinates along the axes and the norm of the others; those from there to LONG and the norm of
    the others: float32."""
    turned = vectors.astype(np.float64) @ axes
    parts = []
    for first, last in ((0, SHORT), (SHORT, LONG)):
        rest = np.sqrt((turned[:, last:] ** 2).sum(1, keepdims=True))
        parts.append(np.hstack([turned[:, first:last], rest]).astype(np.float32))
    return parts[0], parts[1]

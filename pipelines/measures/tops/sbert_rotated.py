"""A bound on cosines by some of their coordinates.

Rotated to their principal axes, embeddings have most of their length in the first coordinates. A product of those, with
the norm of the rest as one coordinate more, is at least the cosine (Cauchy and Schwarz), and costs a quarter of it.
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np

from capgrade.pipelines.measures.sbert import fold_products
from capgrade.pipelines.measures.tops import sbert_kernel as kernel

SHORT = 95  # coordinates that the bound of all captions multiplies; with the norm of the rest 64
LONG = 190  # and that of those which it cannot rule out
SAMPLE = 16384  # captions that the axes are found on; any axes give the same tops
STEP = 65536  # captions rotated at a time


class Rotated(NamedTuple):
    """Captions along orthogonal axes."""

    captions: np.ndarray  # float32 [n_captions, d]
    axes: np.ndarray  # float64 [d, d], columns by falling length of the captions along them
    short: np.ndarray  # float32 [n_captions, SHORT + 1]
    long: np.ndarray  # float32 [n_captions, LONG - SHORT + 1]: what comes after those

    def beside(self, queries: np.ndarray, start: np.ndarray) -> RotatedBeside:
        """The bounds of these images, queries float32 [n, d], those of an image from start[image] on."""
        short, long = rotated(queries, self.axes)
        return RotatedBeside(kernel.Pair(queries, short, long, self.captions, self.short, self.long), start)


class RotatedBeside(NamedTuple):
    """As `sbert.Beside`."""

    pair: kernel.Pair
    start: np.ndarray

    def bounds(self, threads: Executor) -> np.ndarray:
        out = np.empty((len(self.start) - 1, len(self.pair.captions)), np.float32)
        fold_products(self.pair.short, self.start, self.pair.captions_short, threads, out)
        return out

    def multiplied(self, bounds: np.ndarray, gate: np.ndarray, ptr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """More coordinates first, then whole."""
        rows, values = np.empty(ptr[-1], np.int64), np.empty(ptr[-1], np.float32)
        kernel.multiply_reaching(self.pair, self.start, bounds, gate, ptr, rows, values)
        return rows, values


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

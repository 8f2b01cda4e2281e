"""The captions that a bound cannot rule out, found tile by tile: bounds of all captions are never there at once.

Tiles are taken in rounds, each of three times as many as all before it. In a round the gates stand still, so that
threads take its tiles in any order; after it the captions of the highest bounds are multiplied, and the gates rise.
Tiles are taken in an order drawn once: captions that are like each other often stand together, and gates would rise
late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from itertools import repeat
from typing import NamedTuple, Protocol

import numpy as np

from capgrade.pipelines.measures.tops import sbert_kernel as kernel
from capgrade.pipelines.measures.tops.sbert_kernel import Candidates
from capgrade.pipelines.measures.tops.sbert_reaching import Hits, floats_of
from capgrade.schemas.threads import in_threads

GROWTH = 3  # tiles of a round for each of those before it
PARTS = 4  # of the first tile


class Beside(Protocol):
    """A bound of all captions for some images."""

    @property
    def tile(self) -> int:
        """Captions that are multiplied at a time."""
        ...

    @property
    def above(self) -> np.float32:
        """What a bound is above its product."""
        ...

    def reaching(self, first: int, last: int, gates: np.ndarray) -> Hits:
        """Captions first..last, as columns from 0, whose bounds reach the image's gate, float32 [images]: no cosine is
        above its bound, but for `kernel.slack`."""
        ...

    def multiply(self, found: Candidates, gates: np.ndarray) -> None:
        """Fill the values that are not there; what a longer bound rules out has -1."""
        ...


class Walked(NamedTuple):
    """What is left of all captions."""

    found: Candidates
    gates: np.ndarray  # float32 [images]
    pairs: np.ndarray  # int64 [images]: captions multiplied singly, those counted that are still to be


def walk(
    beside: Beside, queries: np.ndarray, start: np.ndarray, vectors: np.ndarray, k: int, threads: Executor
) -> Walked:
    """Every caption that may be among the `k` best of an image by its bound, with queries float32 [n, d], those of an
    image from start[image] on, and captions float32 [n_captions, d]."""
    images, n_captions = len(start) - 1, len(vectors)
    twice = 2 * kernel.slack(vectors.shape[1])
    gates, leads = np.full((2, images), -np.inf, np.float32)
    (pairs, multiplied), found = np.zeros((2, images), np.int64), _none(images)
    for firsts, lasts in rounds(n_captions, beside.tile):
        hits = threads.map(beside.reaching, firsts, lasts, repeat(gates))
        found = _joined(found, firsts, list(hits), beside.above)
        in_threads(kernel.multiply_leaders, images, queries, start, vectors, found, k, k + k // 2, leads, multiplied)
        pairs += multiplied
        gates = np.maximum(gates, leads - twice)
        found = _kept(found, gates)
    rest = np.isnan(found.values).astype(np.int64)
    return Walked(found, gates, pairs + np.diff(np.concatenate([[0], np.cumsum(rest)])[found.ptr]))


def rounds(n_captions: int, tile: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The first captions of what is taken together, and those behind the last; each caption once. A part of a tile
    comes first, as all of its captions are candidates."""
    firsts = np.random.default_rng(0).permutation(-(-n_captions // tile)) * tile
    parts, done = np.arange(firsts[0], min(firsts[0] + tile, n_captions), -(-tile // PARTS)), 1
    lasts = np.append(parts[1:], min(firsts[0] + tile, n_captions))
    yield parts[:1], lasts[:1]
    if len(parts) > 1:
        yield parts[1:], lasts[1:]
    while done < len(firsts):
        some = firsts[done : done + GROWTH * done]
        yield some, np.minimum(some + tile, n_captions)
        done += len(some)


def _none(images: int) -> Candidates:
    nothing = np.empty(0, np.float32)
    return Candidates(np.zeros(images + 1, np.int64), np.empty(0, np.int64), nothing, nothing)


def _joined(found: Candidates, firsts: np.ndarray, hits: Sequence[Hits], above: np.float32) -> Candidates:
    """With the hits of tiles whose first captions these are."""
    images, sizes = len(found.ptr) - 1, [len(one.image) for one in hits]
    image = np.concatenate([np.repeat(np.arange(images, dtype=np.int32), np.diff(found.ptr)), *(h.image for h in hits)])
    rows = np.concatenate([h.column for h in hits]) + np.repeat(firsts, sizes)
    bounds = floats_of(np.concatenate([h.key for h in hits])) + above
    order = np.argsort(image, kind="stable")
    columns = (
        np.concatenate([found.rows, rows]),
        np.concatenate([found.bounds, bounds]),
        np.concatenate([found.values, np.full(len(rows), np.nan, np.float32)]),
    )
    return Candidates(np.searchsorted(image[order], np.arange(images + 1)), *(column[order] for column in columns))


def _kept(found: Candidates, gates: np.ndarray) -> Candidates:
    """Without those below their image's gate."""
    image = np.repeat(np.arange(len(gates)), np.diff(found.ptr))
    kept = found.bounds >= gates[image]
    ptr = np.concatenate([[0], np.cumsum(np.bincount(image[kept], minlength=len(gates)))])
    return Candidates(ptr, *(column[kept] for column in found[1:]))

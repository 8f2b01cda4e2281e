"""The captions of highest relevance to each image: of all pairs, or by a measure's own search."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from capgrade.bits import Ties, sooner
from capgrade.kernels import in_threads, njit
from capgrade.measures.base import CHUNK, Fitted

BLOCK = 64  # captions compared together


class Tops(NamedTuple):
    """The best captions of each image, by falling value, equal ones by `Ties`."""

    rows: np.ndarray  # int64 [images, k]
    values: np.ndarray  # float32 [images, k]
    pairs: np.ndarray  # int64 [images]: captions whose whole value was computed


@runtime_checkable
class Searches(Protocol):
    """A fitted measure that finds its best captions itself, by an upper bound."""

    def tops(self, images: np.ndarray, k: int, ties: Ties) -> Tops:
        """The `k` captions of highest relevance to each image, as `every_pair` has them to the last bit."""
        ...


def find_tops(fitted: Fitted, images: np.ndarray, k: int, ties: Ties) -> Tops:
    """The `k` best of all captions, all of them where there are fewer. No pair is scored where `k` is 0."""
    if not k:
        none = np.empty((len(images), 0))
        return Tops(none.astype(np.int64), none.astype(np.float32), np.zeros(len(images), np.int64))
    if isinstance(fitted, Searches):
        return fitted.tops(images, k, ties)
    return every_pair(fitted, images, k, ties)


def every_pair(fitted: Fitted, images: np.ndarray, k: int, ties: Ties) -> Tops:
    """As `find_tops`, from the values of all pairs."""
    n_captions = len(ties.captions)
    room = min(k, n_captions)
    values, rows = np.empty((len(images), room), np.float32), np.empty((len(images), room), np.int64)
    sizes, found = np.zeros(len(images), np.int64), np.empty((len(images), CHUNK), np.float32)
    starts = range(0, n_captions, CHUNK)
    for at, _ in zip(starts, fitted.chunks(images, 0, n_captions, found), strict=True):
        some = found[:, : min(CHUNK, n_captions - at)]
        in_threads(_offer, len(images), some, at, values, rows, sizes, ties.images[images], ties.captions)
    return sorted_tops(images, rows, values, np.full(len(images), n_captions), k, ties)


def sorted_tops(
    images: np.ndarray, rows: np.ndarray, values: np.ndarray, pairs: np.ndarray, k: int, ties: Ties
) -> Tops:
    """The first `k` of captions in any order."""
    order = np.lexsort((rows, ties.of(images, rows), -values))[:, :k]
    return Tops(np.take_along_axis(rows, order, 1), np.take_along_axis(values, order, 1), pairs)


@njit(cache=True, inline="always")
def _better(value, row, other, other_row, image, captions):
    return value > other or (value == other and sooner(row, other_row, image, captions))


@njit(cache=True)
def push(value, row, values, rows, size, image, captions):
    """Offer a caption to a heap whose first is the worst: `values`, `rows` [room], of which `size` are used. Equal
    values rank by the hashes of the image and of all captions. The new size."""
    room = values.shape[0]
    if size < room:
        k = size
        while k and _better(values[(k - 1) // 2], rows[(k - 1) // 2], value, row, image, captions):
            values[k], rows[k] = values[(k - 1) // 2], rows[(k - 1) // 2]
            k = (k - 1) // 2
        values[k], rows[k] = value, row
        return size + 1
    if not _better(value, row, values[0], rows[0], image, captions):
        return size
    k = 0
    while 2 * k + 1 < room:
        child = 2 * k + 1
        if child + 1 < room:
            child += int(_better(values[child], rows[child], values[child + 1], rows[child + 1], image, captions))
        if not _better(value, row, values[child], rows[child], image, captions):
            break
        values[k], rows[k] = values[child], rows[child]
        k = child
    values[k], rows[k] = value, row
    return size


@njit(nogil=True, cache=True)
def _offer(begin, end, found, first, values, rows, sizes, images, captions):
    """Offer the captions from row `first` on, found float32 [images, captions], to the heaps values, rows [images,
    room] of images begin..end. Most are passed over by one comparison in vector code, before any heap is looked at."""
    for b in range(begin, end):
        one, room = found[b], values.shape[1]
        for at in range(0, one.shape[0], BLOCK):
            some = one[at : at + BLOCK]
            hits = np.uint8(sizes[b] < room)
            gate = values[b, 0] if sizes[b] == room else np.float32(-np.inf)
            for j in range(some.shape[0]):
                hits |= np.uint8(some[j] >= gate)
            if hits:
                for j in range(some.shape[0]):
                    if sizes[b] < room or some[j] >= values[b, 0]:
                        row = first + at + j
                        sizes[b] = push(some[j], row, values[b], rows[b], sizes[b], images[b], captions)

"""Samples of windows: of each window of each measure, the captions of the lowest keys.

How many captions a window holds is known before, and so is a limit that enough of their keys are below. So nearly all
pairs are passed by after one comparison of a word with the limits of their windows.
"""

from typing import NamedTuple

import numpy as np

from capgrade.kernels import in_threads, njit
from capgrade.pipelines.sampling.cells import Cells
from capgrade.pipelines.sampling.keys import ANY, LANES, TILE, WINDOWS, bound_of, key_of, limit_for, mark, word


@njit(cache=True)
def _number(m, w, together):
    """The key that window w of measure m draws by: windows that share one have no value in common."""
    return WINDOWS + m * together + w % together


@njit(cache=True)
def _fill_bounds(limits, first, behind, together, bounds):
    """What pairs of each cell of each measure are compared with, uint64 [words, measures, cells]: the highest limits of
    the cell's windows."""
    bounds[:] = 0
    for m in range(first.shape[0]):
        for c in range(first.shape[1]):
            for w in range(first[m, c], behind[m, c]):
                number = _number(m, w, together)
                bounds[number // LANES, m, c] |= bound_of(limits[m, w], number)


@njit(cache=True)
def _take(key, row, keys, rows, size, limit):
    """Put a caption into a sample, sorted by key; its new size and the limit that further keys have to be below."""
    at = min(size, keys.shape[0] - 1)
    while at > 0 and keys[at - 1] > key:
        keys[at], rows[at] = keys[at - 1], rows[at - 1]
        at -= 1
    keys[at], rows[at] = key, row
    size = min(size + 1, keys.shape[0])
    return size, keys[size - 1] if size == keys.shape[0] else limit


class Offered(NamedTuple):
    """What the windows of a block of images draw from."""

    listed: np.ndarray  # int64: the captions of each image, one image's behind the other's; none where it is all
    ptr: np.ndarray  # int64 [images + 1]: where those of each image begin
    cells: np.ndarray  # int16 [measures, ptr[-1]]: of their values
    members: np.ndarray  # int64 [images, measures, windows]: how many of them each window holds


@njit(cache=True)
def _draw_image(b, seed, caption_keys, offered, held, together, limits, keys, rows, sizes):
    cells, listed, first, behind = offered.cells, offered.listed, held.first, held.behind
    measures, start, stop = cells.shape[0], offered.ptr[b], offered.ptr[b + 1]
    words = _number(measures - 1, together - 1, together) // LANES + 1
    bounds = np.empty((words, measures, first.shape[1]), np.uint64)
    _fill_bounds(limits, first, behind, together, bounds)
    some, least, marks = np.empty(TILE, np.uint64), np.empty(TILE, np.uint64), np.empty(TILE, np.uint64)
    sizes[:] = 0
    for at in range(start, stop, TILE):
        last = min(TILE, stop - at)
        for j in range(last):
            some[j] = caption_keys[listed[at + j] if listed.shape[0] else at + j - start]
        marks[:] = 0
        for number in range(words):
            least[:] = 0
            for m in range(measures):
                if _number(m, 0, together) // LANES <= number <= _number(m, together - 1, together) // LANES:
                    mine, bound = cells[m, at : at + last], bounds[number, m]
                    for j in range(last):
                        least[j] |= bound[np.uint16(mine[j])]
            mark(seed, some[:last], number, least, marks)
        for j in range(last):
            if marks[j]:
                row = listed[at + j] if listed.shape[0] else at + j - start
                for m in range(measures):
                    for w in range(first[m, cells[m, at + j]], behind[m, cells[m, at + j]]):
                        number = _number(m, w, together)
                        key = key_of(word(seed + some[j], number // LANES), number)
                        if key < limits[m, w]:
                            taken = _take(key, row, keys[m, w], rows[m, w], sizes[m, w], limits[m, w])
                            sizes[m, w], limits[m, w] = taken


@njit(nogil=True, cache=True)
def _draw(begin, end, seeds, caption_keys, offered, held, together, rows, sizes):
    keys, limits = np.empty(rows.shape[1:], np.uint64), np.empty(sizes.shape[1:], np.uint64)
    for b in range(begin, end):
        members = offered.members[b]
        for m in range(limits.shape[0]):
            for w in range(limits.shape[1]):
                limits[m, w] = limit_for(rows.shape[3], members[m, w])
        while True:
            _draw_image(b, seeds[b], caption_keys, offered, held, together, limits, keys, rows[b], sizes[b])
            missing = False
            for m in range(limits.shape[0]):
                for w in range(limits.shape[1]):
                    missing |= sizes[b, m, w] < min(members[m, w], rows.shape[3])
            if not missing:
                break
            limits[:] = ANY  # too few keys were below them


def draw(
    seeds: np.ndarray, caption_keys: np.ndarray, offered: Offered, per_window: int, held: Cells
) -> tuple[np.ndarray, np.ndarray]:
    """The pairs that the windows' samples take, int64, image x captions + caption each, and the measure of each."""
    most = min(per_window, int(offered.members.max(initial=0)))  # no window has more
    rows, sizes = np.empty((*offered.members.shape, most), np.int64), np.zeros(offered.members.shape, np.int64)
    if most:
        in_threads(_draw, len(seeds), seeds, caption_keys, offered, held, held.together, rows, sizes)
    image, measure, window, place = np.nonzero(np.arange(most) < sizes[..., None])
    return image * len(caption_keys) + rows[image, measure, window, place], measure

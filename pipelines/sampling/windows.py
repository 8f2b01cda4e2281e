"""Samples of windows: of each window of each measure, the captions of the lowest keys."""

import numpy as np

from capgrade.kernels import in_threads, njit
from capgrade.pipelines.sampling.cells import Cells
from capgrade.pipelines.sampling.keys import TILE, WINDOW_KEYS, key_of, take

ANY = np.uint64(2**64 - 1)  # no key is above


@njit(cache=True)
def _draw_image(seed, caption_keys, listed, cells, windows, keys, rows, sizes):
    """The captions of an image's samples into `rows`, int64 [measures, windows, per window], and how many, `sizes`.

    The captions are all, or those `listed`; `cells` int16 [measures, captions] are of their values, `windows` as of
    `Cells`. Windows at one place share a key, as they have no value in common.
    """
    seeds, drawn, low = np.empty(TILE, np.uint64), np.empty(TILE, np.uint64), np.empty(TILE, np.int64)
    limits = np.empty(windows.shape[2], np.uint64)
    sizes[:] = 0
    for at in range(0, cells.shape[1], TILE):
        n = min(TILE, cells.shape[1] - at)
        for j in range(n):
            seeds[j] = seed + caption_keys[listed[at + j] if listed.shape[0] else at + j]
        for m in range(windows.shape[0]):
            mine = cells[m, at : at + n]
            for place in range(windows.shape[1]):
                for c in range(limits.shape[0]):  # the key that one of this cell has to be below
                    w = windows[m, place, c]
                    limits[c] = np.uint64(0) if w < 0 else ANY if sizes[m, w] < keys.shape[2] else keys[m, w, 0]
                number = WINDOW_KEYS + m * windows.shape[1] + place
                for j in range(n):
                    drawn[j] = key_of(seeds[j], number)
                found = 0
                for j in range(n):
                    low[found] = j
                    found += drawn[j] <= limits[np.uint16(mine[j])]
                for j in low[:found]:
                    w = windows[m, place, mine[j]]
                    if w >= 0:
                        row = listed[at + j] if listed.shape[0] else at + j
                        sizes[m, w] = take(drawn[j], row, keys[m, w], rows[m, w], sizes[m, w])


@njit(nogil=True, cache=True)
def _draw(begin, end, seeds, caption_keys, listed, ptr, cells, windows, rows, sizes):
    keys = np.empty(rows.shape[1:], np.uint64)
    for b in range(begin, end):
        mine, some = cells[:, ptr[b] : ptr[b + 1]], listed[ptr[b] : ptr[b + 1]]
        _draw_image(seeds[b], caption_keys, some, mine, windows, keys, rows[b], sizes[b])


def draw(
    seeds: np.ndarray, caption_keys: np.ndarray, listed: np.ndarray, ptr: np.ndarray, cells: np.ndarray,
    members: np.ndarray, per_window: int, held: Cells,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The pairs that the windows' samples take, int64, image x captions + caption each, and the measure of each.

    ptr int64 [images + 1]: where the captions of each image begin in `listed` int64, which is empty where they are all,
    and in `cells` int16 [measures, captions of all images]. members int64 [images, measures, windows]: how many of them
    each window holds.
    """
    most = min(per_window, int(members.max(initial=0)))  # no window has more
    rows, sizes = np.empty((*members.shape, most), np.int64), np.zeros(members.shape, np.int64)
    if most:
        in_threads(_draw, len(seeds), seeds, caption_keys, listed, ptr, cells, held.windows, rows, sizes)
    image, measure, window, place = np.nonzero(np.arange(most) < sizes[..., None])
    return image * len(caption_keys) + rows[image, measure, window, place], measure

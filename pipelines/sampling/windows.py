"""Samples of windows: of each window of each measure, the captions of the lowest keys."""

import numpy as np

from capgrade.kernels import in_threads, njit
from capgrade.pipelines.sampling.keys import TILE, WINDOW_KEYS, key_of, take

_LARGEST_KEY = np.uint64(2**64 - 1)


@njit(cache=True)
def _draw_image(seed, caption_keys, listed, cells, windows, keys, rows, sizes):
    """Draw the samples of one image's windows.

    Captions go into `rows`, int64 [measures, windows, per window], and how many each has into
    `sizes`. They are drawn from those `listed`, or from all where that is empty. `cells`, int16
    [measures, captions], has the cell of each one's value; `windows` is as of `Cells`. Windows at
    one place share a key, as no value is in two of them.
    """
    seeds, drawn = np.empty(TILE, np.uint64), np.empty(TILE, np.uint64)
    below = np.empty(TILE, np.int64)
    limits = np.empty(windows.shape[2], np.uint64)
    sizes[:] = 0
    for at in range(0, cells.shape[1], TILE):
        n = min(TILE, cells.shape[1] - at)
        for j in range(n):
            seeds[j] = seed + caption_keys[listed[at + j] if listed.shape[0] else at + j]
        for m in range(windows.shape[0]):
            mine = cells[m, at : at + n]
            for place in range(windows.shape[1]):
                # A caption of a cell enters the cell's window with a key up to this limit: any
                # key while the window is not full, then the largest that it has.
                for c in range(limits.shape[0]):
                    w = windows[m, place, c]
                    if w < 0:
                        limits[c] = 0
                    elif sizes[m, w] < keys.shape[2]:
                        limits[c] = _LARGEST_KEY
                    else:
                        limits[c] = keys[m, w, 0]
                number = WINDOW_KEYS + m * windows.shape[1] + place
                for j in range(n):
                    drawn[j] = key_of(seeds[j], number)
                found = 0
                for j in range(n):  # without a branch, as few are below
                    below[found] = j
                    found += drawn[j] <= limits[np.uint16(mine[j])]
                for j in below[:found]:
                    w = windows[m, place, mine[j]]
                    if w >= 0:
                        row = listed[at + j] if listed.shape[0] else at + j
                        sizes[m, w] = take(drawn[j], row, keys[m, w], rows[m, w], sizes[m, w])


@njit(nogil=True, cache=True)
def _draw(begin, end, seeds, caption_keys, listed, ptr, cells, windows, rows, sizes):
    keys = np.empty(rows.shape[1:], np.uint64)
    for b in range(begin, end):
        own_cells, own_listed = cells[:, ptr[b] : ptr[b + 1]], listed[ptr[b] : ptr[b + 1]]
        _draw_image(seeds[b], caption_keys, own_listed, own_cells, windows, keys, rows[b], sizes[b])


def draw(
    seeds: np.ndarray,
    caption_keys: np.ndarray,
    listed: np.ndarray,
    ptr: np.ndarray,
    cells: np.ndarray,
    members: np.ndarray,
    per_window: int,
    windows: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the samples of all windows. Returns int64 pairs and the measure of each.

    A pair is image x captions + caption. They are drawn from the captions `listed`, int64, those of
    image i from ptr[i] to ptr[i + 1], or from all where it is empty. `cells`, int16 [measures,
    captions of all images], has the cell of each one's value, and `members`, int64 [images,
    measures, windows], how many a window has.
    """
    most = min(per_window, int(members.max(initial=0)))  # of no window are more drawn than it has
    rows, sizes = np.empty((*members.shape, most), np.int64), np.zeros(members.shape, np.int64)
    if most:
        args = (seeds, caption_keys, listed, ptr, cells, windows, rows, sizes)
        in_threads(_draw, len(seeds), *args)
    image, measure, window, place = np.nonzero(np.arange(most) < sizes[..., None])
    return image * len(caption_keys) + rows[image, measure, window, place], measure

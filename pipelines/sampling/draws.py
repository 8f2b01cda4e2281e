"""Random samples of an image's captions: uniform, of its share, and of each measure's windows.

A sample takes the captions of the lowest keys. A pair's seed, the sum of a hash of the image and
one of the caption, starts a splitmix64 generator (Steele, Lea and Flood 2014). Key k is its number
k, of 64 bits: each random sample has a key of its own, and so has the image's share of the
captions. Between pairs of the same relevance a hash of the seed decides, which is no key
(`capgrade.kernels`).

The range of each measure is cut at every edge of a window into cells, and a cell tells which
windows hold a value. A value reaches an edge when it does so rounded to five places, as a share of
the measure's range. So hardly any pair is so near to an edge that the last bits of its value, which
depend on the kind of processor, decide.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from capgrade.kernels import GOLDEN, in_threads, mix, njit

# The number of this rule. Parts drawn by another are not joined.
RULE = 6
# Numbers of keys: of the uniform sample, of the share, and the first of the windows'.
UNIFORM_KEY, SHARE_KEY, WINDOW_KEYS = 0, 1, 2
TILE = 256  # pairs looked at together
HALF_PLACE = 5e-6
BUCKETS = 2048  # of equal width: the values of most have all reached the same edges
_LARGEST_KEY = np.uint64(2**64 - 1)


@njit(cache=True)
def key_of(seed, number):
    """uint64: a key of a pair, from its seed."""
    return mix(seed + (np.uint64(number) + np.uint64(1)) * GOLDEN)


@njit(cache=True)
def take(key, row, keys, rows, size):
    """Put a caption into a sample of the lowest keys. Returns the sample's new size.

    `keys` and `rows`, which are as long as a sample may be, are a heap with the largest key first:
    that is the one to go.
    """
    if size < keys.shape[0]:
        at = size
        size += 1
        while at and keys[(at - 1) // 2] < key:
            keys[at], rows[at] = keys[(at - 1) // 2], rows[(at - 1) // 2]
            at = (at - 1) // 2
    elif key < keys[0]:
        at, child = 0, 1
        while child < size:
            if child + 1 < size and keys[child + 1] > keys[child]:
                child += 1
            if keys[child] <= key:
                break
            keys[at], rows[at] = keys[child], rows[child]
            at, child = child, 2 * child + 1
    else:
        return size
    keys[at], rows[at] = key, row
    return size


@njit(nogil=True, cache=True)
def _lowest(begin, end, seeds, caption_keys, rows):
    keys, tile = np.empty(rows.shape[1], np.uint64), np.empty(TILE, np.uint64)
    for b in range(begin, end):
        size = 0
        for at in range(0, caption_keys.shape[0], TILE):
            some = caption_keys[at : at + TILE]
            for j in range(some.shape[0]):  # a loop of its own, so that it becomes vectors
                tile[j] = key_of(seeds[b] + some[j], UNIFORM_KEY)
            for j in range(some.shape[0]):
                if size < keys.shape[0] or tile[j] < keys[0]:
                    size = take(tile[j], at + j, keys, rows[b], size)


@njit(nogil=True, cache=True)
def _inside(begin, end, seeds, caption_keys, share, rows, sizes):
    for b in range(begin, end):
        size = 0
        for c in range(caption_keys.shape[0]):
            if key_of(seeds[b] + caption_keys[c], SHARE_KEY) <= share:
                rows[b, size] = c
                size += 1
        sizes[b] = size


def uniform_sample(seeds: np.ndarray, caption_keys: np.ndarray, size: int) -> np.ndarray:
    """Up to `size` captions of each image: int64 pairs, rising, image x captions + caption."""
    n = len(caption_keys)
    rows = np.empty((len(seeds), min(size, n)), np.int64)
    if rows.size:
        in_threads(_lowest, len(seeds), seeds, caption_keys, rows)
    return np.sort((rows + np.arange(len(seeds))[:, None] * n).ravel())


def share_of_captions(seeds: np.ndarray, caption_keys: np.ndarray, among: float) -> np.ndarray:
    """The captions of each image's share of all, `among` in size: pairs as of `uniform_sample`."""
    n, share = len(caption_keys), np.uint64(min(int(among * 2**64), 2**64 - 1))
    rows = np.empty((len(seeds), n), np.int32)  # little of it is written to, so little is memory
    sizes = np.empty(len(seeds), np.int64)
    in_threads(_inside, len(seeds), seeds, caption_keys, share, rows, sizes)
    return np.concatenate([rows[b, :size] + b * np.int64(n) for b, size in enumerate(sizes)])


class Cells(NamedTuple):
    """A value of measure m is in cell c if it has reached c of the measure's edges.

    At most `together` windows hold a value. Those of a cell stand at different places: window w at
    w % together. Edges are followed by NaNs where another measure has more.
    """

    edges: np.ndarray  # float32 [measures, edges], ascending
    # int64 [measures, together, cells]: the window at each place that holds the cell, -1 for none
    windows: np.ndarray
    # int16 [measures, BUCKETS]: the cell of all values of a bucket, or -1 - the lowest of several
    table: np.ndarray
    begin: np.ndarray  # float32 [measures]: of the first bucket
    scale: np.ndarray  # float32 [measures]: 1 / width of a bucket

    def of(self, m: int, values: np.ndarray) -> np.ndarray:
        """The cell of each float32 value of measure m: int16."""
        edges = self.edges[m][~np.isnan(self.edges[m])]
        return np.searchsorted(edges, values, "right").astype(np.int16)

    def place(self, m: int, values: np.ndarray, cells: np.ndarray, counts: np.ndarray) -> None:
        """Put the cell of each value, float32 [images, captions], into int16 `cells`.

        Add how many values of an image each cell has to `counts`, int64 [images, cells].
        """
        args = self.edges[m], self.table[m], self.begin[m], self.scale[m], cells, counts
        in_threads(_place, len(values), values, *args)


def cells_of(windows: Sequence[np.ndarray], span: Sequence[float] | np.ndarray) -> Cells:
    """The cells that the edges of each measure's windows, float64 [n, 2], make.

    `span` is the difference of the measure's bounds.
    """
    bounds, holds, together, most = [], [], 1, 0
    for mine in windows:
        own = np.unique(mine[np.isfinite(mine)])
        # A window holds the cell that starts at c edges if it has begun there and ends later.
        start = np.append(-np.inf, own)
        held = (mine[:, :1] <= start) & (start < mine[:, 1:])
        together, most = max(together, int(held.sum(axis=0).max())), max(most, len(own))
        bounds.append(own)
        holds.append(held)
    edges = np.full((len(windows), most), np.nan, np.float32)
    at_place = np.full((len(windows), together, most + 1), -1, np.int64)
    table = np.zeros((len(windows), BUCKETS), np.int16)
    begin, scale = np.zeros((2, len(windows)), np.float32)
    for m, own in enumerate(bounds):
        window, cell = np.nonzero(holds[m])
        at_place[m, window % together, cell] = window
        if len(own):
            reached = own - HALF_PLACE * span[m]
            # The float32 at or above it, which a float32 reaches when it reaches the number.
            near = reached.astype(np.float32)
            mine = np.where(near < reached, np.nextafter(near, np.float32(np.inf)), near)
            edges[m, : len(own)] = mine
            width = max(float(mine[-1]) - float(mine[0]), 1e-3 * span[m]) / (BUCKETS - 8)
            begin[m], scale[m] = mine[0] - 4 * width, 1 / width
            at = _buckets(mine, begin[m], scale[m])
            table[m] = np.searchsorted(at, np.arange(BUCKETS))
            table[m, at] = -1 - table[m, at]
    return Cells(edges, at_place, table, begin, scale)


@njit(cache=True)
def _bucket(value, begin, scale):
    at = (value - begin) * scale
    at = at if at > np.float32(0) else np.float32(0)  # NaN too
    return np.int32(at if at < np.float32(BUCKETS - 1) else np.float32(BUCKETS - 1))


@njit(cache=True)
def _buckets(values, begin, scale):
    """int32 [values]: the bucket of each float32, rising with it."""
    out = np.empty(values.shape[0], np.int32)
    for j in range(values.shape[0]):
        out[j] = _bucket(values[j], begin, scale)
    return out


@njit(nogil=True, cache=True)
def _place(begin, end, values, edges, table, first, scale, cells, counts):
    at, count = np.empty(TILE, np.int32), np.empty((2, counts.shape[1]), np.int64)
    for b in range(begin, end):
        count[:] = 0
        for start in range(0, values.shape[1], TILE):
            some, out = values[b, start : start + TILE], cells[b, start : start + TILE]
            for j in range(some.shape[0]):
                at[j] = _bucket(some[j], first, scale)
            several = np.int16(0)
            for j in range(some.shape[0]):
                out[j] = table[np.uint32(at[j])]
                several |= out[j]
            if several < 0:
                for j in range(some.shape[0]):
                    if out[j] < 0:
                        reached = -1 - np.int64(out[j])
                        while reached < edges.shape[0] and some[j] >= edges[reached]:
                            reached += 1
                        out[j] = reached
            for j in range(some.shape[0]):  # by turns, as neighbours are often of one cell
                count[j & 1, np.uint16(out[j])] += 1
        for c in range(counts.shape[1]):
            counts[b, c] += count[0, c] + count[1, c]


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
    share: np.ndarray | None,
    cells: np.ndarray,
    members: np.ndarray,
    per_window: int,
    windows: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the samples of all windows. Returns int64 pairs and the measure of each.

    A pair is image x captions + caption. They are drawn from the pairs of `share`, rising, or from
    all (None). `cells`, int16 [measures, pairs], has the cell of each one's value, `members`, int64
    [images, measures, windows], how many a window has, and `windows` is as of `Cells`.
    """
    n = len(caption_keys)
    listed, ptr = np.empty(0, np.int64), np.arange(len(seeds) + 1) * n
    if share is not None:
        listed, ptr = share % n, np.searchsorted(share, ptr)
    most = min(per_window, int(members.max(initial=0)))  # of no window are more drawn than it has
    rows, sizes = np.empty((*members.shape, most), np.int64), np.zeros(members.shape, np.int64)
    if most:
        args = (seeds, caption_keys, listed, ptr, cells, windows, rows, sizes)
        in_threads(_draw, len(seeds), *args)
    image, measure, window, place = np.nonzero(np.arange(most) < sizes[..., None])
    return image * n + rows[image, measure, window, place], measure

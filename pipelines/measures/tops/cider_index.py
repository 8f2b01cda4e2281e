"""What the exact tops of CIDEr-D need of the captions: postings by rank, and how much of each caption is common.

Ranks go by length class, and in a class by how much of a caption's unit vectors is in common n-grams: so a run of ranks
has bounds that are true of most of it. Each class starts a block of ranks, so some ranks are of no caption.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.pipelines.measures.cider import FittedCider
from capgrade.pipelines.measures.tops.cider_packed import Packed, packed_for, posting_of
from capgrade.schemas.compiled import njit
from capgrade.schemas.lanes import LANES

ORDERS = 4
LEVELS = (1 / 512, 1 / 256, 1 / 128, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1.0)  # of the captions: n-grams above are common
BY = 3  # the level whose common n-grams captions of a length are sorted by
BLOCK = LANES  # ranks looked at together
GRAMS = 2**14  # of a caption: the sums, in 16 bits, are rounded up once for each; and SLACK covers no more
RANGES = 8  # of ranks whose sums are made together: a small corpus has fewer, as
RANGE = 2**15  # ranks at least are one, and a large one more, as
LARGEST = 2**17  # ranks at most are one, so that their sums stay in a core's cache
LONG = 256  # postings of a term of which is known where each range starts
FIRST = 2**15  # postings walked before the first threshold, but
SHARE = 1 / 5  # of the number of captions at most
PAYS = 1 / 8  # of the captions: of more beside leaders, all pairs are faster
UNITS = 2**15  # of the value of equal captions, in which gains are added up


class Index(NamedTuple):
    """Of the captions. What is read together, of a caption, an n-gram or a term, are columns of one array."""

    ptr: np.ndarray  # int64 [n_captions + 1], of `term`
    length_class: np.ndarray  # int32 [n_captions]
    inv_norm: np.ndarray  # float32 [n_captions, ORDERS]
    term: np.ndarray  # int32 [nonzeros]: the (n-gram, count) terms of each caption
    term_ptr: np.ndarray  # int64 [n_grams + 1]
    gain: np.ndarray  # float64 [n_grams]
    order: np.ndarray  # int8 [n_grams]
    post_ptr: np.ndarray  # int64 [terms + 1]
    count_of: np.ndarray  # int32 [terms]
    dense_row: np.ndarray  # int32 [terms]
    gram_of: np.ndarray  # int32 [terms]
    post: np.ndarray  # uint32 [postings]: rank, then norm in units, as in `cider_packed`
    bits: int  # these three as in `Packed`
    shift: int
    base: int
    long: np.ndarray  # int64: terms of more than LONG postings, ascending
    starts: np.ndarray  # int64 [long terms, ranges + 1]: where in their postings each range starts
    row_of_rank: np.ndarray  # int32 [ranks]: -1 for none
    class_start: np.ndarray  # int64 [classes + 1]: blocks
    class_of_block: np.ndarray  # uint8 [blocks]
    common: np.ndarray  # uint32 [levels, ranks]: a byte an order, the norm of a caption's part in common n-grams
    most: np.ndarray  # uint32 [levels, blocks]: the largest of each byte
    most_of_range: np.ndarray  # uint32 [levels, ranges]: likewise
    range_blocks: int  # blocks of a range
    first: float  # postings walked before the first threshold
    pays: float  # captions: of more beside leaders, all pairs are faster
    most_of_level: np.ndarray  # float64 [levels]: captions with an n-gram that is not above the level


def packed_norms(f: FittedCider) -> Packed:
    """How the postings of a fitted CIDEr-D are packed."""
    return packed_for(UNITS / f.full * f.inv_norm, len(f.rank) + BLOCK * len(f.penalty))


def index(f: FittedCider) -> Index:
    """Of a fitted CIDEr-D."""
    n_captions = len(f.rank)
    gram_of = np.repeat(np.arange(len(f.term_ptr) - 1, dtype=np.int32), np.diff(f.term_ptr))
    term = np.empty(len(f.gram), np.int32)
    _terms(f.gram, f.count, f.term_ptr, f.term_count, term)
    levels = np.array(LEVELS) * n_captions
    above = np.searchsorted(levels, np.bincount(f.gram, minlength=len(f.gain)))
    parts = np.empty((len(LEVELS), n_captions, ORDERS), np.uint8)
    _parts(f.ptr, f.gram, f.count, f.gain, f.order, f.inv_norm, above, parts)
    row_of_rank, class_start = _ranked(f.length_class, parts[BY].sum(1, dtype=np.int64), len(f.penalty))
    post, packed = np.empty(len(term), np.uint32), packed_norms(f)
    _posted(row_of_rank, f.ptr, term, f.post_ptr, f.order[gram_of], UNITS / f.full, f.inv_norm, *packed, post)
    common = np.zeros((len(LEVELS), len(row_of_rank), ORDERS), np.uint8)
    common[:, row_of_rank >= 0] = parts[:, row_of_rank[row_of_rank >= 0]]
    size = int(np.clip(len(row_of_rank) // RANGES, RANGE, LARGEST)) // BLOCK * BLOCK
    class_of_block = np.repeat(np.arange(len(f.penalty)), np.diff(class_start)).astype(np.uint8)
    long = np.flatnonzero(np.diff(f.post_ptr) > LONG)
    starts = np.empty((len(long), -(-len(row_of_rank) // size) + 1), np.int64)
    _starts(long, f.post_ptr, post, size << packed.bits, starts)
    ptr, length_class, inv_norm = _beside(f.ptr, f.length_class, f.inv_norm.astype(np.float32))
    term_ptr, gain, order = _beside(f.term_ptr, f.gain, f.order)
    post_ptr, count_of, dense_row, gram_of = _beside(f.post_ptr, f.term_count, f.dense_row, gram_of)
    return Index(
        ptr, length_class, inv_norm, term, term_ptr, gain, order, post_ptr, count_of, dense_row, gram_of, post, *packed,
        long, starts, row_of_rank, class_start, class_of_block, common.view(np.uint32)[:, :, 0], _most(common, BLOCK),
        _most(common, size), size // BLOCK, min(FIRST, SHARE * n_captions), PAYS * n_captions, levels,
    )  # fmt: skip


def _beside(*columns: np.ndarray) -> list[np.ndarray]:
    """Copies of columns as those of one array, so that a line of the cache holds a row."""
    kinds = [(f"f{k}", column.dtype, column.shape[1:]) for k, column in enumerate(columns)]
    table, beside = np.empty(max(map(len, columns)), np.dtype(kinds, align=True)), []
    for k, column in enumerate(columns):
        beside.append(table[f"f{k}"][: len(column)])
        beside[k][:] = column
    return beside


def _ranked(length_class: np.ndarray, commonness: np.ndarray, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """row_of_rank and class_start."""
    by_class = np.lexsort((commonness, length_class))
    sizes = np.bincount(length_class, minlength=n_classes)
    blocks = -(-sizes // BLOCK)
    shift = np.cumsum(blocks * BLOCK - sizes) - (blocks * BLOCK - sizes)
    row_of_rank = np.full(blocks.sum() * BLOCK, -1, np.int32)
    row_of_rank[np.arange(len(by_class)) + shift[length_class[by_class]]] = by_class
    return row_of_rank, np.concatenate([[0], np.cumsum(blocks)])


def _most(common: np.ndarray, size: int) -> np.ndarray:
    """uint32 [levels, ranks / size]: the largest of each byte of so many ranks."""
    most = np.maximum.reduceat(common, np.arange(0, common.shape[1], size), axis=1)
    return np.ascontiguousarray(most).view(np.uint32)[:, :, 0]


@njit(cache=True)
def _terms(gram, count, term_ptr, term_count, out):
    """The term of each n-gram of each caption."""
    for p in range(gram.shape[0]):
        t = term_ptr[gram[p]]
        while term_count[t] != count[p]:
            t += 1
        out[p] = t


@njit(cache=True)
def _parts(ptr, gram, count, gain, order, inv_norm, above, out):
    """The norm of a caption's part in the n-grams above each level, in 255ths, rounded up: uint8 [levels, n_captions,
    ORDERS]. `above` int64 [n_grams]: how many levels an n-gram is above."""
    n_levels = out.shape[0]
    squares = np.empty((n_levels + 1, ORDERS))
    for c in range(ptr.shape[0] - 1):
        squares[:] = 0
        for p in range(ptr[c], ptr[c + 1]):
            g = gram[p]
            squares[above[g], order[g]] += (count[p] * inv_norm[c, order[g]]) ** 2 * gain[g]
        for level in range(n_levels - 1, -1, -1):
            for o in range(ORDERS):
                part = np.sqrt(squares[level + 1, o]) * 255 * (1 + 1e-9)
                out[level, c, o] = np.uint8(min(np.ceil(part), 255))
                squares[level, o] += squares[level + 1, o]


@njit(cache=True)
def _posted(row_of_rank, ptr, term, post_ptr, order_of, units, inv_norm, bits, shift, base, post):
    """The postings of each term by rising rank."""
    at = post_ptr[:-1].copy()
    for r in range(row_of_rank.shape[0]):
        c = row_of_rank[r]
        for p in range(ptr[c], ptr[c + 1]) if c >= 0 else range(0):
            t = term[p]
            post[at[t]] = posting_of(r, units * inv_norm[c, order_of[t]], bits, shift, base)
            at[t] += 1


@njit(cache=True)
def _starts(long, post_ptr, post, size, out):
    """Where the postings of each range start, of so many ranks, packed."""
    for x in range(long.shape[0]):
        p, end = post_ptr[long[x]], post_ptr[long[x] + 1]
        for j in range(out.shape[1]):
            while p < end and post[p] < j * size:
                p += 1
            out[x, j] = p

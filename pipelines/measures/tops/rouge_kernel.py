"""Kernels of ROUGE-L's exact tops: how many words a caption shares bounds the longest common subsequence.

A token is a word and how often it came before in its caption, so that captions share as many tokens as both have of a
word. The LCS with a reference is at most the tokens shared with it, and those are at most the tokens shared with any of
the image's references. The commonest tokens of the corpus are the bits of one number for each caption; of the others
there are postings. Captions are taken by falling bound until the worst of the best is above all that are left.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange

from capgrade.pipelines.measures.rouge import SHORT, lcs
from capgrade.pipelines.measures.tops.heap import push
from capgrade.pipelines.measures.tops.levels import lower
from capgrade.schemas.bits import ones
from capgrade.schemas.compiled import njit
from capgrade.schemas.lanes import at_least, lowest_bit
from capgrade.schemas.lcs import LANES, ONE, lcs_of_lanes
from capgrade.schemas.prefetch import prefetch

BITS = 64  # common tokens; and the longest reference that the bit-parallel LCS takes
AHEAD = 32  # captions whose words are on their way
LONGEST = np.iinfo(np.uint8).max  # words of a caption: shared ones are counted in a byte
SLACK = np.float32(1 + 2**-12)  # bounds and values are a few roundings of float32 each


class Index(NamedTuple):
    """The captions by rank, which goes by length, and what bounds need of them."""

    ptr: np.ndarray  # int64 [n_captions + 1], of `word` and `token`, by row
    word: np.ndarray  # int32 [words]
    token: np.ndarray  # int32 [words]: of the common ones -1 - bit, of the others the number in `post_ptr`
    post_ptr: np.ndarray  # int64 [tokens + 1]
    post: np.ndarray  # int32 [postings]: ranks
    bits: np.ndarray  # uint64 [n_captions] by rank
    row_of_rank: np.ndarray  # int32 [n_captions]
    run_start: np.ndarray  # int64 [runs + 1]: ranks
    run_length: np.ndarray  # int64 [runs]: words of the captions of a run
    n_vocabulary: int
    beta2: np.float32
    mean: bool


class Image(NamedTuple):
    """The references of one image."""

    rows: np.ndarray  # int64 [references]
    masks: np.ndarray  # uint64 [references]: their common tokens
    union: np.uint64  # of the masks
    rare: np.ndarray  # int32 [references]: how many other tokens
    lengths: np.ndarray  # int64 [references]
    inverse: np.ndarray  # float32 [references]: of the lengths
    places: np.ndarray  # uint64 [references, local words]: where in a reference the word is
    tokens: np.ndarray  # int32: the other tokens of all references, each once
    masks_of: np.ndarray  # uint16 [local words x lanes]: where in a short reference the word is, a reference a lane
    found: np.ndarray  # uint16 [lanes]: room for the LCS with each reference
    any_long: bool  # a reference is longer than a lane


class Room(NamedTuple):
    """Of one worker."""

    local: np.ndarray  # int32 [vocabulary]: number of a word among the image's, -1 for none
    shared: np.ndarray  # uint8 [n_captions + BITS] by rank: tokens shared with any reference
    ranks: np.ndarray  # int32 [n_captions]: those whose bound was looked at
    bounds: np.ndarray  # float32: theirs, -1 when their value was computed
    known: np.ndarray  # int32 [words of the longest caption + 1]
    low: np.ndarray  # int64 [runs]: tokens shared from which captions were looked at


@njit(cache=True)
def _image(rows, ix, local):
    """Numbers the words of the references in `local`."""
    n, total = rows.shape[0], 0
    masks, rare, lengths = np.zeros(n, np.uint64), np.zeros(n, np.int32), np.empty(n, np.int64)
    for q in range(n):
        lengths[q] = ix.ptr[rows[q] + 1] - ix.ptr[rows[q]]
        total += lengths[q]
    tokens, places, n_tokens, n_words = np.empty(total, np.int32), np.zeros((n, total), np.uint64), 0, 0
    lanes = (n + LANES - 1) // LANES * LANES
    masks_of = np.zeros((total, lanes), np.uint16)
    for q in range(n):
        for p in range(ix.ptr[rows[q]], ix.ptr[rows[q] + 1]):
            t, at = ix.token[p], p - ix.ptr[rows[q]]
            if t < 0:
                masks[q] |= np.uint64(1) << np.uint64(-1 - t)
            else:
                tokens[n_tokens] = t
                n_tokens += 1
                rare[q] += 1
            if local[ix.word[p]] < 0:
                local[ix.word[p]] = n_words
                n_words += 1
            if lengths[q] <= SHORT:
                masks_of[local[ix.word[p]], q] |= np.uint16(1 << at)
            if at < BITS:
                places[q, local[ix.word[p]]] |= np.uint64(1) << np.uint64(at)
    union = np.uint64(0)
    for mask in masks:
        union |= mask
    return Image(
        rows, masks, union, rare, lengths, (1 / lengths).astype(np.float32), places, np.unique(tokens[:n_tokens]),
        masks_of.reshape(-1), np.empty(lanes, np.uint16), lengths.max() > SHORT,
    )  # fmt: skip


@njit(cache=True)
def _forget(rows, ix, local):
    for r in rows:
        for p in range(ix.ptr[r], ix.ptr[r + 1]):
            local[ix.word[p]] = -1


@njit(cache=True)
def _count_shared(im, ix, shared):
    """Fill `shared`."""
    for r in range(ix.bits.shape[0]):
        shared[r] = np.uint8(ones(ix.bits[r] & im.union))
    for t in im.tokens:
        for p in range(ix.post_ptr[t], ix.post_ptr[t + 1]):
            shared[ix.post[p]] += np.uint8(1)


@njit(cache=True)
def _f(precision, recall, beta2):
    below = recall + beta2 * precision
    return (1 + beta2) * precision * recall / below if below > 0 else 0.0


@njit(cache=True)
def _bound_of_shared(shared, n, im, ix):
    """Of a caption of n words that shares so many tokens with all references together."""
    precision, recall, total = 0.0, 0.0, 0.0
    for m in im.lengths:
        lcs = min(shared, m)
        precision, recall = max(precision, lcs / n), max(recall, lcs / m)
        total += (1 + ix.beta2) * lcs / (n + ix.beta2 * m)
    return total / len(im.lengths) if ix.mean else _f(precision, recall, ix.beta2)


@njit(cache=True)
def _bounds(ranks, shared, n, im, ix, out):
    """Of captions of n words, by the common tokens that each shares with each reference."""
    masks, rare_of, inverse, bits, words = im.masks, im.rare, im.inverse, ix.bits, np.float32(n)
    for x in range(ranks.shape[0]):
        if x + AHEAD < ranks.shape[0]:
            prefetch(bits, ranks[x + AHEAD])
        own = bits[ranks[x]]
        rare = np.int32(shared[ranks[x]]) - np.int32(ones(own & im.union))
        longest, recall, total = np.int32(0), np.float32(0), np.float32(0)
        for q in range(masks.shape[0]):
            found = np.int32(np.int32(ones(own & masks[q])) + min(rare, rare_of[q]))
            if ix.mean:
                total += np.float32(found) / (words + ix.beta2 * im.lengths[q])
            longest, recall = max(longest, found), max(recall, np.float32(found) * inverse[q])
        below = words * recall + ix.beta2 * np.float32(longest)
        out[x] = (1 + ix.beta2) * np.float32(longest) * recall / below if below > 0 else np.float32(0)
        if ix.mean:
            out[x] = total * (1 + ix.beta2) / masks.shape[0]
        out[x] *= SLACK


@njit(cache=True)
def _between(shared, begin, end, low, high, ranks, n):
    """Put the ranks of begin..end of which low <= shared < high behind the n in `ranks`; how many there are."""
    for at in range(begin, end, BITS):
        found = at_least(shared, at, np.uint8(low))
        if high <= LONGEST:
            found &= ~at_least(shared, at, np.uint8(high))
        if end - at < BITS:
            found &= (np.uint64(1) << np.uint64(end - at)) - np.uint64(1)
        while found:
            ranks[n] = at + lowest_bit(found)
            found &= found - np.uint64(1)
            n += 1
    return n


@njit(cache=True)
def _look(level, im, ix, room, n_looked):
    """Look at the captions of each run whose bound by tokens shared with all references reaches the level; how many
    were looked at in all."""
    for run in range(len(ix.run_length)):
        n, low = ix.run_length[run], room.low[run]
        while low > 0 and _bound_of_shared(low - 1, n, im, ix) * SLACK >= level:
            low -= 1
        if low < room.low[run]:
            begin, end = ix.run_start[run], ix.run_start[run + 1]
            first, n_looked = n_looked, _between(room.shared, begin, end, low, room.low[run], room.ranks, n_looked)
            _bounds(room.ranks[first:n_looked], room.shared, n, im, ix, room.bounds[first:n_looked])
            room.low[run] = low
    return n_looked


@njit(cache=True, forceinline=True)
def _known(c, ix, local, known):
    """Put the numbers of the caption's words that the references have into `known`; how many."""
    n = 0
    for p in range(ix.ptr[c], ix.ptr[c + 1]):
        known[n] = local[ix.word[p]]
        n += known[n] >= 0
    return n


@njit(cache=True)
def _lcs_of_long(q, c, im, ix, known):
    """With one reference: bit-parallel, a bit of s is 0 for each word of the LCS."""
    if im.lengths[q] > BITS:
        r = im.rows[q]
        return lcs(ix.word[ix.ptr[c] : ix.ptr[c + 1]], ix.word[ix.ptr[r] : ix.ptr[r + 1]])
    s, places = ~np.uint64(0), im.places[q]
    for w in known:
        u = s & places[w]
        s = (s + u) | (s - u)
    return np.int64(ones(~s))


@njit(cache=True, forceinline=True)
def value_of(c, im, ix, local, known):
    """The value of one caption, each rounding as `rouge_of_slots` and `rouge._finish_mean` do it; `known` int32 is room
    for the words of a caption and one more."""
    n_known, found = _known(c, ix, local, known), im.found
    lcs_of_lanes(im.masks_of, known, n_known, found.shape[0], found)
    if im.any_long:
        for q in range(im.lengths.shape[0]):
            if im.lengths[q] > SHORT:
                found[q] = _lcs_of_long(q, c, im, ix, known[:n_known])
    n = np.float32(ix.ptr[c + 1] - ix.ptr[c])
    if ix.mean:
        return _mean(n, found, im.lengths, ix.beta2)
    return _max(n, found, im.lengths, im.inverse, ix.beta2)


@njit(cache=True, forceinline=True)
def _max(n, found, lengths, inverse, beta2):
    best, f = np.float32(0), np.float32(0)
    for q in range(lengths.shape[0]):
        lcs = np.float32(np.int32(found[q]))
        best = max(best, lcs)
        f = max(f, lcs * inverse[q] if lengths[q] <= SHORT else lcs / np.float32(lengths[q]))
    below = n * f + beta2 * best
    ratio = (np.float32(1) + beta2) * best * f / max(below, np.float32(1e-30))
    return np.float32(1) if ratio > ONE else ratio


@njit(cache=True, forceinline=True)
def _mean(n, found, lengths, beta2):
    total = np.float32(0)
    for long in range(2):  # short references are summed up before long ones
        for q in range(lengths.shape[0]):
            if (lengths[q] > SHORT) == (long == 1):
                below = n + beta2 * np.float32(lengths[q])
                total += (np.float32(1) + beta2) * np.float32(np.int32(found[q])) / below
    return np.float32(min(total / lengths.shape[0], 1.0))


@njit(cache=True, forceinline=True)
def _ask_ahead(rows, k, end, ix):
    """Ask for what is read of captions behind rows[k]."""
    if k + AHEAD < end:
        prefetch(ix.ptr, rows[k + AHEAD])
    if k + AHEAD // 2 < end:
        c = rows[k + AHEAD // 2]
        prefetch(ix.word, ix.ptr[c])
        prefetch(ix.word, ix.ptr[c + 1] - 1)


@njit(cache=True)
def _reaching(level, n_looked, ix, room):
    """Which of those looked at have bounds that reach the level, and their rows."""
    n, places = 0, np.empty(n_looked, np.int32)
    for x in range(n_looked):
        if room.bounds[x] >= level:
            places[n] = x
            n += 1
            prefetch(ix.row_of_rank, room.ranks[x])
    rows = np.empty(n, np.int64)
    for y in range(n):
        rows[y] = ix.row_of_rank[room.ranks[places[y]]]
    return places[:n], rows


@njit(cache=True)
def _best(im, ix, room, heap, rows, seed, keys):
    """The best captions into the heap; how many captions had their value computed."""
    room.low[:] = ix.run_length + 1
    level, n, n_looked, valued = np.float32(1), 0, 0, 0
    while True:
        n_looked = _look(level, im, ix, room, n_looked)
        places, some = _reaching(level, n_looked, ix, room)
        for y in range(some.shape[0]):
            _ask_ahead(some, y, some.shape[0], ix)
            x = places[y]
            if n < heap.shape[0] or room.bounds[x] >= heap[0]:
                value = value_of(some[y], im, ix, room.local, room.known)
                n = push(value, some[y], heap, rows, n, seed, keys)
                room.bounds[x] = -1
                valued += 1
        full = n == heap.shape[0]
        if full and heap[0] >= level or level == 0:
            return valued
        level = lower(level, heap, n)


@njit(cache=True)
def _images(w, workers, images, ref_ptr, refs, ix, seeds, keys, out_rows, out_values, pairs):
    """Every `workers`-th image from w on."""
    n = len(ix.bits)
    room = Room(
        np.full(ix.n_vocabulary, -1, np.int32), np.empty(n + BITS, np.uint8),
        np.empty(n, np.int32), np.empty(n, np.float32),
        np.empty(ix.run_length[-1] + 1, np.int32), np.empty(len(ix.run_length), np.int64),
    )  # fmt: skip
    for b in range(w, images.shape[0], workers):
        rows = refs[ref_ptr[images[b]] : ref_ptr[images[b] + 1]]
        im = _image(rows, ix, room.local)
        _count_shared(im, ix, room.shared)
        pairs[b] = _best(im, ix, room, out_values[b], out_rows[b], seeds[b], keys)
        _forget(rows, ix, room.local)


@njit(parallel=True, cache=True)
def tops(workers, images, ref_ptr, refs, ix, seeds, keys, out_rows, out_values, pairs):
    """The best captions of each image, equal ones by the hashes `seeds` of images and `keys` of captions (`Ties`),
    unsorted, into out_rows int64 and out_values float32 [images, k].

    pairs int64 [images]: captions whose whole value was computed.
    """
    for w in prange(workers):
        _images(w, workers, images, ref_ptr, refs, ix, seeds, keys, out_rows, out_values, pairs)


@njit(cache=True)
def _listed(w, workers, images, ref_ptr, refs, ix, ptr, rows, values):
    """Every `workers`-th image from w on."""
    local, known = np.full(ix.n_vocabulary, -1, np.int32), np.empty(ix.run_length[-1] + 1, np.int32)
    for b in range(w, images.shape[0], workers):
        references = refs[ref_ptr[images[b]] : ref_ptr[images[b] + 1]]
        im = _image(references, ix, local)
        for k in range(ptr[b], ptr[b + 1]):
            _ask_ahead(rows, k, ptr[b + 1], ix)
            values[k] = value_of(rows[k], im, ix, local, known)
        _forget(references, ix, local)


@njit(parallel=True, cache=True)
def listed(workers, images, ref_ptr, refs, ix, ptr, rows, values):
    """Fill the values of captions rows[ptr[image] : ptr[image + 1]], float32 [len(rows)]."""
    for w in prange(workers):
        _listed(w, workers, images, ref_ptr, refs, ix, ptr, rows, values)

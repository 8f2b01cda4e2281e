"""The best captions of METEOR, by an upper bound: the words that can match, each in its best stage.

A word of a caption matches at most the weight of its best match in a reference, and at most as many times as there are
places where it can. So a table by token (a word and how often it came before in its caption) adds up to a bound on the
matched weight of each reference; one sum more is what the caption's weights can be above these. A phrase adds what it
matches more than its words in their last tokens. The sums are eight times 16 bits, in two numbers; references beyond
seven share sums, which then take the larger. Matches are at least one chunk: that is the least penalty.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.kernels import njit
from capgrade.measures.meteor.align import (
    AlignmentRoom,
    alignment_room,
    module_of,
    reference_place,
    reference_words,
)
from capgrade.measures.meteor.bound import ALPHA, BETA, GAMMA, bound
from capgrade.measures.meteor.index import MatchIndex
from capgrade.measures.meteor.kernel import COUNTS, MATCHES, find_hits, fold, forget, score_reference
from capgrade.measures.meteor.paraphrases import LONGEST
from capgrade.measures.tops import BLOCK, push

LANES = 8  # sums
MORE = 7  # the sum of what the caption's weights are above the references', whose sums are before it
FIFTHS = (5, 3, 4, 3)  # weights of the stages; words weigh 3 or 1 quarters
QUARTER = 1 / 4
UNIT = QUARTER / 5
MOST_WORDS = 800  # of a caption
FULL = 15 * MOST_WORDS  # of a sum: what no caption weighs more than; with 63 for each of its words less than 2^16
LEAST = np.float32(0.599)  # less than the least weight of a stage
STEP = np.float32(0.9)  # from one level of bounds to the next
LOWEST = np.float32(0.01)  # the last level but 0
TINY = np.float32(1e-6)  # less than any weight but 0
SLACK = np.float32(1 + 2**-12)  # bounds and values are a few roundings of float32 each


class BoundIndex(NamedTuple):
    """What bounds need of the captions, beside METEOR's index."""

    token: np.ndarray  # int32 [words]
    last: np.ndarray  # int32 [words]: token of the same word where it stands last in its caption
    token_ptr: np.ndarray  # int64 [n_words + 1]: tokens of each word
    phrase_ptr: np.ndarray  # int64 [phrases + 1]: groups of each unit of several words, which come after the words
    group_ptr: np.ndarray  # int64 [groups + 1]: postings of a phrase whose words are last the same tokens
    phrase_caption: np.ndarray  # int32 [postings]
    phrase_at: np.ndarray  # int64 [postings]: its first word
    phrase_size: np.ndarray  # int32 [postings]: how many words
    quarters: np.ndarray  # int32 [n_units]: weight of a unit's words
    kind: np.ndarray  # int32 [n_captions]: of captions of one weight and number of words
    kind_weight: np.ndarray  # float32 [kinds], in UNIT
    kind_words: np.ndarray  # float64 [kinds]


class BoundRoom(NamedTuple):
    """Of one worker."""

    local: np.ndarray  # int32 [n_units]: number of a unit among those that match the image's, -1 for none
    table: np.ndarray  # uint16 [tokens, LANES]: what a token brings
    sums: np.ndarray  # uint16 [n_captions, LANES]
    bounds: np.ndarray  # float32 [n_captions], -1 for captions that are done
    closer: np.ndarray  # bool [n_captions]: whether the bound is the closer one
    weight: np.ndarray  # float32 [LANES]: least weight of the references of a sum
    left: np.ndarray  # float32 [kinds, LANES]: what the least penalty leaves of F
    hits: np.ndarray  # int64 [7 * longest, 3]
    places: np.ndarray  # uint64 [longest + 1]
    counts: np.ndarray  # float64 [COUNTS]
    align: AlignmentRoom
    leave_out: bool


@njit(cache=True)
def _worth(cell, ref, quarters, im, words):
    """The most that a unit of a caption, of such a weight, matches in a reference, and weighs itself then; and at how
    many places of the reference it can match."""
    most, own, places, last = 0, 0, 0, -1
    for e in range(im.ptr[cell], im.ptr[cell + 1]):
        match, theirs = im.entry[e, 0], 0
        first, fifths = words.ptr[ref] + reference_place(match), FIFTHS[module_of(match)]
        for k in range(first, first + reference_words(match)):
            theirs += 1 if words.function[k] else 3
        most, own = max(most, fifths * theirs), max(own, fifths * quarters)
        places += first != last
        last = first
    return most, own, places


@njit(cache=True)
def _fill(im, words, ix, table):
    """What tokens bring into `table`. What phrases match in the references and weigh themselves, int64 [units, 2,
    MORE]."""
    width, n_words, units = im.refs.shape[0], ix.token_ptr.shape[0] - 1, im.units
    worth = np.zeros((units.shape[0], 2, MORE), np.int64)
    for x in range(units.shape[0]):
        v = units[x]
        for r in range(width):
            most, own, places = _worth(x * width + r, im.refs[r], ix.quarters[v], im, words)
            lane = r % MORE
            if v < n_words:
                for t in range(ix.token_ptr[v], min(ix.token_ptr[v] + places, ix.token_ptr[v + 1])):
                    table[t, lane] = max(table[t, lane], np.uint16(most))
                    table[t, MORE] = max(table[t, MORE], np.uint16(max(own - most, 0)))
            else:
                worth[x, 0, lane], worth[x, 1, lane] = max(worth[x, 0, lane], most), max(worth[x, 1, lane], own)
    return worth


@njit(cache=True)
def _empty(units, ix, table):
    for v in units:
        if v < ix.token_ptr.shape[0] - 1:
            table[ix.token_ptr[v] : ix.token_ptr[v + 1]] = 0


@njit(cache=True)
def _more(worth, tokens, table, out):
    """What a phrase brings more than its words, into out uint16 [LANES]: whether that is anything."""
    above, some = np.int64(0), np.int64(0)
    for t in tokens:
        above += np.int64(table[t, MORE])
    most = np.int64(0)
    for lane in range(MORE):
        words = np.int64(0)
        for t in tokens:
            words += np.int64(table[t, lane])
        more = max(worth[0, lane] - words, 0)
        out[lane] = more
        most, some = max(most, worth[1, lane] - words - more - above), some | more
    out[MORE] = most
    return (some | most) > 0


@njit(cache=True)
def _add_phrases(units, worth, ix, table, sums):
    """What phrases bring more than their words."""
    n_words, more = ix.token_ptr.shape[0] - 1, np.empty(LANES, np.uint16)
    for x in range(units.shape[0]):
        if units[x] >= n_words:
            for g in range(ix.phrase_ptr[units[x] - n_words], ix.phrase_ptr[units[x] - n_words + 1]):
                p = ix.group_ptr[g]
                if _more(worth[x], ix.last[ix.phrase_at[p] : ix.phrase_at[p] + ix.phrase_size[p]], table, more):
                    for c in ix.phrase_caption[p : ix.group_ptr[g + 1]]:
                        for lane in range(LANES):
                            sums[c, lane] = min(sums[c, lane] + more[lane], FULL)


@njit(cache=True)
def _add_words(ptr, ix, table, sums):
    """What words bring."""
    two, out = table.view(np.uint64), sums.view(np.uint64)
    for c in range(ptr.shape[0] - 1):
        low, high = out[c, 0], out[c, 1]
        for p in range(ptr[c], ptr[c + 1]):
            t = ix.token[p]
            low += two[t, 0]
            high += two[t, 1]
        out[c, 0], out[c, 1] = low, high


@njit(cache=True)
def _prepare(im, words, ix, weight, left):
    weight[:], left[:] = np.float32(np.inf), 0
    for r in range(im.refs.shape[0]):
        ref, lane = im.refs[r], r % MORE
        n = words.ptr[ref + 1] - words.ptr[ref]
        weight[lane] = min(weight[lane], np.float32(words.weight[ref] / UNIT))
        for k in range(left.shape[0]):
            left[k, lane] = max(left[k, lane], np.float32(1 - GAMMA * (2 / max(ix.kind_words[k] + n, 2)) ** BETA))


@njit(cache=True, forceinline=True)
def _of_sum(total, more, own, weight, left):
    """The bound by one sum, float32; without a penalty where all words may match in one chunk."""
    both = max(total + more, np.float32(1))
    below = np.float32(1 - ALPHA) * own * total + np.float32(ALPHA) * weight * both
    f = total * both / max(below, TINY) * SLACK
    return f if both >= LEAST * own and total >= LEAST * weight else f * left


@njit(cache=True)
def _fill_bounds(width, ix, room):
    for c in range(room.bounds.shape[0]):
        k, most = ix.kind[c], np.float32(0)
        own, more = ix.kind_weight[k], np.float32(room.sums[c, MORE])
        for lane in range(min(width, MORE)):
            total = np.float32(room.sums[c, lane])
            most = max(most, _of_sum(total, more, own, room.weight[lane], room.left[k, lane]))
        room.bounds[c] = most


@njit(cache=True)
def _value(c, least, aligns, im, index, ix, room):
    """METEOR of a caption, or a number below `least` where it is below, and with how many references it was aligned.
    Without `aligns` what METEOR cannot exceed."""
    best, aligned, k = 0.0, 0, ix.kind[c]
    hits = find_hits(c, index.units, room.local, room.hits)
    own, more = ix.kind_weight[k], np.float32(room.sums[c, MORE])
    for r in range(im.refs.shape[0]):
        lane = r % MORE
        coarse = _of_sum(np.float32(room.sums[c, lane]), more, own, room.weight[lane], room.left[k, lane])
        if coarse >= least and not (room.leave_out and im.refs[r] == c):
            most = bound(c, r, hits, im, index.words, room.places)
            if most > best and most >= least:
                if aligns:
                    most = score_reference(c, r, hits, im, index.words, room.align, room.counts)
                best = max(best, most)
                aligned += aligns
    return best, aligned


@njit(cache=True)
def _lower(level, heap, size):
    """The next level of bounds, float32: no lower than the worst of a heap that is full. Captions are taken from the
    highest level down, until the worst of the best is above the next."""
    level = level * STEP if level > LOWEST else np.float32(0)
    return max(level, heap[0]) if size == heap.shape[0] else level


@njit(cache=True)
def _best(im, index, ix, room, heap, rows, seed, keys):
    """The best captions into the heap; how many captions were aligned."""
    level, n, valued = np.float32(1), 0, 0
    room.closer[:] = False
    while True:
        for at in range(0, room.bounds.shape[0], BLOCK):
            some = room.bounds[at : at + BLOCK]
            hits = np.uint8(0)
            for j in range(some.shape[0]):
                hits |= np.uint8(some[j] >= level)
            if hits:
                for j in range(some.shape[0]):
                    c, least = at + j, heap[0] if n == heap.shape[0] else np.float32(0)
                    if some[j] >= level and not room.closer[c]:
                        most, _ = _value(c, least, False, im, index, ix, room)
                        some[j], room.closer[c] = min(some[j], np.float32(most)), True
                    if some[j] >= max(level, least):
                        value, aligned = _value(c, least, True, im, index, ix, room)
                        n = push(np.float32(value), c, heap, rows, n, seed, keys)
                        valued += aligned > 0
                    if some[j] >= level:
                        some[j] = -1
        if n == heap.shape[0] and heap[0] >= level or level == 0:
            return valued
        level = _lower(level, heap, n)


@njit(nogil=True, cache=True)
def tops(begin, end, pairs, index, longest, ix, ties, found):
    """The best captions of pairs.images[begin:end], equal ones by `Ties`, unsorted, into `Tops`. Its `pairs` are
    captions that were aligned with a reference or more."""
    images, n = pairs.images, index.words.ptr.shape[0] - 1
    room = BoundRoom(
        np.full(index.matches.ptr.shape[0] - 1, -1, np.int32), np.zeros((ix.token_ptr[-1], LANES), np.uint16),
        np.empty((n, LANES), np.uint16), np.empty(n, np.float32), np.empty(n, np.bool_), np.empty(LANES, np.float32),
        np.empty((ix.kind_weight.shape[0], LANES), np.float32), np.empty((7 * longest, 3), np.int64),
        np.empty(longest + 1, np.uint64), np.empty(COUNTS), alignment_room(longest, MATCHES), pairs.leave_out,
    )  # fmt: skip
    for b in range(begin, end):
        own = pairs.refs[pairs.ref_ptr[images[b]] : pairs.ref_ptr[images[b] + 1]]
        im = fold(own, index.units, index.matches, room.local)
        worth = _fill(im, index.words, ix, room.table)
        room.sums[:] = 0
        _add_phrases(im.units, worth, ix, room.table, room.sums)
        _add_words(index.words.ptr, ix, room.table, room.sums)
        _prepare(im, index.words, ix, room.weight, room.left)
        _fill_bounds(own.shape[0], ix, room)
        seed, keys = ties.images[images[b]], ties.captions
        found.pairs[b] = _best(im, index, ix, room, found.values[b], found.rows[b], seed, keys)
        _empty(im.units, ix, room.table)
        forget(im.units, room.local)


def bound_index(index: MatchIndex) -> BoundIndex:
    """Tokens, phrases and weights of the captions."""
    sizes, units = np.diff(index.words.ptr), index.units
    word, row = units.number[units.length == 1], np.repeat(np.arange(len(sizes)), sizes)
    token = _tokens(row, word)
    word_of_token = np.empty(token.max(initial=-1) + 1, np.int32)
    word_of_token[token] = word
    token_ptr = np.searchsorted(word_of_token, np.arange(word.max(initial=-1) + 2))
    last = _last(row, word, token)
    words_of_kind = int(sizes.max(initial=0)) + 1
    quarters = np.rint(index.words.weight / QUARTER).astype(np.int64)
    kinds, kind = np.unique(quarters * words_of_kind + sizes, return_inverse=True)
    weight = (kinds // words_of_kind * (QUARTER / UNIT)).astype(np.float32)
    return BoundIndex(
        token=token.astype(np.int32), last=last, token_ptr=token_ptr, **_phrases(index, last, len(token_ptr) - 1),
        kind=kind.astype(np.int32), kind_weight=weight, kind_words=(kinds % words_of_kind).astype(np.float64),
    )  # fmt: skip


def _tokens(row: np.ndarray, word: np.ndarray) -> np.ndarray:
    """Number of each token, int64 [words]: a word and how often it came before in its caption, so that captions share
    as many tokens as both have of a word. `row` and `word` int [words]: the captions' words, ascending by caption."""
    by_word = np.lexsort((word, row))
    first = np.ones(len(word), bool)
    first[1:] = (np.diff(word[by_word]) != 0) | (np.diff(row[by_word]) != 0)
    at = np.arange(len(word))
    before = np.empty(len(word), np.int64)
    before[by_word] = at - np.maximum.accumulate(np.where(first, at, 0))
    return np.unique(word * (before.max(initial=0) + 1) + before, return_inverse=True)[1]


def _phrases(index: MatchIndex, last: np.ndarray, n_words: int) -> dict[str, np.ndarray]:
    """Of `BoundIndex`: phrase_ptr to quarters."""
    words, units, matches = index
    row = np.repeat(np.arange(len(words.ptr) - 1), np.diff(units.ptr))
    at = words.ptr[row] + units.start
    quarters = np.append(0, np.cumsum(np.where(words.function, 1, 3)))
    weight = np.zeros(len(matches.ptr) - 1, np.int32)
    weight[units.number] = quarters[at + units.length] - quarters[at]
    some = np.flatnonzero(units.length > 1)
    size, first = units.length[some], at[some]
    columns = [np.where(k < size, last[np.minimum(first + k, len(last) - 1)], -1) for k in range(LONGEST)]
    order = np.lexsort((*columns, units.number[some]))
    key = np.stack([units.number[some], *columns])[:, order]
    starts = np.flatnonzero(np.append(True, (np.diff(key) != 0).any(axis=0))[: len(order)])
    phrase_ptr = np.searchsorted(key[0, starts], np.arange(n_words, len(weight) + 1))
    some = some[order]
    return {
        "phrase_ptr": phrase_ptr,
        "group_ptr": np.append(starts, len(some)),
        "phrase_caption": row[some].astype(np.int32),
        "phrase_at": at[some],
        "phrase_size": units.length[some],
        "quarters": weight,
    }


def _last(row: np.ndarray, word: np.ndarray, token: np.ndarray) -> np.ndarray:
    """int32 [words]: the token that a word is where it stands last in its caption."""
    order = np.lexsort((token, row))
    ends = np.flatnonzero(np.append((np.diff(word[order]) != 0) | (np.diff(row[order]) != 0), True)[: len(word)])
    last = np.empty(len(word), np.int32)
    last[order] = np.repeat(token[order][ends], np.diff(ends, prepend=-1))
    return last

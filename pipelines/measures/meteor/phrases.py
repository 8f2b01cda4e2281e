"""METEOR's paraphrase table, cut down to the phrases that occur in a set of captions.

The table has five million pairs of phrases of one to seven words. One pass over its bytes keeps the pairs all of
whose words the captions have; of those, the pairs whose two phrases both occur in some caption. Phrases are known
by a 64-bit hash of their word numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from capgrade.schemas.bits import GOLDEN, mix
from capgrade.schemas.compiled import njit

LONGEST = 7  # words of a phrase


@njit(cache=True)
def _mixed(h, x):
    """A step of a 64-bit hash."""
    return mix(h + np.uint64(x) + GOLDEN)


@njit(cache=True)
def _number_words(text, start, slots):
    """Put the words text[start[w]:start[w + 1]] into an open hash table of word numbers."""
    mask = np.uint64(slots.shape[0] - 1)
    for w in range(start.shape[0] - 1):
        h = np.uint64(0)
        for k in range(start[w], start[w + 1]):
            h = _mixed(h, text[k])
        at = h & mask
        while slots[at] >= 0:
            at = (at + np.uint64(1)) & mask
        slots[at] = w


@njit(cache=True)
def _word_at(data, begin, end, text, start, slots):
    """Number of the word data[begin:end], -1 if unknown."""
    mask, h = np.uint64(slots.shape[0] - 1), np.uint64(0)
    for k in range(begin, end):
        h = _mixed(h, data[k])
    at = h & mask
    while slots[at] >= 0:
        w = slots[at]
        if start[w + 1] - start[w] == end - begin:
            k = 0
            while k < end - begin and text[start[w] + k] == data[begin + k]:
                k += 1
            if k == end - begin:
                return w
        at = (at + np.uint64(1)) & mask
    return -1


@njit(cache=True)
def _read_phrase(data, at, text, start, slots):
    """Hash and number of words of the line at `at`, and where the next begins; 0 words if one is unknown."""
    h, size, known = np.uint64(0), 0, True
    while data[at] != 10:
        end = at
        while data[end] != 10 and data[end] != 32:
            end += 1
        if known and end > at:
            w = _word_at(data, at, end, text, start, slots)
            known = w >= 0
            h, size = _mixed(h, w), size + 1
        at = end + (data[end] == 32)
    return h, size if known else 0, at + 1


@njit(cache=True)
def _scan(data, text, start, slots, phrases, sizes, rows):
    """Phrase hashes uint64 [n, 2], their sizes and table rows of the entries made of known words; how many, or -1 - row
    of a broken entry."""
    at, n, row = 0, 0, 0
    while at < data.shape[0]:
        while data[at] != 10:
            at += 1
        if at + 1 >= data.shape[0]:
            return -1 - row
        h, size, at = _read_phrase(data, at + 1, text, start, slots)
        if at >= data.shape[0]:
            return -1 - row
        h2, size2, at = _read_phrase(data, at, text, start, slots)
        if size > 0 and size2 > 0:
            phrases[n, 0], phrases[n, 1], rows[n] = h, h2, row
            sizes[n, 0], sizes[n, 1] = size, size2
            n += 1
        row += 1
    return n


@njit(cache=True)
def _find(known, wanted):
    """Place of a hash in the sorted `known`, -1 if it is not there."""
    low, high = 0, known.shape[0]
    while low < high:
        middle = (low + high) // 2
        if known[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < known.shape[0] and known[low] == wanted else -1


@njit(cache=True)
def _mark(ptr, word, known, longest, seen):
    """Mark the phrases that occur in some caption."""
    for c in range(ptr.shape[0] - 1):
        for i in range(ptr[c], ptr[c + 1]):
            h = np.uint64(0)
            for k in range(i, min(i + longest, ptr[c + 1])):
                h = _mixed(h, word[k])
                at = _find(known, h)
                if at >= 0:
                    seen[at] = True


@njit(cache=True)
def _occurrences(ptr, word, known, unit, longest, write, start, length, found, out_ptr):
    """Where phrases of two or more words stand in each caption, by place, then length; single words among them."""
    n = 0
    for c in range(ptr.shape[0] - 1):
        out_ptr[c] = n
        for i in range(ptr[c], ptr[c + 1]):
            h = np.uint64(0)
            for k in range(i, min(i + longest, ptr[c + 1])):
                h = _mixed(h, word[k])
                at = -1 if k == i else _find(known, h)
                if k == i or at >= 0:
                    if write:
                        start[n], length[n] = i - ptr[c], k - i + 1
                        found[n] = word[i] if k == i else unit[at]
                    n += 1
    out_ptr[ptr.shape[0] - 1] = n
    return n


def phrase_pairs(
    data: np.ndarray, words: Sequence[str], ptr: np.ndarray, word: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Entries of the table `data` whose phrases both occur in the captions: phrase hashes uint64 [n, 2], sizes int8
    [n, 2] and table rows int64 [n]. Captions are word numbers `word`, split by `ptr`."""
    encoded = [w.encode() for w in words]
    text = np.frombuffer(b"".join(encoded), np.uint8)
    start = np.concatenate([[0], np.cumsum([len(w) for w in encoded])]).astype(np.int64)
    slots = np.full(1 << int(4 * len(words) + 1).bit_length(), -1, np.int32)
    _number_words(text, start, slots)
    room = int(np.count_nonzero(data == 10)) // 3 + 1
    phrases, sizes, rows = np.empty((room, 2), np.uint64), np.empty((room, 2), np.int8), np.empty(room, np.int64)
    n = _scan(data, text, start, slots, phrases, sizes, rows)
    if n < 0:
        raise ValueError(f"entry {-1 - n} of the paraphrase table is cut short")
    known = np.unique(phrases[:n])
    seen = np.zeros(len(known), bool)
    _mark(ptr, word, known, LONGEST, seen)
    kept = seen[np.searchsorted(known, phrases[:n])].all(axis=1)
    return phrases[:n][kept], sizes[:n][kept], rows[:n][kept]


def occurrences(
    ptr: np.ndarray, word: np.ndarray, known: np.ndarray, unit: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Every word and every phrase of several words in `known` (sorted hashes, numbered by `unit`) in each caption:
    int64 [n_captions + 1] splits, int16 place, int8 length, int32 number."""
    out_ptr = np.empty(len(ptr), np.int64)
    none = np.empty(0, np.int32)
    n = _occurrences(ptr, word, known, unit, LONGEST, False, none, none, none, out_ptr)
    start, length, found = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    _occurrences(ptr, word, known, unit, LONGEST, True, start, length, found, out_ptr)
    return out_ptr, start, length, found


def hash_of(word: int) -> np.uint64:
    """The hash of a phrase of one word."""
    return np.uint64(_mixed(np.uint64(0), word))

"""N-grams of sentences as numbers, by a hash table of (number of the n-gram without its last word, last word)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange

from capgrade.pipelines.measures.ngrams import MAX_ORDER, Sentences
from capgrade.schemas.compiled import njit
from capgrade.schemas.threads import get_num_threads

SMALL = 100_000  # n-grams that one thread has counted before others have started
FEW = 64  # n-grams of a sentence that are sorted one by one
ALONE = 1 << 62  # in place of a beginning, for the first word


class Table(NamedTuple):
    """Numbered n-grams: an open hash table of a power of two of slots. An n-gram's key is the number of its beginning
    << 32 | its last word; beginnings have smaller numbers."""

    slots: np.ndarray  # int32 [slots]: the number of an n-gram, -1 where free
    keys: np.ndarray  # int64 [n_grams]: of each number

    @property
    def n_grams(self) -> int:
        return len(self.keys)


class Grams(NamedTuple):
    """What n-grams each sentence has and how often: those of order n + 1 of sentence s are `gram` and `count` from
    `ptr[s] * most + n * words` on, `used[s, n]` of them, ascending."""

    ptr: np.ndarray  # int64 [n_sentences + 1]: words of each sentence
    gram: np.ndarray  # int32 [words * most]
    count: np.ndarray  # type: ignore[assignment]  # int32 [words * most]
    used: np.ndarray  # int32 [n_sentences, most]

    @property
    def most(self) -> int:
        return self.used.shape[1]

    @property
    def sentences(self) -> Sentences:
        """As the definitions of measures take them."""
        words = np.diff(self.ptr)
        start = self.ptr[:-1, None] * self.most + np.arange(self.most) * words[:, None]
        return Sentences(start, start + self.used, self.gram, self.count, words)


@njit(cache=True, forceinline=True)
def _slot(key, slots, keys):
    """Slot of a key, or the free one where it would go."""
    mask = np.uint64(slots.shape[0] - 1)
    z = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    at = (z ^ (z >> np.uint64(29))) & mask
    while slots[at] != -1 and keys[slots[at]] != key:
        at = (at + np.uint64(1)) & mask
    return at


@njit(cache=True)
def _number(ptr, word, most, slots, keys, out):
    """Number the n-gram that starts at each word, of every order, into out int32 [most, words]: how many there are.
    One order after the other: no look-up then waits for the one before."""
    n = 0
    out[:] = -1
    for k in range(most):
        for s in range(ptr.shape[0] - 1):
            for i in range(ptr[s], ptr[s + 1] - k):
                before = np.int64(out[k - 1, i]) << 32 if k else ALONE
                wanted = before | np.int64(word[i + k])
                at = _slot(wanted, slots, keys)
                if slots[at] == -1:
                    slots[at], keys[n] = n, wanted
                    n += 1
                out[k, i] = slots[at]
    return n


@njit(cache=True)
def _look_up(keys, word, known_slots, known_keys, out):
    """The numbers that another table has for n-grams, -1 where it has none; `word` has its numbers of words."""
    for n in range(keys.shape[0]):
        out[n] = -1
        last, before = word[keys[n] & 0xFFFFFFFF], keys[n] >> 32
        if before != ALONE >> 32:
            before = np.int64(out[before])
        if last >= 0 and before >= 0:
            out[n] = known_slots[_slot(before << 32 | np.int64(last), known_slots, known_keys)]


@njit(cache=True)
def _count(first, last, ptr, numbers, gram, count, used):
    """The n-grams of sentences first..last sorted, equal ones counted."""
    most = numbers.shape[0]
    for s in range(first, last):
        size = ptr[s + 1] - ptr[s]
        for n in range(most):
            start = ptr[s] * most + n * size
            k = max(size - n, 0)
            if k > FEW:
                gram[start : start + k] = np.sort(numbers[n, ptr[s] : ptr[s] + k])
            for x in range(k if k <= FEW else 0):  # sorted as they come, for they are few
                at, new = start + x, numbers[n, ptr[s] + x]
                while at > start and gram[at - 1] > new:
                    gram[at] = gram[at - 1]
                    at -= 1
                gram[at] = new
            u = 0
            for x in range(start, start + k):
                if u and gram[start + u - 1] == gram[x]:
                    count[start + u - 1] += 1
                else:
                    gram[start + u], count[start + u] = gram[x], 1
                    u += 1
            used[s, n] = u


@njit(parallel=True, cache=True)
def _count_all(parts, ptr, numbers, gram, count, used):
    n = ptr.shape[0] - 1
    for k in prange(parts):
        _count(k * n // parts, (k + 1) * n // parts, ptr, numbers, gram, count, used)


def number_grams(ptr: np.ndarray, word: np.ndarray, most: int = MAX_ORDER) -> tuple[np.ndarray, Table]:
    """The number of the n-gram that starts at each word, int32 [most, words], -1 where there is none; and the table.
    Words of sentence s are `word[ptr[s]:ptr[s + 1]]`, int32."""
    cells = most * len(word)
    slots, keys = np.full(1 << int(1.3 * cells + 1).bit_length(), -1, np.int32), np.empty(cells, np.int64)
    numbers = np.empty((most, len(word)), np.int32)
    n = _number(ptr, word, most, slots, keys, numbers)
    return numbers, Table(slots, keys[:n].copy())


def look_up(table: Table, words: np.ndarray, known: Table) -> np.ndarray:
    """The number in `known` of each n-gram of `table`, int32 [n_grams], -1 where it has none; `words` int32 has the
    number there of each word, -1 where it has none."""
    out = np.empty(table.n_grams, np.int32)
    _look_up(table.keys, words, known.slots, known.keys, out)
    return out


def count_grams(ptr: np.ndarray, numbers: np.ndarray) -> Grams:
    """The n-grams of sentences, counted; from `number_grams`."""
    cells = numbers.size
    gram, count = np.zeros(cells, np.int32), np.empty(cells, np.int32)
    used = np.empty((len(ptr) - 1, len(numbers)), np.int32)
    if cells < SMALL:
        _count(0, len(used), ptr, numbers, gram, count, used)
    else:
        _count_all(8 * get_num_threads(), ptr, numbers, gram, count, used)
    return Grams(ptr, gram, count, used)


@njit(cache=True)
def _frequencies(ref_ptr, first, grams, out):
    seen = np.full(out.shape[0], -1, np.int32)
    ptr, gram, used = grams.ptr, grams.gram, grams.used
    for i in range(ref_ptr.shape[0] - 1):
        for s in range(first + ref_ptr[i], first + ref_ptr[i + 1]):
            for n in range(used.shape[1]):
                start = ptr[s] * used.shape[1] + n * (ptr[s + 1] - ptr[s])
                for x in range(start, start + used[s, n]):
                    if seen[gram[x]] != i:
                        seen[gram[x]] = i
                        out[gram[x]] += 1


def document_frequencies(grams: Grams, ref_ptr: np.ndarray, first: int, n_grams: int) -> np.ndarray:
    """int32 [n_grams]: how many reference sets have each n-gram. References are the sentences from `first` on, split by
    `ref_ptr` int64 [n_images + 1]."""
    out = np.zeros(n_grams, np.int32)
    _frequencies(ref_ptr, first, grams, out)
    return out

"""METEOR's paraphrase table as arrays, made once and kept, and what of it occurs in a set of captions.

The table has five million pairs of phrases of one to seven words. A phrase is known by a 64-bit hash of its words'
hashes; the paraphrases of each are listed, so that those of a set of captions are found without a pass over the table.
"""

from __future__ import annotations

import gzip
import zlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capgrade.bits import GOLDEN, mix
from capgrade.kernels import as_python, in_threads, njit
from capgrade.measures.embeddings import cache_folder
from capgrade.measures.meteor.data import AGAIN
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import CACHE, atomic
from capgrade.schemas.inputs import file_digest
from capgrade.schemas.say import tell, warn

LONGEST = 7  # words of a phrase
BITS = 20  # of a hash that choose a bucket
BEGIN_BITS = 25  # of a hash that choose a bit of `begins`
VERSION = 1  # of the arrays


@njit(cache=True)
def mixed(h, x):
    """A step of a 64-bit hash."""
    return mix(h + np.uint64(x) + GOLDEN)


class Paraphrases(NamedTuple):
    """Phrases by ascending hash, and the paraphrases of each."""

    phrase: np.ndarray  # uint64 [phrases]
    bucket: np.ndarray  # int32 [2^BITS + 1]: where the phrases start whose hash begins with these bits
    begins: np.ndarray  # uint64: a bit for the low bits of the hash of every beginning of a longer phrase
    ptr: np.ndarray  # int64 [phrases + 1]
    other: np.ndarray  # int32 [pairs]: a paraphrase of the phrase
    rank: np.ndarray  # int32 [pairs]: order in which METEOR tries them: size of the phrase, then place in the table


@njit(cache=True, forceinline=True)
def _bit(h):
    """Which number of `begins`, and the bit of it."""
    low = h & np.uint64((1 << BEGIN_BITS) - 1)
    return low >> np.uint64(6), np.uint64(1) << (low & np.uint64(63))


@njit(cache=True)
def _hash_line(data, at, begins):
    """Hash and number of words of the line at `at`, and where the next begins. Its beginnings are marked."""
    h, size = np.uint64(0), 0
    while data[at] != 10:
        word, start = np.uint64(0), at
        while data[at] != 10 and data[at] != 32:
            word = mixed(word, data[at])
            at += 1
        if at > start:
            h, size = mixed(h, word), size + 1
        if data[at] == 32:
            where, bit = _bit(h)
            begins[where] |= bit
            at += 1
    return h, size, at + 1


@njit(cache=True)
def _read(data, phrases, sizes, begins):
    """Both phrases of every entry: how many entries, or -1 - row of a broken one."""
    at, row = 0, 0
    while at < data.shape[0]:
        while data[at] != 10:
            at += 1
        if at + 1 >= data.shape[0]:
            return -1 - row
        phrases[row, 0], sizes[row], at = _hash_line(data, at + 1, begins)
        if at >= data.shape[0]:
            return -1 - row
        phrases[row, 1], _, at = _hash_line(data, at, begins)
        row += 1
    return row


def compiled(data: np.ndarray) -> Paraphrases:
    """From the table's text, uint8: probability, phrase and paraphrase on three lines each. ValueError for a broken
    entry."""
    room = int(np.count_nonzero(data == 10)) // 3 + 1
    phrases, sizes = np.empty((room, 2), np.uint64), np.empty(room, np.int8)
    begins = np.zeros(1 << (BEGIN_BITS - 6), np.uint64)
    n = _read(data, phrases, sizes, begins)
    if n < 0:
        raise ValueError(f"entry {-1 - n} of the paraphrase table is cut short")
    known, number = np.unique(phrases[:n], return_inverse=True)
    number = number.reshape(n, 2).astype(np.int32)
    rank = np.empty(n, np.int32)
    rank[np.argsort(sizes[:n], kind="stable")] = np.arange(n)
    order = np.argsort(number[:, 0], kind="stable")
    ptr = np.searchsorted(number[order, 0], np.arange(len(known) + 1))
    tops = np.arange(1 << BITS, dtype=np.uint64) << np.uint64(64 - BITS)
    bucket = np.append(np.searchsorted(known, tops), len(known)).astype(np.int32)
    return Paraphrases(known, bucket, begins, ptr, number[order, 1].copy(), rank[order])


@njit(cache=True, forceinline=True)
def _find(h, phrase, bucket):
    """Number of a phrase, -1 if it is not there."""
    top = h >> np.uint64(64 - BITS)
    for at in range(bucket[top], bucket[top + np.uint64(1)]):
        if phrase[at] == h:
            return at
    return -1


@njit(cache=True, forceinline=True)
def _may_go_on(h, begins):
    where, bit = _bit(h)
    return begins[where] & bit != 0


@njit(nogil=True, cache=True)
def _occurring(begin, end, ptr, word, word_hash, phrase, bucket, begins, out, seen):
    """Of sentences begin..end. What one thread writes into `seen` another may write too: the same."""
    n = word_hash.shape[0]
    first, alone, goes_on = np.empty(n, np.uint64), np.empty(n, np.int32), np.empty(n, np.bool_)
    for w in range(n):
        h = mixed(np.uint64(0), word_hash[w])
        first[w], alone[w], goes_on[w] = h, _find(h, phrase, bucket), _may_go_on(h, begins)
        seen[alone[w]] = True
    for s in range(begin, end):
        for i in range(ptr[s], ptr[s + 1]):
            h, more = first[word[i]], goes_on[word[i]]
            for k in range(out.shape[1]):
                out[i, k] = -1
            out[i, 0] = alone[word[i]]
            for k in range(1, min(out.shape[1], ptr[s + 1] - i)):
                if not more:
                    break
                h = mixed(h, word_hash[word[i + k]])
                found, more = _find(h, phrase, bucket), _may_go_on(h, begins)
                if found >= 0:
                    out[i, k], seen[found] = found, True


@njit(cache=True)
def _pairs(present, seen, ptr, other, rank, out):
    """Paraphrases among the phrases seen, as (phrase, paraphrase, rank) into out: how many."""
    n = 0
    for p in present:
        for k in range(ptr[p], ptr[p + 1]):
            if seen[other[k]]:
                if n < out.shape[0]:
                    out[n, 0], out[n, 1], out[n, 2] = p, other[k], rank[k]
                n += 1
    return n


@njit(cache=True)
def hash_runs(data, ptr, out):
    """A hash of each run data[ptr[k]:ptr[k + 1]] into out uint64."""
    for r in range(out.shape[0]):
        h = np.uint64(0)
        for k in range(ptr[r], ptr[r + 1]):
            h = mixed(h, data[k])
        out[r] = h


def occurring_pairs(
    table: Paraphrases, words: list[str], ptr: np.ndarray, word: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The table's phrase that starts at each word with each number of words, int32 [words, LONGEST], -1 for none; and
    the pairs both of whose phrases occur, as (phrase, paraphrase, rank) int32 [n, 3]. Sentences are word numbers
    `word`, split by `ptr`."""
    encoded = [w.encode("utf-8", "surrogatepass") for w in words]
    start = np.concatenate([[0], np.cumsum([len(w) for w in encoded])]).astype(np.int64)
    hashes, at = np.empty(len(words), np.uint64), np.empty((len(word), LONGEST), np.int32)
    hash_runs(np.frombuffer(b"".join(encoded), np.uint8).astype(np.int64), start, hashes)
    seen = np.zeros(len(table.phrase) + 1, bool)  # the last, of phrase -1, is no phrase
    phrases = table.phrase, table.bucket, table.begins
    in_threads(_occurring, len(ptr) - 1, ptr, word, hashes, *phrases, at, seen)
    present = np.flatnonzero(seen[:-1])
    pairs = np.empty((32 * len(present), 3), np.int32)
    n = _pairs(present, seen, table.ptr, table.other, table.rank, pairs)
    if n > len(pairs):
        pairs = np.empty((n, 3), np.int32)
        _pairs(present, seen, table.ptr, table.other, table.rank, pairs)
    return at, pairs[:n]


@cache
def read_paraphrases(path: Path) -> Paraphrases:
    """The table of METEOR's paraphrase file, read once a process; its arrays are kept in `$CAPGRADE_CACHE/meteor`.

    InputError when the file cannot be read or is cut short.
    """
    folder = cache_folder().parent / "meteor" / f"{file_digest(path)[:16]}-{VERSION}"
    found = _kept(folder)
    if found is None:
        found = _compile(path)
        _keep(found, folder)
    return found


def _compile(path: Path) -> Paraphrases:
    tell("reading METEOR's paraphrases, once")
    try:
        with as_python(False):  # millions of entries
            return compiled(np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8))
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot be read: {error}", file=path, remedy=AGAIN) from error
    except ValueError as error:
        raise InputError(str(error), file=path, remedy=AGAIN) from error


def _kept(folder: Path) -> Paraphrases | None:
    """None where there is none, or a file is damaged."""
    try:
        # Copy on write: kernels are compiled once, for writable arrays.
        arrays = [np.asarray(np.load(folder / f"{n}.npy", mmap_mode="c")) for n in Paraphrases._fields]
    except (OSError, ValueError, EOFError):
        return None
    found = Paraphrases(*arrays)
    whole = len(found.ptr) == len(found.phrase) + 1 and found.ptr[-1] == len(found.other) == len(found.rank)
    return found if whole else None


def _keep(table: Paraphrases, folder: Path) -> None:
    try:
        for name, array in table._asdict().items():
            with atomic(folder / f"{name}.npy", CACHE) as temporary, temporary.open("wb") as f:
                np.save(f, array, allow_pickle=False)
    except (OSError, InputError) as error:
        warn(f"METEOR's paraphrases cannot be kept, so every process reads them anew: {error} -> set CAPGRADE_CACHE")

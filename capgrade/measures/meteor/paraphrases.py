"""METEOR's paraphrase table as arrays, made once and kept, and what of it some captions have.

The table has five million pairs of phrases of one to seven words. Phrases are numbered as n-grams
are, with words known by a 64-bit hash. The paraphrases of each are listed, so that those of a set
of captions are found without a pass over the table.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.kernels import GOLDEN, mix_all
from capgrade.measures.meteor.english import REINSTALL
from capgrade.measures.ngrams import ALONE, find
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import CACHE, atomic, cache_folder, file_digest
from capgrade.schemas.progress import count_part, counted_work, progress
from capgrade.schemas.say import tell, warn
from capgrade.text.tokens import split_at_spaces

LONGEST = 7  # words of a phrase
VERSION = 4  # of the arrays
_STEPS = LONGEST + 3  # of making them


class Paraphrases(NamedTuple):
    """Phrases, and what they begin with, numbered in the order of their keys; what they mean too.

    A key is as of `number_ngrams`: the number of all but the last word << 32 | the last word.
    """

    words: np.ndarray  # uint64 [words], rising: a hash of each word, whose place is its number
    keys: np.ndarray  # int64 [phrases], rising
    ptr: np.ndarray  # int64 [phrases + 1]: where the paraphrases of each are
    other: np.ndarray  # int32 [pairs]: a paraphrase of the phrase
    # int32 [pairs]: order in which METEOR tries them: by size of the phrase, then as in the table
    rank: np.ndarray


def compile_table(text: bytes) -> Paraphrases:
    """The table from its text: probability, phrase and paraphrase on three lines each.

    Each of its steps is counted (`count_part`). ValueError for a broken entry.
    """
    phrases = _read_phrases(text)
    count_part(1, _STEPS)
    ptr, word, vocabulary = split_at_spaces(phrases.dictionary)
    count_part(1, _STEPS)
    sizes, code = np.diff(ptr), phrases.indices.to_numpy().reshape(-1, 2)
    hashes = _hash_words(vocabulary)
    words = np.sort(hashes)
    word = np.searchsorted(words, hashes)[word]
    number, keys, n = np.full(len(sizes), ALONE), [], 0
    for k in range(sizes.max()):
        rows = np.flatnonzero(sizes > k)
        new, which = np.unique(number[rows] << 32 | word[ptr[rows] + k], return_inverse=True)
        number[rows] = n + which
        keys.append(new)
        n += len(new)
        count_part(1, _STEPS)
    phrase = number[code].astype(np.int32)
    rank = np.empty(len(code), np.int32)
    rank[np.argsort(sizes[code[:, 0]], kind="stable")] = np.arange(len(code))
    by_phrase = np.argsort(phrase[:, 0], kind="stable")
    starts = np.searchsorted(phrase[by_phrase, 0], np.arange(n + 1))
    return Paraphrases(words, np.concatenate(keys), starts, phrase[by_phrase, 1], rank[by_phrase])


def _read_phrases(text: bytes) -> pa.DictionaryArray:
    """Phrase and paraphrase of every entry, one after the other."""
    lines = pc.split_pattern(
        pa.array([text], pa.large_binary()).cast(pa.large_string()), "\n"
    ).flatten()
    n, rest = divmod(len(lines) - 1, 3)  # what follows the last line break is no line
    if rest or not n:
        raise ValueError(f"entry {n} of the paraphrase table is cut short")
    return lines.take(pa.array(np.flatnonzero(np.arange(3 * n) % 3))).dictionary_encode()


def _hash_words(words: Sequence[str]) -> np.ndarray:
    """uint64 [n]: a hash of each word."""
    encoded = [word.encode("utf-8", "surrogatepass") for word in words]
    ptr = np.concatenate([[0], np.cumsum([len(word) for word in encoded], dtype=np.int64)])
    return hash_runs(np.frombuffer(b"".join(encoded), np.uint8), ptr)


def hash_runs(data: np.ndarray, ptr: np.ndarray) -> np.ndarray:
    """uint64 [n]: a hash of each run data[ptr[k] : ptr[k + 1]] of whole numbers."""
    hashes, rows = np.zeros(len(ptr) - 1, np.uint64), np.arange(len(ptr) - 1)
    for k in range(np.diff(ptr).max(initial=0)):
        rows = rows[ptr[rows] + k < ptr[rows + 1]]
        numbers = data[ptr[rows] + k].astype(np.uint64)
        hashes[rows] = mix_all(hashes[rows] + numbers + GOLDEN)
    return hashes


def find_phrases(
    table: Paraphrases, words: Sequence[str], ptr: np.ndarray, word: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The table's phrases in sentences, which are numbers `word` of `words`, split by `ptr`.

    Returns the phrase of each of `words` alone, int64, -1 for none; and those of several words,
    int64 [3, n]: place of the first word, number of words, phrase. Longer ones come later.
    """
    own, end = find(_hash_words(words), table.words), np.repeat(ptr[1:], np.diff(ptr))
    single = find(ALONE << 32 | own, table.keys)
    place = np.flatnonzero(single[word] >= 0)
    phrase, longer = single[word[place]], [np.empty((3, 0), np.int64)]
    for size in range(2, LONGEST + 1):
        goes_on = place + size <= end[place]
        place, before = place[goes_on], phrase[goes_on]
        # The key of a word that the table does not have is -1, which no phrase has.
        keys, which = np.unique(before << 32 | own[word[place + size - 1]], return_inverse=True)
        phrase = find(keys, table.keys)[which]
        known = phrase >= 0
        place, phrase = place[known], phrase[known]
        longer.append(np.stack([place, np.full(len(place), size), phrase]))
    return single, np.concatenate(longer, axis=1)


def paraphrases_among(table: Paraphrases, phrases: np.ndarray) -> np.ndarray:
    """The table's pairs of these phrases alone: (phrase, paraphrase, rank), int64 [n, 3]."""
    occurs = np.zeros(len(table.keys), bool)
    occurs[phrases] = True
    phrase = np.flatnonzero(occurs)
    sizes = table.ptr[phrase + 1] - table.ptr[phrase]
    entry = np.arange(sizes.sum()) + np.repeat(
        table.ptr[phrase] - (np.cumsum(sizes) - sizes), sizes
    )
    pairs = np.stack([np.repeat(phrase, sizes), table.other[entry], table.rank[entry]], axis=1)
    return pairs[occurs[pairs[:, 1]]]


@cache
def read_paraphrases(path: Path) -> Paraphrases:
    """The table of METEOR's paraphrase file, read once a process.

    Its arrays are kept in `$CAPGRADE_CACHE/meteor`. InputError when the file cannot be read or is
    cut short.
    """
    folder = cache_folder() / "meteor" / f"{file_digest(path)[:16]}-{VERSION}"
    table = _load_table(folder)
    if table is None:
        table = _read_table(path)
        _save_table(table, folder)
    return table


def _read_table(path: Path) -> Paraphrases:
    what = "building METEOR's table of paraphrases, once"
    tell(what)
    try:
        with progress(what, _STEPS, "steps") as advance, counted_work(_STEPS, advance):
            return compile_table(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot be read: {error}", file=path, remedy=REINSTALL) from error
    except ValueError as error:
        raise InputError(str(error), file=path, remedy=REINSTALL) from error


def _load_table(folder: Path) -> Paraphrases | None:
    """The kept table; None where there is none, or a file is damaged."""
    try:
        arrays = [
            np.asarray(np.load(folder / f"{n}.npy", mmap_mode="r")) for n in Paraphrases._fields
        ]
    except (OSError, ValueError, EOFError):
        return None
    table = Paraphrases(*arrays)
    complete = len(table.ptr) == len(table.keys) + 1 and table.ptr[-1] == len(table.other) == len(
        table.rank
    )
    return table if complete else None


def _save_table(table: Paraphrases, folder: Path) -> None:
    try:
        for name, array in table._asdict().items():
            with atomic(folder / f"{name}.npy", CACHE) as temporary, temporary.open("wb") as f:
                np.save(f, array, allow_pickle=False)
    except (OSError, InputError) as error:
        problem = "METEOR's paraphrases cannot be kept, so every process reads them anew"
        warn(f"{problem}: {error} -> set CAPGRADE_CACHE")

"""Captions of one batch after another, as words with the numbers that document frequencies have for them.

Every piece of text between spaces is read once and remembered; so are the few captions that are read as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from capgrade.measures.scores.frequencies import Frequencies
from capgrade.text.ptb import alone
from capgrade.text.tokens import one_line, tokenize
from capgrade.text.words import NO_TOKENIZER, words_of

BREAK = "\n"  # between captions
END, NONE, WHOLE = -1, -2, -3  # the caption ends; no word; the caption is read as a whole


class _Numbers(dict[str, int]):
    """The number of each word; a new one gets the next."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


class _Pieces(dict[str, int]):
    """The number of the word that stands between two spaces, or one of the marks above."""

    def __init__(self, tokenizer: str, numbers: _Numbers) -> None:
        self._tokenizer, self._numbers = tokenizer, numbers
        self[BREAK] = END

    def __missing__(self, piece: str) -> int:
        words = _words(self._tokenizer, piece)
        if words is None or len(words) > 1:
            self[piece] = WHOLE
        else:
            self[piece] = self._numbers[words[0]] if words else NONE
        return self[piece]


def _words(tokenizer: str, piece: str) -> Sequence[str] | None:
    """Of a piece without its neighbours; None where they matter."""
    tokens = [piece] if tokenizer == NO_TOKENIZER else alone(piece) if tokenizer == "ptb_py" else None
    return None if tokens is None else words_of(tokens)


@lru_cache(maxsize=1 << 16)
def _whole(tokenizer: str, line: str) -> tuple[str, ...]:
    """Words of one caption."""
    return tuple(words_of([line] if tokenizer == NO_TOKENIZER else tokenize(tokenizer, [line])[0]))


class Reader:
    """Words as `words_of` has them. Those that the frequencies lack have numbers beyond."""

    def __init__(self, frequencies: Frequencies) -> None:
        self._tokenizer = "ptb_py" if frequencies.tokenizer == "ptb" else frequencies.tokenizer  # the same tokens
        self._known = len(frequencies.number)
        self._numbers = _Numbers(frequencies.number)
        self._pieces = _Pieces(self._tokenizer, self._numbers)
        self._of_id = _of_id(frequencies)

    def texts(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Captions: where each one's words start, int64 [captions + 1], and the words, int32."""
        lines = [one_line(text) if BREAK in text else text for text in texts]
        pieces = f" {BREAK} ".join([*lines, ""]).split(" ")[:-1]
        code = np.fromiter(map(self._pieces.__getitem__, pieces), np.int32, len(pieces))
        end = np.flatnonzero(code == END)
        rows = np.unique(np.searchsorted(end, np.flatnonzero(code == WHOLE)))
        for row in rows:
            code[end[row - 1] + 1 if row else 0 : end[row]] = NONE
        word = code[code >= 0]
        ptr = np.concatenate([[0], np.cumsum(code >= 0)[end]])
        if not len(rows):
            return ptr, word
        return self._with(rows, [_whole(self._tokenizer, lines[row]) for row in rows], ptr, word)

    def _with(
        self, rows: np.ndarray, sentences: Sequence[Sequence[str]], ptr: np.ndarray, word: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The words of sentences put where rows have none."""
        sizes = np.diff(ptr)
        sizes[rows] = [len(sentence) for sentence in sentences]
        new = [self._numbers[w] for sentence in sentences for w in sentence]
        return np.concatenate([[0], np.cumsum(sizes)]), np.insert(word, np.repeat(ptr[rows], sizes[rows]), new)

    def ids(self, ids: np.ndarray) -> np.ndarray:
        """Token ids as words, int32."""
        word = self._of_id[np.minimum(ids, len(self._of_id) - 1)]
        new = word < 0
        word[new] = self._known + np.unique(ids[new], return_inverse=True)[1]
        return word

    def known(self, word: np.ndarray) -> np.ndarray:
        """int32 [largest word + 1]: the number that the frequencies have for each word, -1 where they lack it."""
        numbers = np.arange(max(word.max(initial=0) + 1, self._known), dtype=np.int32)
        numbers[self._known :] = -1
        return numbers


def _of_id(frequencies: Frequencies) -> np.ndarray:
    """int32: the word of each token id, -1 where the frequencies lack it, as for all beyond."""
    words = {int(w): k for w, k in frequencies.number.items() if w.isdecimal() and str(int(w)) == w}
    found = np.full(max(words, default=0) + 2, -1, np.int32)
    found[list(words)] = list(words.values())
    return found

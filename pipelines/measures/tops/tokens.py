"""Tokens of captions: a word and how often it came before in its caption, so that captions share as many tokens as both
have of a word."""

from __future__ import annotations

import numpy as np


def tokens(row: np.ndarray, word: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number of each token, int64 [words], which goes by word, then by how often it came before in its caption; and of
    how many captions each is. `row` and `word` int [words]: the captions' words, ascending by caption."""
    by_word = np.lexsort((word, row))
    first = np.ones(len(word), bool)
    first[1:] = (np.diff(word[by_word]) != 0) | (np.diff(row[by_word]) != 0)
    at = np.arange(len(word))
    before = np.empty(len(word), np.int64)
    before[by_word] = at - np.maximum.accumulate(np.where(first, at, 0))
    _, token, counts = np.unique(word * (before.max(initial=0) + 1) + before, return_inverse=True, return_counts=True)
    return token, counts

"""What the bounds of METEOR's best captions need of the captions, beside METEOR's index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from capgrade.pipelines.measures.meteor.paraphrases import LONGEST
from capgrade.pipelines.measures.meteor.tops_kernel import QUARTER, UNIT, BoundIndex

if TYPE_CHECKING:
    from capgrade.pipelines.measures.meteor import FittedMeteor


def bound_index(f: FittedMeteor) -> BoundIndex:
    """Tokens, phrases and weights of the captions."""
    sizes = np.diff(f.ptr)
    word, row = f.unit[f.unit_length == 1], np.repeat(np.arange(len(sizes)), sizes)
    token = _tokens(row, word)
    word_of_token = np.empty(token.max(initial=-1) + 1, np.int32)
    word_of_token[token] = word
    token_ptr = np.searchsorted(word_of_token, np.arange(word.max(initial=-1) + 2))
    last = _last(row, word, token)
    words_of_kind = int(sizes.max(initial=0)) + 1
    quarters = np.rint(f.weight / QUARTER).astype(np.int64)
    kinds, kind = np.unique(quarters * words_of_kind + sizes, return_inverse=True)
    weight = (kinds // words_of_kind * (QUARTER / UNIT)).astype(np.float32)
    return BoundIndex(
        token=token.astype(np.int32), last=last, token_ptr=token_ptr, **_phrases(f, last, len(token_ptr) - 1),
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


def _phrases(f: FittedMeteor, last: np.ndarray, n_words: int) -> dict[str, np.ndarray]:
    """Of `BoundIndex`: phrase_ptr to quarters."""
    row = np.repeat(np.arange(len(f.ptr) - 1), np.diff(f.unit_ptr))
    at = f.ptr[row] + f.unit_start
    quarters = np.append(0, np.cumsum(np.where(f.function, 1, 3)))
    weight = np.zeros(len(f.match_ptr) - 1, np.int32)
    weight[f.unit] = quarters[at + f.unit_length] - quarters[at]
    some = np.flatnonzero(f.unit_length > 1)
    size, first = f.unit_length[some], at[some]
    columns = [np.where(k < size, last[np.minimum(first + k, len(last) - 1)], -1) for k in range(LONGEST)]
    order = np.lexsort((*columns, f.unit[some]))
    key = np.stack([f.unit[some], *columns])[:, order]
    starts = np.flatnonzero(np.append(True, (np.diff(key) != 0).any(axis=0))[: len(order)])
    phrase_ptr = np.searchsorted(key[0, starts], np.arange(n_words, len(weight) + 1))
    some = some[order]
    return {
        "phrase_ptr": phrase_ptr,
        "group_ptr": np.append(starts, len(some)),
        "phrase_caption": row[some].astype(np.int32),
        "phrase_at": at[some],
        "phrase_size": f.unit_length[some],
        "quarters": weight,
    }


def _last(row: np.ndarray, word: np.ndarray, token: np.ndarray) -> np.ndarray:
    """int32 [words]: the token that a word is where it stands last in its caption."""
    order = np.lexsort((token, row))
    ends = np.flatnonzero(np.append((np.diff(word[order]) != 0) | (np.diff(row[order]) != 0), True)[: len(word)])
    last = np.empty(len(word), np.int32)
    last[order] = np.repeat(token[order][ends], np.diff(ends, prepend=-1))
    return last

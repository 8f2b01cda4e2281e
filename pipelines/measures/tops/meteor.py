"""The captions of highest METEOR to each image, as all pairs have them to the last bit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from capgrade.pipelines.measures.meteor import FittedMeteor
from capgrade.pipelines.measures.meteor.kernel import listed
from capgrade.pipelines.measures.meteor.phrases import LONGEST
from capgrade.pipelines.measures.tops import meteor_kernel as kernel
from capgrade.pipelines.measures.tops.every import Tops, every_pair, sorted_tops
from capgrade.pipelines.measures.tops.tokens import tokens
from capgrade.schemas.threads import get_num_threads
from capgrade.schemas.ties import Ties


@dataclass(frozen=True)
class MeteorTops:
    """Finds tops of a fitted METEOR that it `serves`."""

    fitted: FittedMeteor
    ties: Ties

    @staticmethod
    def serves(fitted: FittedMeteor) -> bool:
        """Whether the captions are short enough."""
        return int(np.diff(fitted.ptr).max(initial=0)) <= kernel.MOST_WORDS

    def tops(self, images: np.ndarray, k: int) -> Tops:
        """As `find.tops`."""
        f, n_captions = self.fitted, len(self.fitted.ptr) - 1
        if k >= n_captions // 4:
            return every_pair(f, images, k, self.ties)
        rows, values = np.empty((len(images), k), np.int64), np.empty((len(images), k), np.float32)
        pairs = np.zeros(len(images), np.int64)
        seeds, keys = self.ties.images[images], self.ties.captions
        kernel.tops(get_num_threads(), images, *f.arrays, self.index, seeds, keys, rows, values, pairs)
        return sorted_tops(images, rows, values, pairs, k, self.ties)

    def listed(self, images: np.ndarray, ptr: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """float32 [len(rows)]: values of captions rows[ptr[b] : ptr[b + 1]] of image images[b]."""
        values = np.empty(len(rows), np.float32)
        listed(images, ptr, rows, *self.fitted.arrays, values)
        return values

    @cached_property
    def index(self) -> kernel.BoundIndex:
        f = self.fitted
        sizes = np.diff(f.ptr)
        word, row = f.unit[f.unit_length == 1], np.repeat(np.arange(len(sizes)), sizes)
        token, _ = tokens(row, word)
        word_of_token = np.empty(token.max(initial=-1) + 1, np.int32)
        word_of_token[token] = word
        token_ptr = np.searchsorted(word_of_token, np.arange(word.max(initial=-1) + 2))
        last = _last(row, word, token)
        words_of_kind = int(sizes.max(initial=0)) + 1
        quarters = np.rint(f.weight / kernel.QUARTER).astype(np.int64)
        kinds, kind = np.unique(quarters * words_of_kind + sizes, return_inverse=True)
        weight = (kinds // words_of_kind * (kernel.QUARTER / kernel.UNIT)).astype(np.float32)
        return kernel.BoundIndex(
            token=token.astype(np.int32), last=last, token_ptr=token_ptr, **_phrases(f, last, len(token_ptr) - 1),
            kind=kind.astype(np.int32), kind_weight=weight, kind_words=(kinds % words_of_kind).astype(np.float64),
        )  # fmt: skip


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

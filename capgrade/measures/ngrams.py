"""N-grams of sentences as numbers, counted, and in how many images' reference sets they occur."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array

from capgrade.kernels import njit
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.text.tokens import Words, split_at_white_space, tokens_of

MAX_ORDER = 4
MOST_NGRAMS = 2**31 - 1
LAST = 0xFFFFFFFF  # bits of a key that are its last word
ALONE = -1  # in place of a beginning, for the first word


class Sentences(NamedTuple):
    """Rows of n-grams, each order's in a run of its own."""

    start: np.ndarray  # int64 [sentences, orders]: of a run, whose n-grams ascend
    stop: np.ndarray  # int64 [sentences, orders]
    gram: np.ndarray  # int32
    counts: np.ndarray  # int32: how often, beside `gram`
    words: np.ndarray  # int64 [sentences]

    @property
    def runs(self) -> np.ndarray:
        """As `_sentences_of` takes them."""
        return np.append(self.start, len(self.gram))

    @property
    def row(self) -> np.ndarray:
        """int64 [n-grams]: the sentence of each of `gram`."""
        return np.repeat(np.arange(len(self.words)), self.stop[:, -1] - self.start[:, 0])

    def take(self, rows: np.ndarray) -> Sentences:
        """Some of the sentences, in any order: rows int64 [m]."""
        begin = self.start[rows, 0]
        sizes = self.stop[rows, -1] - begin
        shift = np.cumsum(sizes) - sizes - begin
        at = np.arange(sizes.sum()) - np.repeat(shift, sizes)
        runs = self.start[rows] + shift[:, None], self.stop[rows] + shift[:, None]
        return Sentences(*runs, self.gram[at], self.counts[at], self.words[rows])

    def renumbered(self, number: np.ndarray) -> Sentences:
        """With these numbers of n-grams, int32 beside `gram`, rising in a run as before.

        What has -1 is left out.
        """
        kept = number >= 0
        runs = np.append(0, np.cumsum(kept))[self.runs]
        return _sentences_of(runs, number[kept], self.counts[kept], self.words)

    def among(self, grams: np.ndarray) -> Sentences:
        """With no other n-grams than these, int32 rising, which are numbered in their order."""
        if not len(grams):
            return self.renumbered(np.full(len(self.gram), -1, np.int32))
        place = np.searchsorted(grams, self.gram).clip(max=len(grams) - 1)
        return self.renumbered(np.where(grams[place] == self.gram, place, -1).astype(np.int32))


class Ngrams(NamedTuple):
    """The n-grams of sentences, counted; `keys` are as of `number_ngrams`."""

    sentences: Sentences
    keys: np.ndarray
    vocabulary: list[str]


def orders_of(keys: np.ndarray) -> np.ndarray:
    """int8 [n_grams]: words of each n-gram, less one."""
    before, order = keys >> 32, np.zeros(len(keys), np.int8)
    longer = before != ALONE
    for _ in range(MAX_ORDER - 1):
        order[longer] = order[before[longer]] + 1
    return order


def _sentences_of(
    runs: np.ndarray, gram: np.ndarray, counts: np.ndarray, words: np.ndarray
) -> Sentences:
    """From where the runs start, and the last ends: int64 [sentences * orders + 1]."""
    shape = len(words), -1
    return Sentences(runs[:-1].reshape(shape), runs[1:].reshape(shape), gram, counts, words)


def number_ngrams(
    ptr: np.ndarray, word: np.ndarray, most: int = MAX_ORDER
) -> tuple[np.ndarray, np.ndarray]:
    """Number the n-grams of sentences.

    Words of sentence s are `word[ptr[s]:ptr[s + 1]]`, int32. Returns the number of the n-gram that
    starts at each word, int32 [most, words], -1 where there is none; and the key of each number,
    int64 [n_grams], rising: the number of all but its last word << 32 | its last word. InputError
    for more n-grams than have numbers.
    """
    numbers, keys, n = np.full((most, len(word)), -1, np.int32), [np.empty(0, np.int64)], 0
    left = np.repeat(ptr[1:], np.diff(ptr)) - np.arange(len(word))
    for k in range(most):
        at = np.flatnonzero(left > k)
        before = numbers[k - 1, at].astype(np.int64) if k else np.int64(ALONE)
        new, number = np.unique(before << 32 | word[at + k], return_inverse=True)
        numbers[k, at] = n + number
        keys.append(new)
        n += len(keys[-1])
        if n > MOST_NGRAMS:
            problem = f"more than {MOST_NGRAMS:,} different n-grams, which are numbers of 32 bits"
            raise InputError(
                problem, remedy="divide the corpus, or leave out the measures that count n-grams"
            )
    return numbers, np.concatenate(keys)


def look_up(keys: np.ndarray, words: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The number of each n-gram in another table, int32 [n_grams], -1 where it is not there.

    `keys` are those of the n-grams, `known` those of the other table, and `words`, int32, the
    number there of each word, -1 where it has none.
    """
    out, order = np.full(len(keys), -1, np.int32), orders_of(keys)
    for k in range(MAX_ORDER if len(known) else 0):
        at = np.flatnonzero(order == k)
        before = out[keys[at] >> 32].astype(np.int64) if k else np.int64(ALONE)
        # The key of a word without a number is -1, which no n-gram has.
        wanted = before << 32 | words[keys[at] & LAST]
        out[at] = find(np.where(before < 0, -1, wanted) if k else wanted, known)
    return out


def find(wanted: np.ndarray, known: np.ndarray) -> np.ndarray:
    """int64 [n]: the place of each number in `known`, which rises, -1 where it is not there."""
    place = np.searchsorted(known, wanted).clip(max=len(known) - 1)
    return np.where(known[place] == wanted, place, -1)


def ngrams_of(words: Words, most: int = MAX_ORDER) -> Ngrams:
    """The n-grams of sentences, n = 1..most, counted, as pycocoevalcap's `precook`."""
    numbers, keys = number_ngrams(words.ptr, words.word, most)
    starts, sizes = numbers >= 0, words.sizes
    runs = np.repeat(np.arange(len(sizes)), sizes) * most + np.arange(most)[:, None]
    cells = np.ones(np.count_nonzero(starts), np.int32), (runs[starts], numbers[starts])
    table = coo_array(cells, (len(sizes) * most + 1, int(numbers.max(initial=0)) + 1)).tocsr()
    gram, ptr = table.indices.astype(np.int32, copy=False), table.indptr[:-1].astype(np.int64)
    return Ngrams(_sentences_of(ptr, gram, table.data, sizes), keys, words.vocabulary)


def alphabetical(words: Words, most: int = MAX_ORDER) -> Ngrams:
    """`numbered` with words in alphabetical order: n-grams by their length, then by their words.

    So the n-grams of two tables have the same order, and sums over them too.
    """
    order = sorted(range(len(words.vocabulary)), key=words.vocabulary.__getitem__)
    word = np.argsort(order).astype(np.int32)[words.word]
    return ngrams_of(Words(words.ptr, word, [words.vocabulary[k] for k in order]), most)


def count_ngrams(captions: Captions, most: int = MAX_ORDER) -> Ngrams:
    """`alphabetical`, of every caption's words."""
    return alphabetical(split_at_white_space(tokens_of(captions)), most)


def images_with(sentences: Sentences, owner: np.ndarray, n_grams: int) -> np.ndarray:
    """int32 [n_grams]: how many images' reference sets have each n-gram, as pycocoevalcap.

    Source: its `compute_doc_freq`. `owner`, int64 [sentences], is -1 for one that is no reference.
    """
    by_image = np.argsort(owner, kind="stable")
    by_image = by_image[owner[by_image] >= 0]
    return np.asarray(_count_images(sentences, owner, by_image, n_grams))


@njit(cache=True)
def _count_images(sentences, owner, by_image, n_grams):
    images, latest = np.zeros(n_grams, np.int32), np.full(n_grams, -1)
    for s in by_image:
        for g in sentences.gram[sentences.start[s, 0] : sentences.stop[s, -1]]:
            if latest[g] != owner[s]:
                latest[g] = owner[s]
                images[g] += 1
    return images


class Postings(NamedTuple):
    """The captions of each term, which is an n-gram and how often a caption has it, as ranks."""

    term_ptr: np.ndarray  # int64 [n_grams + 1]
    term_count: np.ndarray  # int32 [terms]
    ptr: np.ndarray  # int64 [terms + 1]
    rank: np.ndarray  # int32 [postings], ascending within a term
    dense_row: np.ndarray  # int32 [terms]: row in `dense`, -1 for postings
    dense_term: np.ndarray  # int64 [dense terms]: the term of each row of `dense`
    dense: np.ndarray  # [dense terms, n_captions], columns by rank

    def part(
        self, sentences: Sentences, was: np.ndarray, rank: np.ndarray
    ) -> tuple[np.ndarray, Postings]:
        """Those of some of the captions; dense terms stay, in their order.

        `sentences` are these captions, `was` their ranks here, `rank` those among each other, int32
        [m] each. Also returns the n-grams that have terms, int32 rising: in the postings they are
        numbered in their order.
        """
        term = self.term_ptr[sentences.gram]
        while (less := self.term_count[term] < sentences.counts).any():
            term += less
        place = rank[sentences.row]
        by_term = np.lexsort((place, term))
        term, place = term[by_term], place[by_term]
        terms = np.union1d(term, self.dense_term)
        of_gram = np.searchsorted(self.term_ptr, terms, side="right") - 1
        grams, first = np.unique(of_gram, return_index=True)
        dense = np.empty((len(self.dense), len(rank)), self.dense.dtype)
        dense[:, rank] = self.dense[:, was]
        return grams.astype(np.int32), Postings(
            np.append(first, len(terms)),
            self.term_count[terms],
            np.append(np.searchsorted(term, terms), len(term)),
            place,
            self.dense_row[terms],
            np.searchsorted(terms, self.dense_term),
            dense,
        )


def build_postings(ngrams: Ngrams, rank: np.ndarray, value: np.ndarray, share: float) -> Postings:
    """The postings of captions at these ranks, int32 [n_captions].

    A term of more than `share` of the captions is a dense row too: of `value`, which is given for
    each n-gram of each caption.
    """
    sentences = ngrams.sentences
    term, place = sentences.gram.astype(np.int64) << 32 | sentences.counts, rank[sentences.row]
    by_term = np.lexsort((place, term))
    term, place, value = term[by_term], place[by_term], value[by_term]
    start = np.flatnonzero(np.diff(term, prepend=-1))
    ptr, of_gram = np.append(start, len(term)), term[start] >> 32
    frequent = np.flatnonzero(np.diff(ptr) > share * len(rank))
    dense_row = np.full(len(start), -1, np.int32)
    dense_row[frequent] = np.arange(len(frequent))
    dense = np.zeros((len(frequent), len(rank)), value.dtype)
    for k, t in enumerate(frequent):
        run = slice(ptr[t], ptr[t + 1])
        dense[k, place[run]] = value[run]
    term_ptr = np.searchsorted(of_gram, np.arange(len(ngrams.keys) + 1))
    counts = (term[start] & LAST).astype(np.int32)
    return Postings(term_ptr, counts, ptr, place, dense_row, frequent, dense)

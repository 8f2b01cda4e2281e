"""BLEU of every caption with every image's reference set.

The sentence score of pycocoevalcap (`bleu/bleu_scorer.py`, reference length `closest`): the geometric mean of the
clipped precisions of 1- to k-grams, with its 1e-15 in place of smoothing, times the brevity penalty. The clipped
counts of a pair are kept cheap as for CIDEr-D: an inverted index over (n-gram, count) terms, the n-grams of many
captions as dense rows, chunk of captions after chunk. Lengths enter through a table an image, over the lengths that
captions have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capgrade.pipelines.measures import bleu_kernel as kernel
from capgrade.pipelines.measures.base import ArrayState, Fill, leaves_out
from capgrade.pipelines.measures.bleu_pairs import SMALL, bleu_of, statistics_of_pairs
from capgrade.pipelines.measures.ngrams import Ngrams, count_ngrams, sentences_of
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import BleuParams

DENSE_SHARE = 0.05  # of the captions
MOST_WORDS = np.iinfo(np.uint16).max

Folded = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class FittedBleu(ArrayState):
    """The captions as rows of n-grams of up to k words and as an inverted index over (n-gram, count) terms."""

    ref_ptr: np.ndarray  # int64 [n_images + 1]
    refs: np.ndarray  # int64 [n_captions]
    start: np.ndarray  # int64 [n_captions * k + 1]: of each order's n-grams of each caption
    gram: np.ndarray  # int32 [nonzeros]
    count: np.ndarray  # int32 [nonzeros]
    order: np.ndarray  # int8 [n_grams]
    words: np.ndarray  # int64 [n_captions]
    lengths: np.ndarray  # int64 [classes]: the lengths that captions have
    length_class: np.ndarray  # int32 [n_captions]
    precision: np.ndarray  # float64 [classes]: k-th root of one over the product of how many n-grams there are
    term_ptr: np.ndarray  # int64 [n_grams + 1]: terms of each n-gram; a dense one has none
    term_count: np.ndarray  # int32 [terms]
    post_ptr: np.ndarray  # int64 [terms + 1]
    post: np.ndarray  # int32 [postings]: captions, ascending within a term
    dense_row: np.ndarray  # int32 [n_grams]: row in `dense`, -1 for postings
    dense: np.ndarray  # uint16 [dense n-grams, n_captions]: counts
    k: int
    leave_out: bool

    @property
    def columns(self) -> int:
        """As `Fitted.columns`."""
        return len(self.words)

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """As `Fitted.pairs`."""
        mine = sentences_of(self.start, self.gram, self.count, self.words)
        counts = statistics_of_pairs(images, captions, mine, mine, self.ref_ptr, self.refs, self.leave_out)
        return bleu_of(counts)[:, -1].astype(np.float32)

    def filler(self, images: np.ndarray, start: int) -> Fill:
        """As `Fitted.filler`; references are folded once for all chunks."""
        folded = self.fold(images)

        def fill(first: int, last: int, out: np.ndarray) -> None:
            self._score_chunk(folded, first, out[:, : last - first])

        return fill

    def fold(self, images: np.ndarray) -> Folded:
        """Start, number, ids and largest counts of the n-grams of each image's references; factors by length."""
        start = kernel.room(images, *self._references[:3])
        used, factor = np.empty(len(images), np.int64), np.empty((len(images), len(self.lengths)))
        grams, most = np.empty(start[-1], np.int32), np.empty(start[-1], np.int32)
        kernel.fold_references(images, start, *self._references, used, grams, most, factor)
        return start, used, grams, most, factor

    def _score_chunk(self, folded: Folded, first: int, out: np.ndarray) -> None:
        kernel.score_chunk(
            *folded, first, self.order, self.length_class, self.term_ptr, self.term_count, self.post_ptr, self.post,
            self.dense_row, self.dense, self.k, out,
        )  # fmt: skip

    @property
    def _references(self) -> tuple[np.ndarray, ...]:
        rows = np.ascontiguousarray(self.start[:: self.k]), self.gram, self.count
        return self.ref_ptr, self.refs, *rows, self.words, self.lengths, self.precision


class Bleu:
    """BLEU-k of one caption, 0..1: `BP (Π_n correct_n / guess_n)^(1/k)`, n = 1..k, correct clipped by the largest
    count in a reference, BP by the reference of closest length (the shorter of two).

    Where no n-gram of an order matches, the 1e-15 of pycocoevalcap stands in: BLEU-4 is then some 1e-4, not 0.
    Source: Papineni et al. 2002; pycocoevalcap `bleu/bleu_scorer.py`.
    """

    low, high = 0.0, 1.0

    def __init__(self, params: BleuParams) -> None:
        self.params = params

    def fit(self, captions: Captions) -> FittedBleu:
        """Index the captions. InputError for a caption of more than 65,535 tokens, or when `left_out` leaves an image
        without references."""
        leave_out = leaves_out(self.params.self_reference, captions)
        ngrams, k = count_ngrams(captions, self.params.n), self.params.n
        longest = int(ngrams.words.argmax())
        if ngrams.words[longest] > MOST_WORDS:
            problem = f"caption '{captions.caption_ids[longest]}' has {ngrams.words[longest]} tokens"
            raise InputError(problem, remedy=f"shorten it to {MOST_WORDS}")
        lengths, length_class = np.unique(ngrams.words, return_inverse=True)
        guesses = np.maximum(lengths[:, None] - np.arange(k), 0) + SMALL
        return FittedBleu(
            ref_ptr=captions.ref_ptr,
            refs=captions.refs,
            start=ngrams.runs(k),
            gram=ngrams.gram,
            count=ngrams.count,
            order=ngrams.order,
            words=ngrams.words,
            lengths=lengths,
            length_class=length_class.astype(np.int32),
            precision=np.prod(guesses, axis=1) ** (-1 / k),
            **_postings(ngrams, captions.n_captions),
            k=k,
            leave_out=leave_out,
        )


def _postings(ngrams: Ngrams, n_captions: int) -> dict[str, np.ndarray]:
    """Postings of each (n-gram, count) term, and the counts of n-grams that many captions have as dense rows."""
    row = np.repeat(np.arange(n_captions, dtype=np.int32), np.diff(ngrams.ptr))
    n_grams = len(ngrams.order)
    frequent = np.flatnonzero(np.bincount(ngrams.gram, minlength=n_grams) > DENSE_SHARE * n_captions)
    dense_row = np.full(n_grams, -1, np.int32)
    dense_row[frequent] = np.arange(len(frequent))
    at = dense_row[ngrams.gram]
    dense = np.zeros((len(frequent), n_captions), np.uint16)
    dense[at[at >= 0], row[at >= 0]] = ngrams.count[at >= 0]
    gram, count, row = ngrams.gram[at < 0], ngrams.count[at < 0], row[at < 0]
    by_term = np.lexsort((row, count, gram))
    gram, count = gram[by_term], count[by_term]
    first = np.ones(len(gram), bool)
    first[1:] = (gram[1:] != gram[:-1]) | (count[1:] != count[:-1])
    start = np.flatnonzero(first)
    return {
        "term_ptr": np.searchsorted(gram[start], np.arange(n_grams + 1)),
        "term_count": count[start],
        "post_ptr": np.append(start, len(gram)),
        "post": row[by_term],
        "dense_row": dense_row,
        "dense": dense,
    }

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
from numba import prange

from capgrade.pipelines.measures.base import UNIT, ArrayState, Error, Fill, leaves_out
from capgrade.pipelines.measures.ngrams import Ngrams, Sentences, count_ngrams, sentences_of
from capgrade.schemas.captions import Captions
from capgrade.schemas.compiled import njit
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import BleuParams
from capgrade.schemas.threads import in_threads

TINY, SMALL = 1e-15, 1e-9  # of bleu_scorer.py: added to what matches, and to what could
_FAST = {"contract", "reassoc", "nsz"}
DENSE_SHARE = 0.05  # of the captions
MOST_WORDS = np.iinfo(np.uint16).max
Folded = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@njit(cache=True)
def _clipped(c, own, n, captions, references, found):
    """Matches of order n + 1 of caption c, each n-gram counted at most as often as in one of the references `own`."""
    start, size = captions.start[c, n], captions.stop[c, n] - captions.start[c, n]
    found[:size] = 0
    for r in own:
        at, end = references.start[r, n], references.stop[r, n]
        for x in range(size):
            while at < end and references.gram[at] < captions.gram[start + x]:
                at += 1
            if at < end and references.gram[at] == captions.gram[start + x]:
                found[x] = max(found[x], references.counts[at])
    total = 0
    for x in range(size):
        total += min(found[x], captions.counts[start + x])
    return total


@njit(cache=True)
def _closest(size, own, references):
    """The length of the reference that is nearest in length, the shorter of two; -1 of none."""
    closest = np.int64(-1)
    for r in own:
        words = references.words[r]
        nearer, near = abs(words - size), abs(closest - size)
        if closest < 0 or nearer < near or (nearer == near and words < closest):
            closest = words
    return closest


@njit(nogil=True, cache=True)
def matches_of_pairs(begin, end, images, rows, captions, references, ref_ptr, refs, leave_out, out):
    most = captions.start.shape[1]
    for k in range(begin, end):
        c, own = rows[k], refs[ref_ptr[images[k]] : ref_ptr[images[k] + 1]]
        if leave_out:
            own = own[own != c]
        size = captions.words[c]
        found = np.empty(size, np.int64)
        out[k, 0], out[k, 1] = size, _closest(size, own, references)
        for n in range(most):
            out[k, 2 + n] = _clipped(c, own, n, captions, references, found)
            out[k, 2 + most + n] = max(size - n, 0)


def statistics_of_pairs(
    images: np.ndarray, rows: np.ndarray, captions: Sentences, references: Sentences, ref_ptr: np.ndarray,
    refs: np.ndarray, leave_out: bool = False,
) -> np.ndarray:  # fmt: skip
    """Counts of each pair, float64 [pairs, 2 + 2 orders]: the caption's words, those of the reference of closest
    length, matches of each order, n-grams of each order.

    Pair k is caption rows[k] with the references of image images[k], rows of `references` that are
    refs[ref_ptr[image] : ref_ptr[image + 1]]; with `leave_out` without row rows[k].
    """
    out = np.empty((len(rows), 2 + 2 * captions.start.shape[1]))
    in_threads(matches_of_pairs, len(out), images, rows, captions, references, ref_ptr, refs, leave_out, out)
    return out


def bleu_of(statistics: np.ndarray) -> np.ndarray:
    """BLEU-1..most from counts or sums of counts [..., 2 + 2 most], float64 [..., most].

    `BP (Π_n correct_n / guess_n)^(1/k)`, n = 1..k; source: pycocoevalcap `bleu_scorer.py`, with its 1e-15 and 1e-9.
    """
    most = (statistics.shape[-1] - 2) // 2
    words, closest = statistics[..., 0], statistics[..., 1]
    correct, guess = statistics[..., 2 : 2 + most], statistics[..., 2 + most :]
    precision = np.cumprod((correct + TINY) / (guess + SMALL), axis=-1) ** (1 / np.arange(1, most + 1))
    ratio = (words + TINY) / (closest + SMALL)
    with np.errstate(divide="ignore", over="ignore"):
        penalty = np.where(ratio < 1, np.exp(1 - 1 / ratio), 1.0)
    return precision * penalty[..., None]


@njit(cache=True)
def room(images, ref_ptr, refs, ptr):
    """Where the n-grams of each image start, int64 [images + 1], with room for those of all its references."""
    start = np.zeros(images.shape[0] + 1, np.int64)
    for b in range(images.shape[0]):
        start[b + 1] = start[b]
        for r in refs[ref_ptr[images[b]] : ref_ptr[images[b] + 1]]:
            start[b + 1] += ptr[r + 1] - ptr[r]
    return start


@njit(cache=True)
def _fold(refs, ptr, gram, count, words, lengths, precision, grams, most, factor):
    """The n-grams of references, ascending, with their largest counts: how many. And by class of
    length what a caption's matches are multiplied by: its own counts and the brevity penalty."""
    total = 0
    for r in refs:
        grams[total : total + ptr[r + 1] - ptr[r]] = gram[ptr[r] : ptr[r + 1]]
        most[total : total + ptr[r + 1] - ptr[r]] = count[ptr[r] : ptr[r + 1]]
        total += ptr[r + 1] - ptr[r]
    by_gram = np.argsort(grams[:total])
    sorted_grams, sorted_counts = grams[:total][by_gram], most[:total][by_gram]
    used = 0
    for x in range(total):
        if used and grams[used - 1] == sorted_grams[x]:
            most[used - 1] = max(most[used - 1], sorted_counts[x])
        else:
            grams[used], most[used] = sorted_grams[x], sorted_counts[x]
            used += 1
    for d in range(lengths.shape[0]):
        closest = np.int64(-1)
        for r in refs:
            nearer, near = abs(words[r] - lengths[d]), abs(closest - lengths[d])
            if closest < 0 or nearer < near or (nearer == near and words[r] < closest):
                closest = words[r]
        ratio = (lengths[d] + TINY) / (closest + SMALL)
        factor[d] = precision[d] * (np.exp(1 - 1 / ratio) if ratio < 1 else 1.0)
    return used


@njit(parallel=True, cache=True)
def fold_references(
    images, start, ref_ptr, refs, ptr, gram, count, words, lengths, precision, used, grams, most, factor
):
    """Fill, for each image, the n-grams of its references, their largest counts and how many there are; and the
    factors by length."""
    for b in prange(images.shape[0]):
        own, room = refs[ref_ptr[images[b]] : ref_ptr[images[b] + 1]], slice(start[b], start[b + 1])
        used[b] = _fold(own, ptr, gram, count, words, lengths, precision, grams[room], most[room], factor[b])


@njit(cache=True, forceinline=True)
def _root(product, k):
    if k == 1:
        return product
    if k == 2:
        return np.sqrt(product)
    if k == 3:
        return np.cbrt(product)
    return np.sqrt(np.sqrt(product))


@njit(parallel=True, fastmath=_FAST, cache=True)
def score_chunk(
    start, used, grams, most, factor, first, order, length_class, term_ptr, term_count, post_ptr, post, dense_row,
    dense, k, out,
):  # fmt: skip
    """Captions first.. into out, float32 [images, captions]."""
    size = out.shape[1]
    for b in prange(out.shape[0]):
        correct = np.zeros((k, size), np.uint16)
        for x in range(start[b], start[b] + used[b]):
            g, m, matches = grams[x], most[x], correct[order[grams[x]]]
            if dense_row[g] >= 0:
                counts, largest = dense[dense_row[g], first : first + size], np.uint16(m)
                for j in range(size):
                    matches[j] += min(counts[j], largest)
            for t in range(term_ptr[g], term_ptr[g + 1]):
                gained, end = np.uint16(min(term_count[t], m)), post_ptr[t + 1]
                p = post_ptr[t] + (np.searchsorted(post[post_ptr[t] : end], first) if first else 0)
                while p < end and post[p] < first + size:
                    matches[post[p] - first] += gained
                    p += 1
        for j in range(size):
            product = 1.0
            for n in range(k):
                product *= correct[n, j] + TINY
            out[b, j] = _root(product, k) * factor[b, length_class[first + j]]


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

    @property
    def error(self) -> Error:
        """As `Fitted.error`: counts are whole numbers, products and roots are in double precision."""
        return Error(relative=4 * UNIT)

    def filler(self, images: np.ndarray, start: int) -> Fill:
        """As `Fitted.filler`; references are folded once for all chunks."""
        folded = self.fold(images)

        def fill(first: int, last: int, out: np.ndarray) -> None:
            self._score_chunk(folded, first, out[:, : last - first])

        return fill

    def fold(self, images: np.ndarray) -> Folded:
        """Start, number, ids and largest counts of the n-grams of each image's references; factors by length."""
        start = room(images, *self._references[:3])
        used, factor = np.empty(len(images), np.int64), np.empty((len(images), len(self.lengths)))
        grams, most = np.empty(start[-1], np.int32), np.empty(start[-1], np.int32)
        fold_references(images, start, *self._references, used, grams, most, factor)
        return start, used, grams, most, factor

    def _score_chunk(self, folded: Folded, first: int, out: np.ndarray) -> None:
        score_chunk(
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

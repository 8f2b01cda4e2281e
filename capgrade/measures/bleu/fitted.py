"""BLEU fitted on captions.

The clipped counts of a pair come from an inverted index over terms, which are an n-gram and a
count. N-grams of many captions are dense rows instead of postings, and captions are scored chunk
after chunk. Lengths enter by a table for each image over the lengths that captions have.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from capgrade.kernels import in_threads, njit
from capgrade.measures.base import (
    Fill,
    ImagePairs,
    OfReferences,
    Scored,
    reference_sets,
    sets_of,
)
from capgrade.measures.corpus import Corpus
from capgrade.measures.ngrams import (
    MAX_ORDER,
    Postings,
    Sentences,
    build_postings,
    count_ngrams,
    orders_of,
)
from capgrade.measures.rows import merge_largest
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError

if TYPE_CHECKING:
    from capgrade.measures.bleu import BleuParams

TINY, _SMALL = 1e-15, 1e-9  # of bleu_scorer.py: added to what matches, and to what could
_FAST = {"contract", "reassoc", "nsz"}
DENSE_SHARE = 0.05  # of the captions
_MOST_WORDS = np.iinfo(np.uint16).max


@njit(cache=True)
def _clipped(c, own, left_out, n, captions, references, found):
    """Matches of n-grams of n + 1 words of caption c with the references `own`.

    An n-gram counts at most as often as one of the references has it. One reference is left out.
    """
    start, size = captions.start[c, n], captions.stop[c, n] - captions.start[c, n]
    found[:size] = 0
    for r in own:
        at, end = references.start[r, n], references.stop[r, n]
        for x in range(size if r != left_out else 0):
            while at < end and references.gram[at] < captions.gram[start + x]:
                at += 1
            if at < end and references.gram[at] == captions.gram[start + x]:
                found[x] = max(found[x], references.counts[at])
    total = 0
    for x in range(size):
        total += min(found[x], captions.counts[start + x])
    return total


@njit(cache=True)
def _closest(size, own, left_out, words):
    """Words of the reference of the nearest length, the shorter of two; -1 without references.

    One reference is left out.
    """
    closest = np.int64(-1)
    for r in own:
        nearer, near = abs(words[r] - size), abs(closest - size)
        if r != left_out and (
            closest < 0 or nearer < near or (nearer == near and words[r] < closest)
        ):
            closest = words[r]
    return closest


@njit(nogil=True, cache=True)
def _matches_of_pairs(begin, end, pairs, captions, references, out):
    most = captions.start.shape[1]
    for k in range(begin, end):
        c, image = pairs.captions[k], pairs.images[k]
        own = pairs.refs[pairs.ref_ptr[image] : pairs.ref_ptr[image + 1]]
        left_out = c if pairs.leave_out else np.int64(-1)
        size = captions.words[c]
        found = np.empty(size, np.int64)
        out[k, 0], out[k, 1] = size, _closest(size, own, left_out, references.words)
        for n in range(most):
            out[k, 2 + n] = _clipped(c, own, left_out, n, captions, references, found)
            out[k, 2 + most + n] = max(size - n, 0)


def _statistics_of_pairs(
    pairs: ImagePairs, captions: Sentences, references: Sentences
) -> np.ndarray:
    """Counts of each pair, float64 [pairs, 2 + 2 orders].

    They are the caption's words, those of the reference of the closest length, the matches of each
    order, and the n-grams of each order.
    """
    out = np.empty((len(pairs.captions), 2 + 2 * captions.start.shape[1]))
    in_threads(_matches_of_pairs, len(out), pairs, captions, references, out)
    return out


def _bleu_of(statistics: np.ndarray) -> np.ndarray:
    """BLEU-1..most from counts or sums of counts [..., 2 + 2 most], float64 [..., most].

    `BP (Π_n correct_n / guess_n)^(1/k)`, n = 1..k; source: pycocoevalcap `bleu_scorer.py`, with its
    1e-15 and 1e-9.
    """
    most = (statistics.shape[-1] - 2) // 2
    words, closest = statistics[..., 0], statistics[..., 1]
    correct, guess = statistics[..., 2 : 2 + most], statistics[..., 2 + most :]
    precision = np.cumprod((correct + TINY) / (guess + _SMALL), axis=-1) ** (
        1 / np.arange(1, most + 1)
    )
    ratio = (words + TINY) / (closest + _SMALL)
    with np.errstate(divide="ignore", over="ignore"):
        penalty = np.where(ratio < 1, np.exp(1 - 1 / ratio), 1.0)
    return precision * penalty[..., None]


class Lengths(NamedTuple):
    """The different lengths of captions, called classes."""

    words: np.ndarray  # int64 [classes]
    of_caption: np.ndarray  # int32 [n_captions]: class
    # float64 [classes]: what the k-th root of the product of matches is multiplied by, which is the
    # k-th root of 1 / the product of how many n-grams a caption has
    precision: np.ndarray


@njit(cache=True)
def _fold(refs, sentences, lengths, factor):
    """The n-grams of references, ascending, with their largest counts.

    Into `factor` goes what turns a caption's matches into BLEU, for each class of length: its own
    counts and the brevity penalty.
    """
    last = sentences.start.shape[1] - 1
    for d in range(factor.shape[0]):
        ratio = (lengths.words[d] + TINY) / (
            _closest(lengths.words[d], refs, -1, sentences.words) + _SMALL
        )
        factor[d] = lengths.precision[d] * (np.exp(1 - 1 / ratio) if ratio < 1 else 1.0)
    return merge_largest(
        refs, -1, sentences.start[:, 0], sentences.stop[:, last], sentences.gram, sentences.counts
    )


@njit(cache=True, forceinline=True)
def _root(product, k):
    if k == 1:
        return product
    if k == 2:
        return np.sqrt(product)
    if k == 3:
        return np.cbrt(product)
    return np.sqrt(np.sqrt(product))


@njit(nogil=True, fastmath=_FAST, cache=True)
def _score_chunk(begin, end, pairs, first, sentences, order, lengths, postings, out):
    """Captions first.. into out, float32 [images, captions], of pairs.images[begin:end]."""
    size, k, factor = out.shape[1], sentences.start.shape[1], np.empty(lengths.words.shape[0])
    for b in range(begin, end):
        image = pairs.images[b]
        own = pairs.refs[pairs.ref_ptr[image] : pairs.ref_ptr[image + 1]]
        grams, most = _fold(own, sentences, lengths, factor)
        correct = np.zeros((k, size), np.uint16)
        for x in range(grams.shape[0]):
            matches = correct[order[grams[x]]]
            for t in range(postings.term_ptr[grams[x]], postings.term_ptr[grams[x] + 1]):
                gained = np.uint16(min(postings.term_count[t], most[x]))
                if postings.dense_row[t] >= 0:
                    has = postings.dense[postings.dense_row[t], first : first + size]
                    for j in range(size):
                        matches[j] += gained * has[j]
                else:
                    post = postings.rank[postings.ptr[t] : postings.ptr[t + 1]]
                    p = np.searchsorted(post, first) if first else 0
                    while p < post.shape[0] and post[p] < first + size:
                        matches[post[p] - first] += gained
                        p += 1
        for j in range(size):
            product = 1.0
            for n in range(k):
                product *= correct[n, j] + TINY
            out[b, j] = _root(product, k) * factor[lengths.of_caption[first + j]]


@dataclass(frozen=True)
class FittedBleu(OfReferences):
    """The captions as rows of n-grams of up to k words and as postings."""

    sentences: Sentences
    order: np.ndarray  # int8 [n_grams]
    lengths: Lengths
    postings: Postings

    @property
    def columns(self) -> int:
        return len(self.lengths.of_caption)

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        pairs = ImagePairs(images, captions, self.ref_ptr, self.refs, self.leave_out)
        return _bleu_of(_statistics_of_pairs(pairs, self.sentences, self.sentences))[:, -1].astype(
            np.float32
        )

    def filler(self, images: np.ndarray, start: int) -> Fill:
        pairs = ImagePairs(images, np.empty(0, np.int64), self.ref_ptr, self.refs)
        index = self.sentences, self.order, self.lengths, self.postings

        def fill(first: int, last: int, out: np.ndarray) -> None:
            in_threads(_score_chunk, len(images), pairs, first, *index, out[:, : last - first])

        return fill

    def cells(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """As `Fitted.cells`, float32 [len(images), len(captions)]: by the same kernel, over an
        index of these captions alone."""
        return self.part(images, captions).score(np.arange(len(images)))

    def part(self, images: np.ndarray, captions: np.ndarray) -> FittedBleu:
        """The measure of these images int64 [n] and captions int64 [m] alone, as
        `FittedCider.part`."""
        ref_ptr, refs = sets_of(self.ref_ptr, self.refs, images)
        rank = np.arange(len(captions), dtype=np.int32)
        grams, part = self.postings.part(self.sentences.take(captions), captions, rank)
        return replace(
            self,
            ref_ptr=ref_ptr,
            refs=len(captions) + np.arange(len(refs)),
            leave_out=False,
            sentences=self.sentences.take(np.concatenate([captions, refs])).among(grams),
            order=self.order[grams],
            lengths=self.lengths._replace(of_caption=self.lengths.of_caption[captions]),
            postings=part,
        )


def fit(captions: Captions, params: BleuParams) -> FittedBleu:
    """As `Bleu.fit`."""
    sets = reference_sets(params.self_reference, captions)
    ngrams, k = count_ngrams(captions, params.n), params.n
    words = ngrams.sentences.words
    longest = int(words.argmax())
    if words[longest] > _MOST_WORDS:
        problem = f"caption '{captions.caption_ids[longest]}' has {words[longest]} tokens"
        raise InputError(problem, remedy=f"shorten it to {_MOST_WORDS}")
    lengths, length_class = np.unique(words, return_inverse=True)
    guesses = np.maximum(lengths[:, None] - np.arange(k), 0) + _SMALL
    has = np.ones(len(ngrams.sentences.gram), np.uint16)
    rank = np.arange(captions.n_captions, dtype=np.int32)
    return FittedBleu(
        *sets,
        sentences=ngrams.sentences,
        order=orders_of(ngrams.keys),
        lengths=Lengths(
            lengths, length_class.astype(np.int32), np.prod(guesses, axis=1) ** (-1 / k)
        ),
        postings=build_postings(ngrams, rank, has, DENSE_SHARE),
    )


def score_candidates(corpus: Corpus) -> dict[str, Scored]:
    """BLEU-1 to BLEU-4, 0..1, with the closest reference length, as pycocoevalcap."""
    sentences = corpus.ngrams.sentences
    counts = _statistics_of_pairs(corpus.candidates.pairs, sentences, sentences)
    values = _bleu_of(counts)
    return {
        f"bleu_{k + 1}": Scored(values[:, k], counts, lambda sums, k=k: _bleu_of(sums)[:, k])  # type: ignore[misc]
        for k in range(MAX_ORDER)
    }

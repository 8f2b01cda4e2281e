"""CIDEr and tf-idf cosines in general, fitted on captions.

What a caption gains by an n-gram of a reference depends on its length, its count of the n-gram and
its norm alone. So an image's references are folded into one table over lengths, and each posting of
an inverted index costs one update (`kernel`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from capgrade.kernels import in_threads, njit
from capgrade.measures import base
from capgrade.measures.base import (
    Fill,
    Fitted,
    ImagePairs,
    OfReferences,
    Scored,
    Sets,
    mean_score,
    reference_sets,
    sets_of,
)
from capgrade.measures.cider import kernel
from capgrade.measures.cider.kernel import Form, Ranked, ReferenceTable, Weighted, Weights
from capgrade.measures.corpus import Corpus
from capgrade.measures.frequencies import Frequencies, warn_of_one_image
from capgrade.measures.ngrams import (
    Ngrams,
    Postings,
    Sentences,
    alphabetical,
    build_postings,
    count_ngrams,
    look_up,
    orders_of,
)
from capgrade.schemas.captions import Captions
from capgrade.text.tokens import number_words, split_at_white_space, tokens_of_text

if TYPE_CHECKING:
    from capgrade.measures.cider import CiderPlain

_DENSE_SHARE = 0.125  # of the captions; the fastest of 1/32, 1/16, 1/8, 1/4 on COCO 5K


def _inverse_norms(sentences: Sentences, gain: np.ndarray) -> np.ndarray:
    """`Weighted.inverse`; `gain` float64 [n_grams] is the squared inverse document frequency."""
    runs = np.repeat(np.arange(sentences.start.size), (sentences.stop - sentences.start).ravel())
    weights = sentences.counts.astype(np.float64) ** 2 * gain[sentences.gram]
    squares = np.bincount(runs, weights, sentences.start.size)  # adds up in the n-grams' order
    squares = squares.reshape(sentences.start.shape)
    return np.divide(1, np.sqrt(squares), out=np.zeros(squares.shape), where=squares > 0)


@njit(cache=True)
def _cosines(c, r, captions, references, gain, clip):
    """The tf-idf cosines of caption c with reference r, summed over orders; n-grams ascend."""
    ours, theirs, total = captions.sentences, references.sentences, 0.0
    for n in range(captions.inverse.shape[1]):
        p, at = ours.start[c, n], theirs.start[r, n]
        while p < ours.stop[c, n] and at < theirs.stop[r, n]:
            g, other = ours.gram[p], theirs.gram[at]
            if g == other:
                count = theirs.counts[at]
                found = min(ours.counts[p], count) if clip else ours.counts[p]
                total += (
                    found * captions.inverse[c, n] * (count * gain[g] * references.inverse[r, n])
                )
            p += g <= other  # without branches, which a processor would guess wrongly half the time
            at += other <= g
    return total


@njit(nogil=True, cache=True)
def _cider_of_pairs(begin, end, pairs, captions, references, gain, form, out):
    lengths, words = captions.sentences.words, references.sentences.words
    for k in range(begin, end):
        c, image = pairs.captions[k], pairs.images[k]
        total, used = 0.0, 0
        for r in pairs.refs[pairs.ref_ptr[image] : pairs.ref_ptr[image + 1]]:
            if not (pairs.leave_out and r == c):
                cosines = _cosines(c, r, captions, references, gain, form.clip)
                apart = max(lengths[c] - 1, 0) - max(words[r] - 1, 0)  # the source counts bigrams
                total += cosines * math.exp(-(apart * apart) / (2 * (form.sigma * form.sigma)))
                used += 1
        out[k] = form.scale * total / used if used else np.nan


def score_pairs(
    pairs: ImagePairs, captions: Weighted, references: Weighted, gain: np.ndarray, form: Form
) -> np.ndarray:
    """float64 [pairs]; NaN where no reference is left.

    Source: Vedantam et al. 2015, eq. 1-4 and section 7; pycocoevalcap `cider/cider_scorer.py`.
    """
    out = np.empty(len(pairs.captions))
    in_threads(_cider_of_pairs, len(out), pairs, captions, references, gain, form, out)
    return out


@dataclass(frozen=True)
class FittedCider(OfReferences):
    """The captions as rows of n-grams and as postings."""

    sentences: Sentences
    inverse: np.ndarray  # `Weighted.inverse`
    weights: Weights
    postings: Postings
    ranked: Ranked
    form: Form
    full: float  # of a caption with itself, if it has n-grams of all orders

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        pairs = ImagePairs(images, captions, self.ref_ptr, self.refs, self.leave_out)
        values = score_pairs(pairs, self.weighted, self.weighted, self.weights.gain, self.form)
        return values.astype(np.float32)

    def on_device(self, device: Any) -> Fitted:
        from capgrade.measures.cider.device import CiderOnDevice

        return CiderOnDevice(self, device)

    @property
    def columns(self) -> int:
        return len(self.ranked.rank)

    @property
    def weighted(self) -> Weighted:
        """The captions as kernels take them."""
        return Weighted(self.sentences, self.inverse)

    def filler(self, images: np.ndarray, start: int) -> Fill:
        """As `Fitted.filler`. References are folded, and postings walked, once for all chunks."""
        folded, cursor, following = self.fold(images, start)

        def fill(first: int, last: int, out: np.ndarray) -> None:
            ranked = self.ranked._replace(class_start=self.ranked.class_start[first // base.CHUNK])
            args = (folded, cursor, following, self.postings, ranked, self.full, first, last, out)
            in_threads(kernel.score_images, len(images), *args)

        return fill

    def cells(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """As `Fitted.cells`: by the same kernel, over an index of these captions alone."""
        return self.part(images, captions).score(np.arange(len(images)))

    def part(self, images: np.ndarray, captions: np.ndarray) -> FittedCider:
        """These images, and these captions as columns.

        Behind the captions stand the references, without the n-grams that no column has.
        """
        ref_ptr, refs = sets_of(self.ref_ptr, self.refs, images)
        rows = np.concatenate([captions, refs])
        gain, order, length_class, penalty = self.weights
        lengths, of_column = np.unique(length_class[captions], return_inverse=True)
        ranked = _rank_by_length(of_column, len(lengths), self.inverse[captions])
        was = self.ranked.rank[captions]
        grams, part = self.postings.part(self.sentences.take(captions), was, ranked.rank)
        return replace(
            self,
            ref_ptr=ref_ptr,
            refs=len(captions) + np.arange(len(refs)),
            leave_out=False,
            sentences=self.sentences.take(rows).among(grams),
            inverse=self.inverse[rows],
            weights=Weights(
                gain[grams], order[grams], length_class[rows], np.take(penalty, lengths, axis=1)
            ),
            postings=part,
            ranked=ranked,
        )

    def fold(self, images: np.ndarray, first: int) -> tuple[ReferenceTable, np.ndarray, np.ndarray]:
        """The terms of these images' references, and what a caption gains by each, from rank
        `first` on: as `fold_references`."""
        pairs = ImagePairs(images, np.empty(0, np.int64), self.ref_ptr, self.refs)
        return kernel.fold_references(
            pairs, first, self.weighted, self.weights, self.form, self.postings
        )


def score_sentences(
    pairs: ImagePairs, sentences: Sentences, idf: np.ndarray, sigma: float
) -> np.ndarray:
    """CIDEr-D, 0..10, float64 [pairs], of sentences; `idf` is of n-grams by their numbers."""
    gain = idf**2
    weighted = Weighted(sentences, _inverse_norms(sentences, gain))
    return score_pairs(pairs, weighted, weighted, gain, Form(clip=True, sigma=sigma))


def fit(captions: Captions, measure: CiderPlain) -> FittedCider:
    """As `CiderPlain.fit`."""
    sets, ngrams = reference_sets(measure.params.self_reference, captions), count_ngrams(captions)
    idf = measure.frequencies(captions, ngrams).idf(ngrams)
    return index_captions(captions, ngrams, idf, measure.form, sets)


def score_candidates(corpus: Corpus, sigma: float, source: str | None = None) -> Scored:
    """CIDEr-D, 0..10, as pycocoevalcap `cider/cider_scorer.py`.

    Document frequencies are those of the corpus, else of `source`, else counted on the references.

    Warns where the document frequencies are of a single image, as all is 0 then.
    """
    candidates, ngrams, frequencies = corpus.candidates, corpus.ngrams, corpus.frequencies
    if frequencies is None and source is not None:
        frequencies = Frequencies.read(source, corpus.tokenizer)
    if frequencies is None:
        sizes, owner = np.diff(candidates.pairs.ref_ptr), np.full(len(candidates.texts), -1)
        owner[candidates.pairs.refs] = np.repeat(np.arange(len(sizes)), sizes)
        frequencies = Frequencies.count(
            ngrams, owner, len(sizes), corpus.tokenizer, "these references"
        )
    warn_of_one_image(frequencies.n_images)
    idf = frequencies.idf(ngrams)
    values = score_sentences(candidates.pairs, ngrams.sentences, idf, sigma)
    return mean_score(values)


class UnseenCider:
    """CIDEr-D or CIDEr of any caption.

    An n-gram that no image has counts as one that one image has, as in `fit`.
    """

    def __init__(self, measure: CiderPlain, fitted: FittedCider, captions: Captions) -> None:
        self._ngrams = count_ngrams(captions)
        self._frequencies = measure.frequencies(captions, self._ngrams)
        self._number = {word: k for k, word in enumerate(self._ngrams.vocabulary)}
        self.fitted, self.tokenizer = fitted, captions.tokenizer

    def __call__(self, text: str) -> np.ndarray:
        tokens = number_words([tokens_of_text(text, self.tokenizer)])
        typed = alphabetical(split_at_white_space(tokens))
        inverse = _inverse_norms(typed.sentences, self._frequencies.idf(typed) ** 2)
        words = np.array([self._number.get(word, -1) for word in typed.vocabulary], np.int32)
        number = look_up(typed.keys, words, self._ngrams.keys)[typed.sentences.gram]
        # N-grams that no fitted caption has match nothing.
        sentences = typed.sentences.renumbered(number)
        fitted = self.fitted
        images = np.arange(len(fitted.ref_ptr) - 1)
        pairs = ImagePairs(images, np.zeros_like(images), fitted.ref_ptr, fitted.refs)
        caption, gain = Weighted(sentences, inverse), fitted.weights.gain
        values = score_pairs(pairs, caption, fitted.weighted, gain, fitted.form)
        return values.astype(np.float32)


def index_captions(
    captions: Captions, ngrams: Ngrams, idf: np.ndarray, form: Form, sets: Sets
) -> FittedCider:
    """The captions, ready to be scored; their n-grams are weighted by idf, float64 [n_grams]."""
    sentences, order, gain = ngrams.sentences, orders_of(ngrams.keys), idf**2
    inverse = _inverse_norms(sentences, gain)
    length_class, penalty = _length_penalty(sentences.words, form.sigma)
    ranked = _rank_by_length(length_class, len(penalty), inverse)
    value = inverse[sentences.row, order[sentences.gram]].astype(np.float32)
    return FittedCider(
        *sets,
        sentences=sentences,
        inverse=inverse,
        weights=Weights(gain, order, length_class.astype(np.int32), penalty),
        postings=build_postings(ngrams, ranked.rank, value, _DENSE_SHARE),
        ranked=ranked,
        form=form,
        full=float(form.scale * (1 + order.max(initial=0))),
    )


def _rank_by_length(length_class: np.ndarray, n_classes: int, inverse: np.ndarray) -> Ranked:
    """Of captions, by the class of each one's length, int [n], and `Weighted.inverse`."""
    chunk = np.arange(len(length_class)) // base.CHUNK
    by_length = np.lexsort((length_class, chunk))
    rank = np.empty(len(chunk), np.int32)
    rank[by_length] = np.arange(len(chunk))
    cells = np.arange(n_classes + 1) + np.arange(chunk[-1] + 1)[:, None] * n_classes
    class_start = np.searchsorted((chunk * n_classes + length_class)[by_length], cells)
    class_of_rank = length_class[by_length].astype(np.uint8 if n_classes <= 256 else np.int32)
    norm_of_rank = np.ascontiguousarray(inverse[by_length].T.astype(np.float32))
    return Ranked(class_start, rank, class_of_rank, norm_of_rank)


def _length_penalty(words: np.ndarray, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Class of each caption's length, and what a difference costs, float32 [classes, classes]."""
    if sigma == np.inf:
        return np.zeros(len(words), np.int64), np.ones((1, 1), np.float32)
    bigrams = np.maximum(words - 1, 0)  # the reference code's "length"
    lengths, length_class = np.unique(bigrams, return_inverse=True)
    difference = (lengths[:, None] - lengths[None, :]).astype(np.float64)
    return length_class, np.exp(-(difference**2) / (2 * sigma**2)).astype(np.float32)

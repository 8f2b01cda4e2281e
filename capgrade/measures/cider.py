"""CIDEr-D of every caption with every image's reference set; plain CIDEr and tf-idf cosines in general.

CIDEr-D is the score of pycocoevalcap (`cider/cider_scorer.py`): clipped tf-idf cosine of 1- to 4-grams, a Gaussian
penalty on the difference of lengths, mean over orders and references, times 10. Without clipping and penalty it is
CIDEr; on words alone, a tf-idf cosine (`tfidf.py`). The kernel walks an inverted index of the captions. For an n-gram
of the image's reference set, what a caption gains depends on the caption only through its length, its count of the
n-gram and its norm, so the references are folded into one small table over caption lengths, and each posting costs
one update however many references contain the n-gram. N-grams that occur in more than an eighth of the captions are
rows of a dense matrix instead of postings; captions are ranked by length, so that a dense row is a few vectorised
runs. All that goes on chunk of captions after chunk, so that an image's sums stay in a core's cache however many
captions there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from capgrade.measures import cider_kernel as kernel
from capgrade.measures.base import CHUNK, UNIT, ArrayState, Error, Fill, leaves_out
from capgrade.measures.cider_kernel import Postings, Ranked, ReferenceTable, Rows
from capgrade.measures.cider_pairs import Form, Weighted, inverse_norms, score_pairs
from capgrade.measures.ngrams import (
    DocumentFrequencies,
    Ngrams,
    count_ngrams,
    document_frequencies,
    read_document_frequencies,
    sentences_of,
)
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CiderParams, CiderPlainParams

DENSE_SHARE = 0.125  # of the captions; the fastest of 1/32, 1/16, 1/8, 1/4 on COCO 5K
LARGEST = 2**63 - 1  # whole number that postings are sorted by


@dataclass(frozen=True)
class FittedCider(ArrayState):
    """The captions as rows of n-grams and as an inverted index over (n-gram, count) terms: the fields of the
    kernel's `Rows`, `Postings` and `Ranked`, which say their shapes and dtypes."""

    ref_ptr: np.ndarray
    refs: np.ndarray
    start: np.ndarray  # int64 [n_captions * orders + 1]: of each order's n-grams of each caption
    gram: np.ndarray
    count: np.ndarray  # `counts` of the rows
    gain: np.ndarray
    order: np.ndarray
    inv_norm: np.ndarray  # float64 [n_captions, orders]: `Weighted.inverse`
    words: np.ndarray  # int64 [n_captions]
    length_class: np.ndarray
    penalty: np.ndarray
    term_ptr: np.ndarray
    term_count: np.ndarray
    post_ptr: np.ndarray  # `ptr` of the postings
    post_rank: np.ndarray  # `rank` of the postings
    dense_row: np.ndarray
    dense: np.ndarray
    class_start: np.ndarray  # int64 [chunks, classes + 1]
    rank: np.ndarray
    class_of_rank: np.ndarray
    norm_of_rank: np.ndarray
    clip: bool
    sigma: float
    scale: float
    leave_out: bool

    @property
    def columns(self) -> int:
        """As `Fitted.columns`."""
        return len(self.rank)

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """As `Fitted.pairs`."""
        return self.scores(images, captions, self.sentences, self.leave_out).astype(np.float32)

    def scores(self, images: np.ndarray, rows: np.ndarray, captions: Weighted, leave_out: bool = False) -> np.ndarray:
        """float64 [pairs] of rows of any captions, with n-grams numbered as here."""
        pairs, form = self.image_pairs(images, rows, leave_out), Form(self.clip, self.sigma, self.scale)
        return score_pairs(pairs, captions, self.sentences, self.gain, form)

    @property
    def sentences(self) -> Weighted:
        """The captions as `score_pairs` takes them."""
        return Weighted(sentences_of(self.start, self.gram, self.count, self.words), self.inv_norm)

    @property
    def error(self) -> Error:
        """As `Fitted.error`. All terms are positive. An n-gram's gains are added over the references, four products at
        a time; other sums are in double precision. Within 1e-6 of `full` it is `full`."""
        references = int(np.diff(self.ref_ptr).max(initial=0))
        return Error(relative=(references + 16) * UNIT + kernel.ROUNDING)

    def filler(self, images: np.ndarray, start: int) -> Fill:
        """As `Fitted.filler`; references are folded once, and the postings walked once, for all chunks."""
        postings = self.postings
        folded, cursor, following = kernel.fold_references(images, start, self.rows, postings)

        def fill(first: int, last: int, out: np.ndarray) -> None:
            ranked = Ranked(self.class_start[first // CHUNK], self.rank, self.class_of_rank, self.norm_of_rank)
            kernel.score_chunk(folded, cursor, following, postings, ranked, self.full, first, last, out)

        return fill

    def fold(self, images: np.ndarray, first: int) -> ReferenceTable:
        """The terms of these images' references that captions from row `first` on have, and what a caption gains by
        each."""
        folded: ReferenceTable = kernel.fold_references(images, first, self.rows, self.postings)[0]
        return folded

    @cached_property
    def full(self) -> float:
        """What a caption has with itself, if it has n-grams of all orders."""
        return float(self.scale * (1 + self.order.max(initial=0)))

    @cached_property
    def rows(self) -> Rows:
        return Rows(
            self.ref_ptr, self.refs, np.ascontiguousarray(self.start[:: self.inv_norm.shape[1]]), self.gram, self.count,
            self.gain, self.order, self.inv_norm, self.length_class, self.penalty, self.clip, self.scale,
        )  # fmt: skip

    @property
    def postings(self) -> Postings:
        return Postings(
            self.term_ptr, self.term_count, self.post_ptr, self.post_rank, self.dense_row, self.dense
        )  # fmt: skip


class Cider:
    """CIDEr-D as pycocoevalcap computes it, 0..10, of every caption with every image's reference set.

    Document frequencies come from the fitted split, another captions folder, or a saved file. Source:
    Vedantam et al. 2015, eq. 1-4 and section 7 (CIDEr-D); pycocoevalcap `cider/cider_scorer.py`.
    """

    low, high = 0.0, 10.0

    def __init__(self, params: CiderParams) -> None:
        self.params = params

    def fit(self, captions: Captions) -> FittedCider:
        """Index the captions. InputError when the document frequencies come from a single image (all scores
        would be 0), or `self_reference: left_out` leaves an image without references."""
        leave_out = leaves_out(self.params.self_reference, captions)
        form = Form(clip=True, sigma=self.params.sigma)
        return _index_by(self.params.document_frequency, captions, form, leave_out)


class CiderPlain:
    """CIDEr, 0..10: the tf-idf cosine of 1- to 4-grams, mean over orders and references, times 10, without CIDEr-D's
    clipping and length penalty. Source: Vedantam et al. 2015, eq. 1-3; pycocoevalcap computes CIDEr-D alone."""

    low, high = 0.0, 10.0

    def __init__(self, params: CiderPlainParams) -> None:
        self.params = params

    def fit(self, captions: Captions) -> FittedCider:
        """As `Cider.fit`."""
        leave_out = leaves_out(self.params.self_reference, captions)
        return _index_by(self.params.document_frequency, captions, Form(clip=False, sigma=np.inf), leave_out)


def corpus_frequencies(captions: Captions, ngrams: Ngrams, source: str | None) -> DocumentFrequencies:
    """Of the captions (None), or of what `document_frequency` names. InputError when they count one image."""
    if source is None:
        frequencies = document_frequencies(captions, ngrams)
    else:
        frequencies = read_document_frequencies(source, captions.tokenizer)
    if frequencies.n_images < 2:
        raise InputError(
            f"document frequencies of {frequencies.n_images} image(s) make every CIDEr 0", file=source,
            remedy="set measures.cider.document_frequency to a captions folder or a saved file",
        )  # fmt: skip
    return frequencies


def _index_by(source: str | None, captions: Captions, form: Form, leave_out: bool) -> FittedCider:
    """Captions weighted by ln N - ln max(1, df), df of the captions (None) or of `source`."""
    ngrams = count_ngrams(captions)
    frequencies = corpus_frequencies(captions, ngrams, source)
    df = frequencies.of(ngrams.text)
    idf = np.log(frequencies.n_images) - np.log(np.maximum(df, 1))
    return index(captions, ngrams, idf, form, leave_out)


def index(captions: Captions, ngrams: Ngrams, idf: np.ndarray, form: Form, leave_out: bool) -> FittedCider:
    """Captions with their n-grams, weighted by idf float64 [n_grams], ready to be scored."""
    chunk = np.arange(captions.n_captions) // CHUNK
    sentences, gain = ngrams.sentences, idf**2
    inv_norm = inverse_norms(sentences, gain)
    length_class, penalty = length_penalty(sentences.words, form.sigma)
    by_length = np.lexsort((length_class, chunk))
    rank = np.empty(captions.n_captions, np.int32)
    rank[by_length] = np.arange(captions.n_captions)
    cells = np.arange(len(penalty) + 1) + np.arange(chunk[-1] + 1)[:, None] * len(penalty)
    class_start = np.searchsorted((chunk * len(penalty) + length_class)[by_length], cells)
    return FittedCider(
        ref_ptr=captions.ref_ptr,
        refs=captions.refs,
        start=sentences.runs,
        gram=sentences.gram,
        count=sentences.counts,
        gain=gain,
        order=ngrams.order,
        inv_norm=inv_norm,
        words=sentences.words,
        length_class=length_class.astype(np.int32),
        penalty=penalty,
        class_start=class_start,
        rank=rank,
        class_of_rank=length_class[by_length].astype(np.uint8 if len(penalty) <= 256 else np.int32),
        norm_of_rank=np.ascontiguousarray(inv_norm[by_length].T.astype(np.float32)),
        clip=form.clip,
        sigma=form.sigma,
        scale=form.scale,
        leave_out=leave_out,
        **postings(ngrams, rank, inv_norm),
    )


def length_penalty(words: np.ndarray, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Class of each caption's length, and what a difference costs, float32 [classes, classes]."""
    if sigma == np.inf:
        return np.zeros(len(words), np.int64), np.ones((1, 1), np.float32)
    bigrams = np.maximum(words - 1, 0)  # the reference code's "length"
    lengths, length_class = np.unique(bigrams, return_inverse=True)
    difference = (lengths[:, None] - lengths[None, :]).astype(np.float64)
    return length_class, np.exp(-(difference**2) / (2 * sigma**2)).astype(np.float32)


def postings(ngrams: Ngrams, rank: np.ndarray, inv_norm: np.ndarray) -> dict[str, Any]:
    """Postings of each (n-gram, count) term sorted by rank, and the dense rows of the most frequent terms."""
    (_, _, gram, count, _), row, n_grams = ngrams.sentences, ngrams.sentences.row, len(ngrams.keys)
    by_term = _by_term(gram, count, rank[row], n_grams, len(rank))
    gram, count, row = gram[by_term], count[by_term], row[by_term]
    first = np.ones(len(gram), bool)
    first[1:] = (gram[1:] != gram[:-1]) | (count[1:] != count[:-1])
    start = np.append(np.flatnonzero(first), len(gram))
    term_gram, term_count = gram[start[:-1]], count[start[:-1]]
    term_ptr = np.searchsorted(term_gram, np.arange(n_grams + 1))
    value = inv_norm[row, ngrams.order[gram]].astype(np.float32)
    frequent = np.flatnonzero(np.diff(start) > DENSE_SHARE * len(rank))
    dense_row = np.full(len(start) - 1, -1, np.int32)
    dense_row[frequent] = np.arange(len(frequent))
    dense = np.zeros((len(frequent), len(rank)), np.float32)
    for k, t in enumerate(frequent):
        dense[k, rank[row[start[t] : start[t + 1]]]] = value[start[t] : start[t + 1]]
    return {
        "term_ptr": term_ptr,
        "term_count": term_count,
        "post_ptr": start,
        "post_rank": rank[row],
        "dense_row": dense_row,
        "dense": dense,
    }


def _by_term(gram: np.ndarray, count: np.ndarray, rank: np.ndarray, n_grams: int, n_captions: int) -> np.ndarray:
    """The order by n-gram, count and rank, of which no two have all three: where they fit into one number, sorting that
    takes a third of the time."""
    counts = int(count.max(initial=0)) + 1
    if n_grams * counts * n_captions > LARGEST:
        return np.lexsort((rank, count, gram))
    return np.argsort((gram.astype(np.int64) * counts + count) * n_captions + rank)

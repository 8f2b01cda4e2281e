"""CIDEr-D of every caption with every image's reference set.

The score of pycocoevalcap (`cider/cider_scorer.py`): clipped tf-idf cosine of 1- to 4-grams, a Gaussian penalty
on the difference of lengths, mean over orders and references, times 10. The kernel walks an inverted index of
the captions. For an n-gram of the image's reference set, what a caption gains depends on the caption only
through its length, its count of the n-gram and its norm, so the references are folded into one small table over
caption lengths, and each posting costs one update however many references contain the n-gram. N-grams that
occur in more than an eighth of the captions are rows of a dense matrix instead of postings; captions are ranked
by length, so that a dense row is a few vectorised runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit, prange

from pipelines.measures.base import ArrayState, own_pairs, put_own, require_two_references
from pipelines.measures.ngrams import (
    MAX_ORDER,
    DocumentFrequencies,
    Ngrams,
    count_ngrams,
    document_frequencies,
    read_document_frequencies,
)
from schemas.captions import Captions
from schemas.errors import InputError
from schemas.params import CiderParams

DENSE_SHARE = 0.125  # of the captions; the fastest of 1/32, 1/16, 1/8, 1/4 on COCO 5K
_FAST = {"contract", "reassoc", "nsz"}


@njit(parallel=True, fastmath=_FAST, cache=True)
def _score_all(
    images, ref_ptr, refs, ptr, gram, count, gain, order, inv_norm, length_class, penalty,
    term_ptr, term_count, post_ptr, post_rank, post_value, post_class, dense_row, dense, class_start, rank, out,
):  # fmt: skip
    n, n_classes = rank.shape[0], penalty.shape[0]
    for b in prange(images.shape[0]):
        first, last = ref_ptr[images[b]], ref_ptr[images[b] + 1]
        total = 0
        for q in range(first, last):
            total += ptr[refs[q] + 1] - ptr[refs[q]]
        grams, cells, owners = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
        k = 0
        for q in range(first, last):
            for p in range(ptr[refs[q]], ptr[refs[q] + 1]):
                grams[k], cells[k], owners[k] = gram[p], p, refs[q]
                k += 1
        by_gram = np.argsort(grams)
        scale = 10.0 / (4 * (last - first))
        acc = np.zeros(n)  # double: a long caption adds up thousands of small terms
        table = np.empty(n_classes, np.float32)
        tables = np.empty((dense.shape[0], n_classes), np.float32)
        rows = np.empty(dense.shape[0], np.int64)
        n_rows = 0
        k = 0
        while k < total:
            g = grams[by_gram[k]]
            end = k
            while end < total and grams[by_gram[end]] == g:
                end += 1
            for t in range(term_ptr[g], term_ptr[g + 1]):
                # table[d]: what a caption of length class d with this count of g gains, before its own norm
                table[:] = 0
                for x in range(k, end):
                    r, c = owners[by_gram[x]], count[cells[by_gram[x]]]
                    w = np.float32(min(c, term_count[t]) * c * gain[g] * inv_norm[r, order[g]] * scale)
                    fade = penalty[length_class[r]]
                    for d in range(n_classes):
                        table[d] += w * fade[d]
                if dense_row[t] >= 0:
                    tables[n_rows] = table
                    rows[n_rows] = dense_row[t]
                    n_rows += 1
                else:
                    for p in range(post_ptr[t], post_ptr[t + 1]):
                        acc[post_rank[p]] += table[post_class[p]] * post_value[p]
            k = end
        for d in range(n_classes):
            x = 0
            while x + 4 <= n_rows:
                a0, a1, a2, a3 = tables[x, d], tables[x + 1, d], tables[x + 2, d], tables[x + 3, d]
                d0, d1, d2, d3 = dense[rows[x]], dense[rows[x + 1]], dense[rows[x + 2]], dense[rows[x + 3]]
                for j in range(class_start[d], class_start[d + 1]):
                    acc[j] += a0 * d0[j] + a1 * d1[j] + a2 * d2[j] + a3 * d3[j]
                x += 4
            while x < n_rows:
                a0, d0 = tables[x, d], dense[rows[x]]
                for j in range(class_start[d], class_start[d + 1]):
                    acc[j] += a0 * d0[j]
                x += 1
        for c in range(n):
            out[b, c] = acc[rank[c]]


@njit(cache=True)
def _without_self(h, i, ref_ptr, refs, ptr, gram, count, gain, order, inv_norm, length_class, penalty):
    """One caption with the other references of its image, from the two sorted rows of n-grams."""
    total, used = 0.0, 0
    for q in range(ref_ptr[i], ref_ptr[i + 1]):
        r = refs[q]
        if r == h:
            continue
        used += 1
        a, b, value = ptr[h], ptr[r], 0.0
        while a < ptr[h + 1] and b < ptr[r + 1]:
            g = gram[a]
            if g == gram[b]:
                o = order[g]
                value += min(count[a], count[b]) * count[b] * gain[g] * inv_norm[h, o] * inv_norm[r, o]
                a += 1
                b += 1
            elif g < gram[b]:
                a += 1
            else:
                b += 1
        total += value * penalty[length_class[r], length_class[h]]
    return 10.0 * total / (4 * used)


@njit(parallel=True, cache=True)
def _score_some(
    images, captions, found_gram, found_column, found_count, ref_ptr, refs, ptr, gram, count, gain, order, inv_norm,
    length_class, penalty, out,
):  # fmt: skip
    """All pairs of some images and some captions, whose n-grams come sorted: each n-gram of a reference is looked up
    once for all captions."""
    n_found = found_gram.shape[0]
    for b in prange(images.shape[0]):
        i = images[b]
        total, one = np.zeros(captions.shape[0]), np.empty(captions.shape[0])
        for q in range(ref_ptr[i], ref_ptr[i + 1]):
            r = refs[q]
            one[:] = 0
            for p in range(ptr[r], ptr[r + 1]):
                g = gram[p]
                o = order[g]
                k = np.searchsorted(found_gram, g)
                while k < n_found and found_gram[k] == g:
                    column = found_column[k]
                    norms = inv_norm[captions[column], o] * inv_norm[r, o]
                    one[column] += min(found_count[k], count[p]) * count[p] * gain[g] * norms
                    k += 1
            for column in range(captions.shape[0]):
                total[column] += one[column] * penalty[length_class[r], length_class[captions[column]]]
        for column in range(captions.shape[0]):
            out[b, column] = 10.0 * total[column] / (4 * (ref_ptr[i + 1] - ref_ptr[i]))


@njit(cache=True)
def _leave_out_self(
    rows, captions, images, ref_ptr, refs, ptr, gram, count, gain, order, inv_norm, length_class, penalty, out
):
    for k in range(rows.shape[0]):
        out[k] = _without_self(
            captions[k], images[rows[k]], ref_ptr, refs, ptr, gram, count, gain, order, inv_norm, length_class, penalty
        )


@dataclass(frozen=True)
class FittedCider(ArrayState):
    """The captions as rows of n-grams and as an inverted index over (n-gram, count) terms."""

    ref_ptr: np.ndarray  # int64 [n_images + 1]
    refs: np.ndarray  # int64 [n_captions]
    ptr: np.ndarray  # int64 [n_captions + 1]
    gram: np.ndarray  # int32 [nonzeros]
    count: np.ndarray  # int32 [nonzeros]
    gain: np.ndarray  # float64 [n_grams]: squared inverse document frequency
    order: np.ndarray  # int8 [n_grams]
    inv_norm: np.ndarray  # float64 [n_captions, 4]: 0 where the norm is 0
    length_class: np.ndarray  # int32 [n_captions]
    penalty: np.ndarray  # float32 [classes, classes]
    term_ptr: np.ndarray  # int64 [n_grams + 1]
    term_count: np.ndarray  # int32 [terms]
    post_ptr: np.ndarray  # int64 [terms + 1]
    post_rank: np.ndarray  # int32 [postings]
    post_value: np.ndarray  # float32 [postings]
    post_class: np.ndarray  # int32 [postings]
    dense_row: np.ndarray  # int32 [terms]: row in `dense`, -1 for postings
    dense: np.ndarray  # float32 [dense terms, n_captions], columns by rank
    class_start: np.ndarray  # int64 [classes + 1]
    rank: np.ndarray  # int32 [n_captions]: position when sorted by length
    leave_out: bool

    def score(self, images: np.ndarray, captions: np.ndarray | None = None) -> np.ndarray:
        """CIDEr-D, 0..10, float32 [len(images), n_captions or len(captions)]."""
        pair_args = (
            self.ref_ptr, self.refs, self.ptr, self.gram, self.count, self.gain, self.order, self.inv_norm,
            self.length_class, self.penalty,
        )  # fmt: skip
        if captions is None:
            out = np.empty((len(images), len(self.rank)), np.float32)
            _score_all(
                images, *pair_args, self.term_ptr, self.term_count, self.post_ptr, self.post_rank,
                self.post_value, self.post_class, self.dense_row, self.dense, self.class_start, self.rank, out,
            )  # fmt: skip
        else:
            out = np.empty((len(images), len(captions)), np.float32)
            _score_some(images, captions, *self._sorted_ngrams(captions), *pair_args, out)
        if self.leave_out:
            self._leave_out_self(images, captions, pair_args, out)
        return out

    def _sorted_ngrams(self, captions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """N-gram, column and count of every n-gram of these captions, sorted by n-gram: int32, int64, int32."""
        sizes = self.ptr[captions + 1] - self.ptr[captions]
        column = np.repeat(np.arange(len(captions)), sizes)
        at = np.arange(len(column)) - np.repeat(np.cumsum(sizes) - sizes - self.ptr[captions], sizes)
        by_gram = np.argsort(self.gram[at], kind="stable")
        return self.gram[at][by_gram], column[by_gram], self.count[at][by_gram]

    def _leave_out_self(self, images: np.ndarray, captions: np.ndarray | None, args: tuple, out: np.ndarray) -> None:
        rows, own = own_pairs(self.ref_ptr, self.refs, images)
        values = np.empty(len(own), np.float32)
        _leave_out_self(rows, own, images, *args, values)
        put_own(out, rows, own, values, captions)


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
        if self.params.self_reference == "left_out":
            require_two_references(captions)
        ngrams = count_ngrams(captions)
        frequencies = self._frequencies(captions, ngrams)
        df = np.maximum(frequencies.of(ngrams.text), 1)
        idf = np.log(frequencies.n_images) - np.log(df)
        return _index(captions, ngrams, idf, self.params)

    def _frequencies(self, captions: Captions, ngrams: Ngrams) -> DocumentFrequencies:
        source = self.params.document_frequency
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


def _index(captions: Captions, ngrams: Ngrams, idf: np.ndarray, params: CiderParams) -> FittedCider:
    row = np.repeat(np.arange(captions.n_captions), np.diff(ngrams.ptr))
    inv_norm = _inverse_norms(ngrams, row, idf, captions.n_captions)
    bigrams = np.maximum(ngrams.words - 1, 0)  # the reference code's "length"
    lengths, length_class = np.unique(bigrams, return_inverse=True)
    difference = (lengths[:, None] - lengths[None, :]).astype(np.float64)
    penalty = np.exp(-(difference**2) / (2 * params.sigma**2)).astype(np.float32)
    by_length = np.argsort(length_class, kind="stable")
    rank = np.empty(captions.n_captions, np.int32)
    rank[by_length] = np.arange(captions.n_captions)
    class_start = np.searchsorted(length_class[by_length], np.arange(len(lengths) + 1))
    return FittedCider(
        ref_ptr=captions.ref_ptr,
        refs=captions.refs,
        ptr=ngrams.ptr,
        gram=ngrams.gram,
        count=ngrams.count,
        gain=idf**2,
        order=ngrams.order,
        inv_norm=inv_norm,
        length_class=length_class.astype(np.int32),
        penalty=penalty,
        class_start=class_start,
        rank=rank,
        leave_out=params.self_reference == "left_out",
        **_postings(ngrams, row, rank, inv_norm, length_class, len(idf)),
    )


def _inverse_norms(ngrams: Ngrams, row: np.ndarray, idf: np.ndarray, n_captions: int) -> np.ndarray:
    """float64 [n_captions, 4]; a norm of 0 gives 0, as the reference code then leaves the product 0."""
    squares = (ngrams.count * idf[ngrams.gram]) ** 2
    cell = row * MAX_ORDER + ngrams.order[ngrams.gram]
    norm = np.sqrt(np.bincount(cell, squares, n_captions * MAX_ORDER)).reshape(-1, MAX_ORDER)
    return np.divide(1, norm, out=np.zeros_like(norm), where=norm > 0)


def _postings(
    ngrams: Ngrams,
    row: np.ndarray,
    rank: np.ndarray,
    inv_norm: np.ndarray,
    length_class: np.ndarray,
    n_grams: int,
) -> dict[str, Any]:
    """Postings of each (n-gram, count) term sorted by rank, and the dense rows of the most frequent terms."""
    by_term = np.lexsort((rank[row], ngrams.count, ngrams.gram))
    gram, count, row = ngrams.gram[by_term], ngrams.count[by_term], row[by_term]
    first = np.ones(len(gram), bool)
    first[1:] = (gram[1:] != gram[:-1]) | (count[1:] != count[:-1])
    start = np.append(np.flatnonzero(first), len(gram))
    term_ptr = np.searchsorted(gram[start[:-1]], np.arange(n_grams + 1))
    value = inv_norm[row, ngrams.order[gram]].astype(np.float32)
    frequent = np.flatnonzero(np.diff(start) > DENSE_SHARE * len(rank))
    dense_row = np.full(len(start) - 1, -1, np.int32)
    dense_row[frequent] = np.arange(len(frequent))
    dense = np.zeros((len(frequent), len(rank)), np.float32)
    for k, t in enumerate(frequent):
        dense[k, rank[row[start[t] : start[t + 1]]]] = value[start[t] : start[t + 1]]
    return {
        "term_ptr": term_ptr,
        "term_count": count[start[:-1]],
        "post_ptr": start,
        "post_rank": rank[row],
        "post_value": value,
        "post_class": length_class[row].astype(np.int32),
        "dense_row": dense_row,
        "dense": dense,
    }

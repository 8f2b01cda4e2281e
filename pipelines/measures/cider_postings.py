"""What a corpus of n-grams is to CIDEr-D: penalties of lengths, and an inverted index over terms."""

from __future__ import annotations

from typing import Any

import numpy as np

from capgrade.pipelines.measures.ngrams import Ngrams

DENSE_SHARE = 0.125  # of the captions; the fastest of 1/32, 1/16, 1/8, 1/4 on COCO 5K
LARGEST = 2**63 - 1  # whole number that postings are sorted by


def length_penalty(words: np.ndarray, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Class of each caption's length, and what a difference costs, float32 [classes, classes]."""
    if sigma == np.inf:
        return np.zeros(len(words), np.int64), np.ones((1, 1), np.float32)
    bigrams = np.maximum(words - 1, 0)  # the reference code's "length"
    lengths, length_class = np.unique(bigrams, return_inverse=True)
    difference = (lengths[:, None] - lengths[None, :]).astype(np.float64)
    return length_class, np.exp(-(difference**2) / (2 * sigma**2)).astype(np.float32)


def postings(
    ngrams: Ngrams,
    row: np.ndarray,
    rank: np.ndarray,
    inv_norm: np.ndarray,
    n_grams: int,
    wanted: np.ndarray | None,
) -> dict[str, Any]:
    """Postings of each (n-gram, count) term sorted by rank, and the dense rows of the most frequent terms, or of
    these n-grams once in a caption, even where no caption has them once."""
    by_term = _by_term(ngrams.gram, ngrams.count, rank[row], n_grams, len(rank))
    gram, count, row = ngrams.gram[by_term], ngrams.count[by_term], row[by_term]
    first = np.ones(len(gram), bool)
    first[1:] = (gram[1:] != gram[:-1]) | (count[1:] != count[:-1])
    start = np.append(np.flatnonzero(first), len(gram))
    term_gram, term_count = gram[start[:-1]], count[start[:-1]]
    if wanted is not None:
        at = np.searchsorted(term_gram, wanted)
        new = term_count[at] != 1
        start, term_gram = np.insert(start, at[new], start[at[new]]), np.insert(term_gram, at[new], wanted[new])
        term_count = np.insert(term_count, at[new], 1)
    term_ptr = np.searchsorted(term_gram, np.arange(n_grams + 1))
    value = inv_norm[row, ngrams.order[gram]].astype(np.float32)
    frequent = np.flatnonzero(np.diff(start) > DENSE_SHARE * len(rank)) if wanted is None else term_ptr[wanted]
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

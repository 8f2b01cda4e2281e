"""Tf-idf cosine of words, mean over an image's references: what the code of DAA calls CIDEr."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from capgrade.pipelines.measures.base import leaves_out
from capgrade.pipelines.measures.cider import FittedCider, index
from capgrade.pipelines.measures.cider_pairs import Form
from capgrade.pipelines.measures.language import warn_of_scripts
from capgrade.pipelines.measures.ngrams import Ngrams
from capgrade.pipelines.measures.tokens import word_unigram
from capgrade.schemas.captions import Captions
from capgrade.schemas.params import TfidfParams


class TfidfCosine:
    """Mean over the references of the cosine of tf-idf vectors, 0..1.

    As DAA's `semantic.py` computes it with scikit-learn's CountVectorizer and TfidfTransformer: words of two or more
    characters of the lower-cased caption as written (not its tokens), idf = ln((1 + n) / (1 + df)) + 1 with df over
    the split's captions, not its images. A caption without such a word has relevance 0.
    """

    low, high = 0.0, 1.0

    def __init__(self, params: TfidfParams) -> None:
        self.params = params

    def fit(self, captions: Captions) -> FittedCider:
        """Index the captions. InputError when `left_out` leaves an image without references."""
        leave_out = leaves_out(self.params.self_reference, captions)
        warn_of_scripts(captions.texts, "of tfidf_cosine")
        words = count_words(captions.texts)
        df = np.bincount(words.gram, minlength=len(words.order))
        idf = np.log((1 + captions.n_captions) / (1 + df)) + 1
        return index(captions, words, idf, Form(leave_out, clip=False, sigma=np.inf, scale=1.0))


def count_words(texts: list[str]) -> Ngrams:
    """Counts of the words of each text, as 1-grams."""
    found = word_unigram(texts)
    words = np.array([len(one) for one in found])
    codes = pa.array([word for one in found for word in one], pa.string()).dictionary_encode()
    vocabulary = max(len(codes.dictionary), 1)
    row = np.repeat(np.arange(len(texts)), words)
    word = codes.indices.to_numpy(zero_copy_only=False)
    cells, count = np.unique(row * vocabulary + word, return_counts=True)
    ptr = np.searchsorted(cells, np.arange(len(texts) + 1) * vocabulary)
    order = np.zeros(len(codes.dictionary), np.int8)
    gram = (cells % vocabulary).astype(np.int32)
    return Ngrams(ptr, gram, count.astype(np.int32), order, codes.dictionary, words)

"""Tf-idf cosine of words, mean over an image's references: what the code of DAA calls CIDEr."""

from __future__ import annotations

import numpy as np

from capgrade.measures.base import OVER_REFERENCES, Measure, reference_sets
from capgrade.measures.cider import FittedCider, index_captions
from capgrade.measures.cider_kernel import Form
from capgrade.measures.ngrams import alphabetical
from capgrade.schemas.captions import Captions
from capgrade.schemas.params import ParamsBlock, SelfReference
from capgrade.text.language import warn_of_scripts
from capgrade.text.tokens import number_words, word_unigram


class TfidfParams(ParamsBlock):
    """Tf-idf cosine of words, mean over the references."""

    self_reference: SelfReference = "included"


class TfidfCosine(Measure[TfidfParams]):
    """Mean over the references of the cosine of tf-idf vectors, 0..1.

    As DAA's `semantic.py` computes it with scikit-learn's CountVectorizer and TfidfTransformer:
    words of two or more characters of the lower-cased caption as written (not its tokens), idf =
    ln((1 + n) / (1 + df)) + 1 with df over the split's captions, not its images. A caption without
    such a word has relevance 0.
    """

    name, parameters = "tfidf_cosine", TfidfParams
    low, high = 0.0, 1.0

    def fit(self, captions: Captions) -> FittedCider:
        """Index the captions. InputError when `left_out` leaves an image without references."""
        sets = reference_sets(self.params.self_reference, captions)
        warn_of_scripts(captions.texts, "of tfidf_cosine")
        words = alphabetical(number_words(word_unigram(captions.texts)), 1)
        df = np.bincount(words.sentences.gram, minlength=len(words.keys))
        idf = np.log((1 + captions.n_captions) / (1 + df)) + 1
        return index_captions(captions, words, idf, Form(clip=False, sigma=np.inf, scale=1.0), sets)

    def meaning(self) -> str:
        return f"cosine of tf-idf word vectors, 0..1: {OVER_REFERENCES['mean']}"

"""The tf-idf cosine of words, by the index of CIDEr."""

from __future__ import annotations

import numpy as np

from capgrade.measures.base import reference_sets
from capgrade.measures.cider.fitted import FittedCider, index_captions
from capgrade.measures.cider.kernel import Form
from capgrade.measures.ngrams import alphabetical
from capgrade.schemas.block import SelfReference
from capgrade.schemas.captions import Captions
from capgrade.text.language import warn_of_scripts
from capgrade.text.tokens import number_words, word_unigram


def fit(captions: Captions, self_reference: SelfReference) -> FittedCider:
    """As `TfidfCosine.fit`."""
    sets = reference_sets(self_reference, captions)
    warn_of_scripts(captions.texts, "of tfidf_cosine")
    words = alphabetical(number_words(word_unigram(captions.texts)), 1)
    df = np.bincount(words.sentences.gram, minlength=len(words.keys))
    idf = np.log((1 + captions.n_captions) / (1 + df)) + 1
    return index_captions(captions, words, idf, Form(clip=False, sigma=np.inf, scale=1.0), sets)

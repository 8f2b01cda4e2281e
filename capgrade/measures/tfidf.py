"""Tf-idf cosine of words, mean over an image's references: what the code of DAA calls CIDEr."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capgrade.measures.base import OVER_REFERENCES, Measure
from capgrade.schemas.block import ParamsBlock, SelfReference

if TYPE_CHECKING:
    from capgrade.measures.cider.fitted import FittedCider
    from capgrade.schemas.captions import Captions


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
        from capgrade.measures.cider.words import fit

        return fit(captions, self.params.self_reference)

    def meaning(self) -> str:
        return f"cosine of tf-idf word vectors, 0..1: {OVER_REFERENCES['mean']}"

"""CIDEr-D of captions with images' reference sets, and plain CIDEr.

CIDEr-D, of pycocoevalcap `cider/cider_scorer.py`, is the clipped tf-idf cosine of 1- to 4-grams,
times a Gaussian penalty on the difference of lengths, mean over orders and references, times 10.
CIDEr lacks clipping and penalty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from capgrade.measures.base import OVER_REFERENCES, Measure, Scorer
from capgrade.schemas.block import ParamsBlock, SelfReference
from capgrade.schemas.errors import InputError
from capgrade.schemas.natures import Where

if TYPE_CHECKING:
    from capgrade.measures.base import Scored
    from capgrade.measures.cider.fitted import FittedCider
    from capgrade.measures.cider.kernel import Form
    from capgrade.measures.corpus import Corpus
    from capgrade.measures.frequencies import Frequencies
    from capgrade.measures.ngrams import Ngrams
    from capgrade.schemas.captions import Captions

SIGMA = 6.0  # of CIDEr-D's penalty on the difference of lengths


class CiderParams(ParamsBlock):
    """CIDEr-D: corpus of the document frequencies, width of the length penalty, own captions."""

    document_frequency: Where | None = None
    """None: this split; else a captions folder, FOLDER#split, or a saved file"""
    sigma: Annotated[float, Field(gt=0)] = SIGMA
    self_reference: SelfReference = "included"


class _CiderPlainParams(ParamsBlock):
    """CIDEr without clipping and length penalty: the corpus of the document frequencies."""

    document_frequency: Where | None = None
    self_reference: SelfReference = "included"


class CiderPlain(Measure[Any]):
    """CIDEr, 0..10: the tf-idf cosine of 1- to 4-grams, mean over orders and references, times 10.

    It has neither the clipping nor the length penalty of CIDEr-D. Source: Vedantam et al. 2015, eq.
    1-3; pycocoevalcap computes CIDEr-D alone.
    """

    name = "cider_plain"
    parameters: ClassVar[type[ParamsBlock]] = _CiderPlainParams
    low, high = 0.0, 10.0
    title = "CIDEr without clipping and length penalty"

    @property
    def form(self) -> Form:
        """Which tf-idf cosine it is."""
        from capgrade.measures.cider.kernel import Form

        return Form(clip=False, sigma=np.inf)

    def fit(self, captions: Captions) -> FittedCider:
        """Index the captions, weighted by ln N - ln max(1, df).

        InputError when the document frequencies come from a single image, as all scores would be 0,
        or `self_reference: left_out` leaves an image without references.
        """
        from capgrade.measures.cider.fitted import fit

        return fit(captions, self)

    def frequencies(self, captions: Captions, ngrams: Ngrams) -> Frequencies:
        """Those of the captions, whose n-grams these are, or of `document_frequency`.

        InputError when they count one image.
        """
        from capgrade.measures.frequencies import Frequencies

        source = self.params.document_frequency
        if source is None:
            frequencies = Frequencies.of_captions(captions, ngrams)
        else:
            frequencies = Frequencies.read(source, captions.tokenizer)
        if frequencies.n_images < 2:
            problem = f"document frequencies of {frequencies.n_images} image(s) make every CIDEr 0"
            remedy = f"set measures.{self.name}.document_frequency to a captions folder or a saved "
            raise InputError(problem, file=source, remedy=f"{remedy}file")
        return frequencies

    def meaning(self) -> str:
        source, over = self.params.document_frequency, OVER_REFERENCES["mean"]
        corpus = f"`{source}`" if source else "this split's images"
        return f"{self.title}, 0..10: {over}, document frequencies of {corpus}"

    def files(self) -> dict[str, str]:
        from capgrade.schemas.captions import corpus_digest

        source = self.params.document_frequency
        key = f"measures.{self.name}.document_frequency"
        return {} if source is None else {key: corpus_digest(source)}

    @property
    def depends_on_corpus(self) -> bool:
        return self.params.document_frequency is None

    def unseen(self, fitted: FittedCider, captions: Captions) -> Scorer:
        from capgrade.measures.cider.fitted import UnseenCider

        return UnseenCider(self, fitted, captions)


class Cider(CiderPlain):
    """CIDEr-D as pycocoevalcap computes it, 0..10, of captions with images' reference sets.

    Document frequencies come from the fitted split, another captions folder, or a saved file.
    Source: Vedantam et al. 2015, eq. 1-4 and section 7 (CIDEr-D); pycocoevalcap
    `cider/cider_scorer.py`.
    """

    name, parameters, title = "cider", CiderParams, "CIDEr-D"

    @property
    def form(self) -> Form:
        from capgrade.measures.cider.kernel import Form

        return Form(clip=True, sigma=self.params.sigma)

    def of_corpus(self, corpus: Corpus) -> dict[str, Scored]:
        from capgrade.measures.cider.fitted import score_candidates

        source = self.params.document_frequency
        return {self.name: score_candidates(corpus, self.params.sigma, source)}

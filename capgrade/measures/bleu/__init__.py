"""BLEU of captions with images' reference sets, as pycocoevalcap `bleu/bleu_scorer.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from capgrade.measures.base import Measure
from capgrade.schemas.block import ParamsBlock, SelfReference

if TYPE_CHECKING:
    import numpy as np

    from capgrade.measures.base import Scored
    from capgrade.measures.bleu.fitted import FittedBleu
    from capgrade.measures.corpus import Corpus
    from capgrade.schemas.captions import Captions


class BleuParams(ParamsBlock):
    """BLEU: the longest n-grams that count."""

    n: Annotated[int, Field(ge=1, le=4)] = 4
    self_reference: SelfReference = "included"


class Bleu(Measure[BleuParams]):
    """BLEU-k of one caption, 0..1: `BP (Π_n correct_n / guess_n)^(1/k)`, n = 1..k.

    `correct` is clipped by the largest count in a reference; BP is by the reference of the closest
    length, the shorter of two. Where no n-gram of an order matches, the 1e-15 of pycocoevalcap
    stands in, so BLEU-4 is then some 1e-4, not 0. Source: Papineni et al. 2002; pycocoevalcap
    `bleu/bleu_scorer.py`.
    """

    name, parameters = "bleu", BleuParams
    low, high = 0.0, 1.0

    def meaning(self) -> str:
        return (
            f"BLEU-{self.params.n}, 0..1: n-grams clipped by their largest count in any reference"
        )

    def fit(self, captions: Captions) -> FittedBleu:
        """Index the captions.

        InputError for a caption of more than 65,535 tokens, or when `left_out` leaves an image
        without references.
        """
        from capgrade.measures.bleu.fitted import fit

        return fit(captions, self.params)

    def of_corpus(self, corpus: Corpus) -> dict[str, Scored]:
        from capgrade.measures.bleu.fitted import score_candidates

        return score_candidates(corpus)

    def of_candidates(self, corpus: Corpus) -> np.ndarray:
        return self.of_corpus(corpus)[f"bleu_{self.params.n}"].sentences

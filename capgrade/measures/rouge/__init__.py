"""ROUGE-L of every caption with every image's reference set, as pycocoevalcap `rouge/rouge.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from capgrade.measures.base import OVER_REFERENCES, Measure, Scorer
from capgrade.schemas.block import ParamsBlock, SelfReference

if TYPE_CHECKING:
    from capgrade.measures.base import Scored
    from capgrade.measures.corpus import Corpus
    from capgrade.measures.rouge.fitted import FittedRougeL
    from capgrade.schemas.captions import Captions


class RougeParams(ParamsBlock):
    """ROUGE-L: beta of the F-score and how the references of an image are combined."""

    beta: Annotated[float, Field(gt=0)] = 1.2
    references: Literal["max", "mean"] = "max"
    self_reference: SelfReference = "included"


class RougeL(Measure[RougeParams]):
    """ROUGE-L, 0..1: F = (1 + b^2) P R / (R + b^2 P), P = LCS / caption, R = LCS / reference words.

    `references: max` takes the largest P and the largest R over the references independently, as
    pycocoevalcap `rouge/rouge.py`; `mean` averages F over the references, as the TERAN paper says.
    A caption without tokens counts as one empty word, as the reference code's split(" ") gives.
    """

    name, parameters = "rouge_l", RougeParams
    low, high = 0.0, 1.0

    def fit(self, captions: Captions) -> FittedRougeL:
        """Number the words. InputError when `left_out` leaves an image without references."""
        from capgrade.measures.rouge.fitted import fit

        return fit(captions, self.params)

    def meaning(self) -> str:
        f = f"{OVER_REFERENCES['mean']} of F"
        if self.params.references == "max":
            f = "F of the largest precision and the largest recall over the references, "
            f += "which may be of two of them"
        return f"ROUGE-L, 0..1: {f}; beta {self.params.beta:g}"

    def of_corpus(self, corpus: Corpus) -> dict[str, Scored]:
        """ROUGE-L, 0..1, as pycocoevalcap `rouge/rouge.py`."""
        from capgrade.measures.rouge.fitted import score_candidates

        return {self.name: score_candidates(corpus)}

    def unseen(self, fitted: FittedRougeL, captions: Captions) -> Scorer:
        from capgrade.measures.rouge.fitted import UnseenRougeL

        return UnseenRougeL(fitted, captions)

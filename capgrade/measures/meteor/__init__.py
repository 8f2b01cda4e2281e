"""METEOR 1.5 of every caption with every image's reference set, without Java."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capgrade.measures.base import OVER_REFERENCES, Measure
from capgrade.schemas.block import ParamsBlock, SelfReference

if TYPE_CHECKING:
    from capgrade.measures.base import Scored
    from capgrade.measures.corpus import Corpus
    from capgrade.measures.meteor.fitted import FittedMeteor
    from capgrade.schemas.captions import Captions


class MeteorParams(ParamsBlock):
    """METEOR 1.5: the best score over the references."""

    self_reference: SelfReference = "included"


class Meteor(Measure[MeteorParams]):
    """METEOR 1.5, 0..1, English, as pycocoevalcap `meteor/meteor.py`.

    F = P R / (α P + (1 - α) R) less a penalty for fragmentation, the best over the references.
    Source: Denkowski and Lavie 2014.
    """

    name, parameters, modules = "meteor", MeteorParams, ("pycocoevalcap",)
    low, high = 0.0, 1.0

    def fit(self, captions: Captions) -> FittedMeteor:
        """Look up the captions' words and phrases.

        InputError when `left_out` leaves an image without references, or METEOR's data is missing.
        """
        from capgrade.measures.meteor.fitted import fit

        return fit(captions, self.params)

    def meaning(self) -> str:
        return f"METEOR 1.5, 0..1: {OVER_REFERENCES['max']}"

    def files(self) -> dict[str, str]:
        from capgrade.measures.meteor.english import JAR, PARAPHRASES, meteor_files

        return meteor_files(JAR, PARAPHRASES)

    def of_corpus(self, corpus: Corpus) -> dict[str, Scored]:
        from capgrade.measures.meteor.fitted import score_candidates

        return {self.name: score_candidates(corpus)}

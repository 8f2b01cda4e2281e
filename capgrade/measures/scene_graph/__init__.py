"""Scene graphs of captions compared with those of reference sets: a relative of SPICE, not SPICE.

A caption becomes objects, attributes and relations (`parse`), these become weighted tuples
(`tuples`), and the score is the F-score of a caption's set of tuples and that of all its image's
references together. As in SPICE (Anderson et al. 2016) the references are one set and synonyms
match; parser, partial credit and weights are our own. `docs/measures.md` has the grammar and how
well it agrees with people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, model_validator

from capgrade.measures.base import Measure
from capgrade.schemas.block import ParamsBlock, SelfReference

if TYPE_CHECKING:
    from capgrade.measures.base import Scored
    from capgrade.measures.corpus import Corpus
    from capgrade.measures.scene_graph.fitted import FittedSceneGraph
    from capgrade.schemas.captions import Captions

TupleWeight = Annotated[float, Field(ge=0, le=1e6)]  # sums of them are of float32


class SceneGraphParams(ParamsBlock):
    """Scene graphs of captions: weights of tuples beside an object's 1, and beta of the F-score."""

    kinds: Annotated[TupleWeight, Field(le=1)] = 0.5
    """what an object is a kind of: animal, of a dog"""
    attributes: TupleWeight = 0.5
    """an attribute or action, of whatever object"""
    attached: TupleWeight = 0.1
    """the same of its object"""
    relations: TupleWeight = 0.1
    beta: Annotated[float, Field(ge=1e-6, le=1e6)] = 0.2
    """below 1, precision counts more than recall"""
    self_reference: SelfReference = "included"

    @model_validator(mode="after")
    def _not_lost_in_rounding(self) -> SceneGraphParams:
        for name in ("kinds", "attributes", "attached", "relations"):
            if 0 < (weight := getattr(self, name)) < 1e-6:
                raise ValueError(
                    f"measures.scene_graph.{name} is {weight}: give 0, or 1e-6 and more"
                )
        return self


class SceneGraph(Measure[SceneGraphParams]):
    """F-score, 0..1, of a caption's scene graph with that of all references of an image; English.

    P = weight of the caption's tuples that the references have / weight of all the caption's; R the
    same the other way; F = (1 + b^2) P R / (b^2 P + R). A caption without any object scores 0.
    """

    name, parameters, modules = "scene_graph", SceneGraphParams, ("pycocoevalcap",)
    low, high = 0.0, 1.0

    def fit(self, captions: Captions) -> FittedSceneGraph:
        """Parse the captions.

        InputError when `left_out` leaves an image without references, or METEOR's data, which has
        WordNet, is missing.
        """
        from capgrade.measures.scene_graph.fitted import fit

        return fit(captions, self.params)

    def meaning(self) -> str:
        return "F-score of scene graphs, 0..1: the caption's with one of all references together"

    def files(self) -> dict[str, str]:
        from capgrade.measures.meteor.english import JAR, meteor_files

        return meteor_files(JAR)  # it carries WordNet

    def of_corpus(self, corpus: Corpus) -> dict[str, Scored]:
        """The F-score of each candidate and its own references."""
        from capgrade.measures.base import mean_score
        from capgrade.measures.corpus import own_scores

        return {self.name: mean_score(own_scores(self.fit(corpus.table), corpus))}

"""Scene graphs of captions compared with those of reference sets: a relative of SPICE, not SPICE.

A caption becomes objects, attributes and relations (`parse`), these become weighted tuples
(`tuples`), and the score is the F-score of a caption's set of tuples and that of all its image's
references together. As in SPICE (Anderson et al. 2016) the references are one set and synonyms
match; parser, partial credit and weights are our own. `docs/measures.md` has the grammar and how
well it agrees with people.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capgrade.kernels import in_threads
from capgrade.measures.base import (
    Fill,
    ImagePairs,
    Measure,
    OfReferences,
    own_scores,
    reference_sets,
)
from capgrade.measures.corpus import Corpus, Scored, mean_score
from capgrade.measures.meteor.english import JAR, meteor_files
from capgrade.measures.scene_graph import kernel
from capgrade.measures.scene_graph.kernel import CaptionTuples
from capgrade.measures.scene_graph.lexicon import scene_lexicon
from capgrade.measures.scene_graph.parse import parse
from capgrade.measures.scene_graph.tuples import SceneGraphParams, TupleReader
from capgrade.schemas.captions import Captions
from capgrade.text.language import warn_unless_english
from capgrade.text.tokens import tokens_of


@dataclass(frozen=True)
class FittedSceneGraph(OfReferences):
    """The captions as rows of weighted tuples, and for each tuple the captions that have it."""

    graphs: CaptionTuples
    beta: float

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        out = np.empty(len(captions), np.float32)
        pairs = ImagePairs(images, captions, self.ref_ptr, self.refs, self.leave_out)
        order = np.argsort(images, kind="stable")  # the pairs of an image after each other
        in_threads(kernel.score_pairs, len(out), order, pairs, self.graphs, self.beta2, out)
        return out

    def filler(self, images: np.ndarray, start: int) -> Fill:
        sets = self.ref_ptr, self.refs, self.graphs, self.beta2

        def fill(first: int, last: int, out: np.ndarray) -> None:
            in_threads(kernel.score_run, len(images), images, first, last, *sets, out)

        return fill

    def cells(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        return self.pairwise(images, captions)  # of the same bits, as `kernel` says

    @property
    def beta2(self) -> float:
        """Of recall against precision."""
        return self.beta**2


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
        sets = reference_sets(self.params.self_reference, captions)
        warn_unless_english("scene_graph", tokens_of(captions))
        ptr, tuples, weight = _number_tuples(captions, self.params)
        row = np.repeat(np.arange(captions.n_captions, dtype=np.int32), np.diff(ptr))
        order = np.argsort(tuples, kind="stable")
        n_tuples = int(tuples.max(initial=-1)) + 1
        post_ptr = np.searchsorted(tuples[order], np.arange(n_tuples + 1))
        totals = np.zeros(captions.n_captions, np.float32)
        np.add.at(totals, row, weight)  # in the order in which the kernels add
        graphs = CaptionTuples(ptr, tuples, weight, totals, post_ptr, row[order], weight[order])
        return FittedSceneGraph(*sets, graphs, self.params.beta)

    def meaning(self) -> str:
        return "F-score of scene graphs, 0..1: the caption's with one of all references together"

    def files(self) -> dict[str, str]:
        return meteor_files(JAR)  # it carries WordNet

    def of_corpus(self, corpus: Corpus) -> dict[str, Scored]:
        """The F-score of each candidate and its own references."""
        return {self.name: mean_score(own_scores(self.fit(corpus.table), corpus))}


def _number_tuples(
    captions: Captions, params: SceneGraphParams
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The captions' tuples: starts int64 [n_captions + 1], numbers int32, weights float32.

    Numbers ascend within a caption.
    """
    reader = TupleReader(scene_lexicon(), params)
    number: dict[tuple[str, ...], int] = {}
    ptr, numbers, weights = [0], [], []
    for words in captions.table["tokens"].to_pylist():
        weighted = sorted(
            (number.setdefault(k, len(number)), w)
            for k, w in reader.tuples(parse(tuple(words))).items()
        )
        numbers += [n for n, _ in weighted]
        weights += [w for _, w in weighted]
        ptr.append(len(numbers))
    return np.array(ptr), np.array(numbers, np.int32), np.array(weights, np.float32)

"""Scene graphs of captions as weighted tuples, as `SceneGraph` says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from capgrade.kernels import in_threads
from capgrade.measures.base import Fill, ImagePairs, OfReferences, reference_sets
from capgrade.measures.scene_graph import kernel
from capgrade.measures.scene_graph.kernel import CaptionTuples
from capgrade.measures.scene_graph.lexicon import scene_lexicon
from capgrade.measures.scene_graph.parse import parse
from capgrade.measures.scene_graph.tuples import TupleReader
from capgrade.schemas.captions import Captions
from capgrade.text.language import warn_unless_english
from capgrade.text.tokens import tokens_of

if TYPE_CHECKING:
    from capgrade.measures.scene_graph import SceneGraphParams


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
            in_threads(kernel.score_rows, len(images), images, first, last, *sets, out)

        return fill

    def cells(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        return self.pairwise(images, captions)  # of the same bits, as `kernel` says

    @property
    def beta2(self) -> float:
        """Of recall against precision."""
        return self.beta**2


def fit(captions: Captions, params: SceneGraphParams) -> FittedSceneGraph:
    """As `SceneGraph.fit`."""
    sets = reference_sets(params.self_reference, captions)
    warn_unless_english("scene_graph", tokens_of(captions))
    ptr, tuples, weight = _number_tuples(captions, params)
    row = np.repeat(np.arange(captions.n_captions, dtype=np.int32), np.diff(ptr))
    order = np.argsort(tuples, kind="stable")
    n_tuples = int(tuples.max(initial=-1)) + 1
    post_ptr = np.searchsorted(tuples[order], np.arange(n_tuples + 1))
    totals = np.zeros(captions.n_captions, np.float32)
    np.add.at(totals, row, weight)  # in the order in which the kernels add
    graphs = CaptionTuples(ptr, tuples, weight, totals, post_ptr, row[order], weight[order])
    return FittedSceneGraph(*sets, graphs, params.beta)


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

"""The fitted forms that a worker opens, by the name of their class."""

from __future__ import annotations

from capgrade.pipelines.measures.base import ArrayState
from capgrade.pipelines.measures.bleu import FittedBleu
from capgrade.pipelines.measures.cider import FittedCider
from capgrade.pipelines.measures.imported import FittedImported
from capgrade.pipelines.measures.judged import FittedJudged
from capgrade.pipelines.measures.meteor import FittedMeteor
from capgrade.pipelines.measures.rouge import FittedRougeL
from capgrade.pipelines.measures.sbert import FittedSbert
from capgrade.pipelines.measures.scene_graph import FittedSceneGraph
from capgrade.pipelines.measures.spice import FittedSpice

KINDS: dict[str, type[ArrayState]] = {
    kind.__name__: kind
    for kind in (
        FittedBleu,
        FittedCider,
        FittedImported,
        FittedJudged,
        FittedMeteor,
        FittedRougeL,
        FittedSbert,
        FittedSceneGraph,
        FittedSpice,
    )
}

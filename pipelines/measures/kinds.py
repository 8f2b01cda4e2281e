"""The fitted forms that a worker opens, by the name of their class."""

from __future__ import annotations

from pipelines.measures.base import ArrayState
from pipelines.measures.bleu import FittedBleu
from pipelines.measures.cider import FittedCider
from pipelines.measures.imported import FittedImported
from pipelines.measures.meteor import FittedMeteor
from pipelines.measures.meteor.java import FittedMeteorJava
from pipelines.measures.rouge import FittedRougeL
from pipelines.measures.sbert import FittedSbert
from pipelines.measures.scene_graph import FittedSceneGraph
from pipelines.measures.spice import FittedSpice

KINDS: dict[str, type[ArrayState]] = {
    kind.__name__: kind
    for kind in (
        FittedBleu,
        FittedCider,
        FittedImported,
        FittedMeteor,
        FittedMeteorJava,
        FittedRougeL,
        FittedSbert,
        FittedSceneGraph,
        FittedSpice,
    )
}

"""Which way finds the captions of highest relevance: a bound, where the measure has one, or all pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from capgrade.pipelines.measures.base import Fitted
from capgrade.pipelines.measures.bleu import FittedBleu
from capgrade.pipelines.measures.cider import FittedCider
from capgrade.pipelines.measures.meteor import FittedMeteor
from capgrade.pipelines.measures.mixture import FittedMixture
from capgrade.pipelines.measures.rouge import FittedRougeL
from capgrade.pipelines.measures.sbert import FittedSbert
from capgrade.pipelines.measures.scene_graph import FittedSceneGraph
from capgrade.pipelines.measures.tops.bleu import BleuTops
from capgrade.pipelines.measures.tops.cider import CiderTops
from capgrade.pipelines.measures.tops.every import Tops, every_pair
from capgrade.pipelines.measures.tops.meteor import MeteorTops
from capgrade.pipelines.measures.tops.mixture import MixtureTops
from capgrade.pipelines.measures.tops.rouge import RougeTops
from capgrade.pipelines.measures.tops.sbert import SbertTops
from capgrade.pipelines.measures.tops.scene_graph import SceneGraphTops
from capgrade.schemas.ties import Ties


class Finder(Protocol):
    """Finds tops of one fitted measure; whatever it prepares for them is made once."""

    @property
    def fitted(self) -> Any: ...

    def tops(self, images: np.ndarray, k: int) -> Tops:
        """The `k` captions of highest relevance to each image, as `every_pair` has them to the last bit."""
        ...


@runtime_checkable
class Selects(Protocol):
    """A fitted measure that selects from all pairs itself, where their values are: on a GPU."""

    def tops(self, images: np.ndarray, k: int, ties: Ties) -> Tops:
        """As `Finder.tops`."""
        ...


@dataclass(frozen=True)
class EveryPair:
    """Scores all pairs."""

    fitted: Fitted
    ties: Ties

    def tops(self, images: np.ndarray, k: int) -> Tops:
        """As `Finder.tops`."""
        if isinstance(self.fitted, Selects):
            return self.fitted.tops(images, k, self.ties)
        return every_pair(self.fitted, images, k, self.ties)


def finder(fitted: Fitted, ties: Ties) -> Finder:
    """The fastest way there is for a fitted measure: bounds for those that have any, all pairs for others."""
    if isinstance(fitted, FittedCider) and CiderTops.serves(fitted):
        return CiderTops(fitted, ties)
    if isinstance(fitted, FittedSbert) and SbertTops.serves(fitted):
        return SbertTops(fitted, ties)
    if isinstance(fitted, FittedRougeL) and RougeTops.serves(fitted):
        return RougeTops(fitted, ties)
    if isinstance(fitted, FittedMeteor) and MeteorTops.serves(fitted):
        return MeteorTops(fitted, ties)
    if isinstance(fitted, FittedBleu):
        return BleuTops(fitted, ties)
    if isinstance(fitted, FittedSceneGraph):
        return SceneGraphTops(fitted, ties)
    if isinstance(fitted, FittedMixture):
        return _of_parts(fitted, ties)
    return EveryPair(fitted, ties)


def _of_parts(fitted: FittedMixture, ties: Ties) -> MixtureTops:
    finders = tuple(finder(part, ties) for part in fitted.parts.values())
    bounded = tuple(not isinstance(find, EveryPair | SceneGraphTops) for find in finders)
    return MixtureTops(fitted, finders, ties, bounded)

"""A measure that is too slow for every pair: it scores what another one ranks first.

Of an image these are its own captions and the first `top` by the other measure. What a further
caption is worth is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from capgrade.measures.base import ArrayState, Fitted, Measure, OfReferences, own_pairs
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError


@dataclass(frozen=True)
class FittedShortlist(ArrayState):
    """A fitted measure, and the one that says which pairs it scores."""

    name: str
    scorer: OfReferences
    ranker: Fitted
    top: int
    keys: np.ndarray  # uint64 [n_captions]: of captions that rank equal, the lowest come first

    @property
    def columns(self) -> int:
        return len(self.keys)

    @property
    def ref_ptr(self) -> np.ndarray:
        return self.scorer.ref_ptr

    @property
    def refs(self) -> np.ndarray:
        return self.scorer.refs

    def scored(self, images: np.ndarray) -> np.ndarray | None:
        from capgrade.measures.tops import highest_pairs

        if self.top >= self.columns:
            return None
        row, own = own_pairs(self.ref_ptr, self.refs, images)
        seeds = np.zeros(len(images), np.uint64)
        first = highest_pairs(self.ranker.score(images), self.top, seeds, self.keys)
        return np.union1d(row * self.columns + own, first)

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """As `Fitted.pairs`, of any pairs."""
        return self.scorer.pairs(images, captions)

    def cells(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """As `Fitted.cells`, of any captions."""
        return self.scorer.cells(images, captions)

    def own_left_out(self, images: np.ndarray) -> np.ndarray:
        return self.scorer.own_left_out(images)

    def chunks(self, images: np.ndarray, start: int, stop: int, out: np.ndarray) -> Iterator[None]:
        """As `Fitted.chunks`. InputError where some captions are not scored."""
        if self.top < self.columns:
            n, key = self.columns, f"parameters.{self.name}.top"
            problem = f"{self.name} scores the first {self.top:,} of {n:,} captions of an image"
            remedy = "make shards, which hold what is known; or score every pair: "
            remedy += f"{{{key}}}={n}"
            raise InputError(f"{problem}, and a matrix has all", remedy=remedy, keys=(key,))
        yield from self.scorer.chunks(images, start, stop, out)

    def on_device(self, device: Any) -> Fitted:
        return replace(self, ranker=self.ranker.on_device(device))

    def regroup(self, ref_ptr: np.ndarray, refs: np.ndarray) -> OfReferences:
        """The measure of any pair of captions and other reference sets."""
        return self.scorer.regroup(ref_ptr, refs)


class Shortlisted(Measure[Any]):
    """A measure whose parameters are a `Shortlist`, with the one that ranks for it."""

    at_once = False

    def __init__(self, measure: Measure, ranker: Measure) -> None:
        super().__init__(measure.params)
        self.measure, self.ranker = measure, ranker
        self.name, self.leaves_out = measure.name, measure.leaves_out
        self.low, self.high = measure.low, measure.high

    def fit(self, captions: Captions) -> FittedShortlist:
        """Fit both. InputError as they do."""
        from capgrade.kernels import id_keys

        scorer, ranker = self.measure.fit(captions), self.ranker.fit(captions)
        assert isinstance(scorer, OfReferences)
        keys = id_keys(captions.caption_ids)
        return FittedShortlist(self.name, scorer, ranker, self.params.top, keys)

    def partial(self, captions: Captions) -> bool:
        return bool(self.params.top < captions.n_captions)

    def meaning(self) -> str:
        return self.measure.meaning()

    def files(self) -> dict[str, str]:
        return {**self.ranker.files(), **self.measure.files()}

"""A weighted sum of measures, as a measure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from capgrade.measures.base import (
    CHUNK,
    Fitted,
    Measure,
    NoParams,
    Scored,
    Scorer,
    State,
    mean_score,
    state_of,
)
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import LARGEST_FLOAT32
from capgrade.schemas.progress import part_of_work

if TYPE_CHECKING:
    from capgrade.measures.corpus import Corpus

_PARTS = "mixture.json"


@dataclass(frozen=True)
class FittedMixture(State):
    """Fitted measures and their weights."""

    parts: Mapping[str, Fitted]
    weights: Mapping[str, float]

    @property
    def columns(self) -> int:
        return next(iter(self.parts.values())).columns

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """As `Fitted.pairs`: the weighted sum of those of the parts."""
        values = []
        for name, part in self.parts.items():
            with part_of_work(1, len(self.parts)):
                of_part = part.pairs(images, captions)
            values.append(self.weights[name] * of_part.astype(np.float64))
        return np.sum(values, axis=0).astype(np.float32)

    def scored(self, images: np.ndarray) -> np.ndarray | None:
        """As `Fitted.scored`: the pairs that every part scores."""
        scored_parts = [
            pairs for part in self.parts.values() if (pairs := part.scored(images)) is not None
        ]
        return reduce(np.intersect1d, scored_parts) if scored_parts else None

    def own_left_out(self, images: np.ndarray) -> np.ndarray:
        """As `Fitted.own_left_out`: the weighted sum of those of the parts."""
        values = [
            self.weights[name] * part.own_left_out(images).astype(np.float64)
            for name, part in self.parts.items()
        ]
        return np.sum(values, axis=0).astype(np.float32)

    def chunks(self, images: np.ndarray, start: int, stop: int, out: np.ndarray) -> Iterator[None]:
        values = np.empty((len(self.parts), *out.shape), np.float32)
        walks = [
            part.chunks(images, start, stop, part_out)
            for part, part_out in zip(self.parts.values(), values, strict=True)
        ]
        for at in range(start, stop, CHUNK):
            for walk in walks:
                with part_of_work(1, len(walks)):
                    next(walk)
            size = min(CHUNK, stop - at)
            self._add_up(values[:, :, :size], out[:, :size])
            yield

    def cells(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        values = np.stack([part.score(images, captions) for part in self.parts.values()])
        self._add_up(values, values[0])
        return values[0]

    def _add_up(self, values: np.ndarray, out: np.ndarray) -> None:
        """Put the weighted sum of the parts' values, float32 [parts, ...], into `out`."""
        weights = np.array([self.weights[name] for name in self.parts], np.float32)
        np.multiply(weights[0], values[0], out=out)
        for weight, part_values in zip(weights[1:], values[1:], strict=True):
            out += weight * part_values

    @property
    def ref_ptr(self) -> np.ndarray:
        """int64 [n_images + 1]: those of its parts, which are fitted on the same captions."""
        return [part.ref_ptr for part in self.parts.values()][0]  # type: ignore[attr-defined]

    @property
    def refs(self) -> np.ndarray:
        """int64 [n_captions]: likewise."""
        return [part.refs for part in self.parts.values()][0]  # type: ignore[attr-defined]

    def on_device(self, device: Any) -> Fitted:
        return replace(
            self, parts={name: part.on_device(device) for name, part in self.parts.items()}
        )

    def regroup(self, ref_ptr: np.ndarray, refs: np.ndarray) -> Self:
        parts = {name: part.regroup(ref_ptr, refs) for name, part in self.parts.items()}  # type: ignore[attr-defined]
        return replace(self, parts=parts)

    def save(self, folder: Path) -> None:
        """Each part in a folder of its own, and their classes and weights."""
        for name, part in self.parts.items():
            part.save(folder / name)  # type: ignore[attr-defined]
        kinds = {name: part.kind() for name, part in self.parts.items()}  # type: ignore[attr-defined]
        facts = {"kinds": kinds, "weights": dict(self.weights)}
        (folder / _PARTS).write_text(json.dumps(facts), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """What `save` wrote."""
        saved = json.loads((folder / _PARTS).read_text(encoding="utf-8"))
        parts = {name: state_of(kind).load(folder / name) for name, kind in saved["kinds"].items()}
        return cls(parts, saved["weights"])


class Mixture(Measure[NoParams]):
    """Σ weight x measure, of values in the measures' own ranges."""

    def __init__(
        self, name: str, parts: Mapping[str, Measure], weights: Mapping[str, float]
    ) -> None:
        super().__init__()
        self.name, self.parts, self.weights = name, parts, weights

    @property
    def low(self) -> float:  # type: ignore[override]
        """The sum's lower bound, from the parts' ranges."""
        return sum(w * (part.low if w > 0 else part.high) for w, part in self._weighted)

    @property
    def high(self) -> float:  # type: ignore[override]
        """The sum's upper bound."""
        return sum(w * (part.high if w > 0 else part.low) for w, part in self._weighted)

    @property
    def leaves_out(self) -> bool:  # type: ignore[override]
        """Whether all parts do."""
        return all(part.leaves_out for part in self.parts.values())

    @property
    def _weighted(self) -> list[tuple[float, Measure]]:
        return [(self.weights[name], part) for name, part in self.parts.items()]

    def fit(self, captions: Captions) -> FittedMixture:
        """Fit every part. InputError as they do, and for weights that leave no proper range."""
        parts = {name: part.fit(captions) for name, part in self.parts.items()}
        in_range = -LARGEST_FLOAT32 <= self.low < self.high <= LARGEST_FLOAT32
        if not (in_range and self.high - self.low > 1 / LARGEST_FLOAT32):
            problem = f"a mixture's values would be from {self.low:g} to {self.high:g}"
            raise InputError(
                problem, remedy="give weights that are not all 0, nor very large or small"
            )
        return FittedMixture(parts, self.weights)

    def partial(self, captions: Captions) -> bool:
        """Whether one of the parts is."""
        return any(part.partial(captions) for part in self.parts.values())

    @property
    def at_once(self) -> bool:  # type: ignore[override]
        """Whether all parts are."""
        return all(part.at_once for part in self.parts.values())

    def files(self) -> dict[str, str]:
        return {key: digest for part in self.parts.values() for key, digest in part.files().items()}

    @property
    def scores_candidates(self) -> bool:
        """Whether all parts do."""
        return all(part.scores_candidates for part in self.parts.values())

    @property
    def depends_on_corpus(self) -> bool:
        """Whether one of the parts does."""
        return any(part.depends_on_corpus for part in self.parts.values())

    def of_corpus(self, corpus: Corpus) -> dict[str, Scored]:
        """The weighted sum of the parts' values of each candidate, and its mean."""
        values = [weight * part.of_candidates(corpus) for weight, part in self._weighted]
        return {self.name: mean_score(np.sum(values, axis=0))}

    def unseen(self, fitted: FittedMixture, captions: Captions) -> Scorer | None:
        scorers = {
            name: part.unseen(fitted.parts[name], captions) for name, part in self.parts.items()
        }
        weighted = [
            (np.float32(self.weights[name]), scorer)
            for name, scorer in scorers.items()
            if scorer is not None
        ]
        if len(weighted) < len(scorers):
            return None
        return lambda text: np.stack([weight * scorer(text) for weight, scorer in weighted]).sum(
            axis=0
        )

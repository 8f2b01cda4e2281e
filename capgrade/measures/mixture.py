"""A weighted sum of measures, as a measure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from capgrade.measures.base import CHUNK, Fitted, Measure, State
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import LARGEST

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
        values = (
            self.weights[name] * part.pairs(images, captions).astype(np.float64) for name, part in self.parts.items()
        )
        return np.sum(list(values), axis=0).astype(np.float32)

    def own_left_out(self, images: np.ndarray) -> np.ndarray:
        """As `Fitted.own_left_out`: the weighted sum of those of the parts."""
        values = [
            self.weights[name] * part.own_left_out(images).astype(np.float64) for name, part in self.parts.items()
        ]
        return np.sum(values, axis=0).astype(np.float32)

    def chunks(self, images: np.ndarray, start: int, stop: int, out: np.ndarray) -> Iterator[None]:
        values = np.empty((len(self.parts), *out.shape), np.float32)
        walks = [part.chunks(images, start, stop, one) for part, one in zip(self.parts.values(), values, strict=True)]
        weights = np.array([self.weights[name] for name in self.parts], np.float32)
        for at, _ in zip(range(start, stop, CHUNK), zip(*walks, strict=True), strict=True):
            size = min(CHUNK, stop - at)
            np.multiply(weights[0], values[0, :, :size], out=out[:, :size])
            for weight, one in zip(weights[1:], values[1:], strict=True):
                out[:, :size] += weight * one[:, :size]
            yield

    @property
    def ref_ptr(self) -> np.ndarray:
        """int64 [n_images + 1]: those of its parts, which are fitted on the same captions."""
        return [part.ref_ptr for part in self.parts.values()][0]  # type: ignore[attr-defined]

    @property
    def refs(self) -> np.ndarray:
        """int64 [n_captions]: likewise."""
        return [part.refs for part in self.parts.values()][0]  # type: ignore[attr-defined]

    def regrouped(self, ref_ptr: np.ndarray, refs: np.ndarray) -> Self:
        parts = {name: part.regrouped(ref_ptr, refs) for name, part in self.parts.items()}  # type: ignore[attr-defined]
        return replace(self, parts=parts)

    def save(self, folder: Path) -> None:
        """Each part in a folder of its own, and their classes and weights."""
        for name, part in self.parts.items():
            part.save(folder / name)  # type: ignore[attr-defined]
        kinds = {name: type(part).__name__ for name, part in self.parts.items()}
        facts = {"kinds": kinds, "weights": dict(self.weights)}
        (folder / _PARTS).write_text(json.dumps(facts), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """What `save` wrote."""
        saved = json.loads((folder / _PARTS).read_text(encoding="utf-8"))
        parts = {name: cls.kinds[kind].load(folder / name) for name, kind in saved["kinds"].items()}
        return cls(parts, saved["weights"])


class Mixture:
    """Σ weight x measure, of values as the measures give them: their ranges decide what a weight means."""

    def __init__(self, parts: Mapping[str, Measure], weights: Mapping[str, float]) -> None:
        self.parts, self.weights = parts, weights

    @property
    def low(self) -> float:
        """The sum's lower bound, from the parts' ranges."""
        return sum(w * (part.low if w > 0 else part.high) for w, part in self._weighted)

    @property
    def high(self) -> float:
        """The sum's upper bound."""
        return sum(w * (part.high if w > 0 else part.low) for w, part in self._weighted)

    @property
    def leaves_out(self) -> bool:
        """Whether all parts do."""
        return all(part.leaves_out for part in self.parts.values())

    @property
    def _weighted(self) -> list[tuple[float, Measure]]:
        return [(self.weights[name], part) for name, part in self.parts.items()]

    def fit(self, captions: Captions) -> FittedMixture:
        """Fit every part. InputError as they raise it, and for weights that leave no range, or one beyond float32."""
        parts = {name: part.fit(captions) for name, part in self.parts.items()}
        if not (-LARGEST <= self.low < self.high <= LARGEST and self.high - self.low > 1 / LARGEST):
            problem = f"a mixture's values would be from {self.low:g} to {self.high:g}"
            raise InputError(problem, remedy="give weights that are not all 0, nor very large or small")
        return FittedMixture(parts, self.weights)

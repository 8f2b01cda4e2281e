"""What a label means to people, as columns of a published dataset: expected human score and P(a person accepts)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.pipelines.agreement.calibration import ACCEPTED, SCORE, SHIPPED, Calibration, load
from capgrade.schemas.inputs import file_digest
from capgrade.schemas.shards import Shards


@dataclass(frozen=True)
class Calibrated:
    """A calibration file: its name, its digest, and what it says of the published measures."""

    file: str
    sha256: str
    calibration: Calibration

    @property
    def measures(self) -> list[str]:
        """Those that it knows."""
        return list(self.calibration.curves)

    @property
    def shipped(self) -> bool:
        """Whether it is the one that comes with capgrade."""
        return self.sha256 == file_digest(SHIPPED)

    @property
    def columns(self) -> dict[str, str]:
        """Column -> measure, in their order."""
        return {name + end: name for name in self.measures for end in (SCORE, ACCEPTED)}

    def values(self, column: str, values: np.ndarray) -> np.ndarray:
        """A column from the values of its measure, float32 [n]: the expected score 0..5, or the probability 0..1."""
        curve = self.calibration.curves[self.columns[column]]
        found = curve.expected(values) if column.endswith(SCORE) else curve.probability(values)
        return found.astype(np.float32)

    def facts(self) -> dict[str, Any]:
        """What the manifest says: the file, its digest, version and judgements, and each measure's error."""
        known = self.calibration
        of = {name: {"ece": known.curves[name].ece, "pairs": known.curves[name].pairs} for name in self.measures}
        return {"file": self.file, "sha256": self.sha256, **known.facts, "measures": of, "columns": self.columns}

    def meaning(self, column: str) -> str:
        """A column in words."""
        facts, name = self.calibration.facts, self.columns[column]
        judged = f"by `{name}` and the calibration; an own pair's is that of its value, as any other's"
        if column.endswith(SCORE):
            return f"human score to be expected, 0..5, {judged}"
        return f"probability that a person gives at least {facts['accept']:g} of {facts['high']:g}, {judged}"


def read_calibrated(path: Path, shards: Shards) -> Calibrated:
    """The calibration of the measures that it and the shards both have. InputError for another file, where they share
    no measure, and where one has other parameters."""
    used = shards.metadata["params"]["measures"]
    known = load(path).of({name: used[name] for name in shards.measures}, shards.folder, path)
    return Calibrated(path.name, file_digest(path), known)

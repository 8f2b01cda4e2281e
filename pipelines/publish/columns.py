"""What the columns of a published dataset mean, those of a calibration included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.agreement.calibration import ACCEPTED, SCORE, SHIPPED, Calibration
from capgrade.measures import meaning_of
from capgrade.schemas.inputs import file_digest
from capgrade.schemas.own_pairs import LEFT_OUT

_COLUMNS = {
    "image_id": "the image's id in the source",
    "caption_id": "the caption's id in the source",
    "original": "the caption was written for this image",
    "reasons": (
        "why the pair was kept: `own` caption, among the highest (`top_*`), drawn from a window of"
        " a measure's range (`window_*`), scored by a measure of some pairs (`scored_*`), drawn"
        " uniformly (`uniform`)"
    ),
    "weight": (
        "1 / probability of being kept: `sum(weight * x) / captions` over an image's rows estimates"
        " the mean of x over all captions without bias"
    ),
    "caption": "the caption as the source has it",
    "tokens": "the caption's tokens; CIDEr and BLEU divide one with a no-break space inside",
    "image_file": "the image's file name, where the source knows it",
}


def meaning(
    column: str, used: dict[str, dict[str, Any]], calibrated: Calibrated | None = None
) -> str:
    """A column in words; `used` has each measure's parameters, as `MeasuresParams.used`."""
    if calibrated and column in calibrated.columns:
        return calibrated.meaning(column)
    if column in _COLUMNS:
        return _COLUMNS[column]
    if column not in used:
        name = column.removesuffix(LEFT_OUT)
        return (
            f"of own pairs alone: `{name}` with the caption itself left out of the references; null"
            " for other pairs, where it makes no difference, and where the image has no other"
            " caption"
        )
    return meaning_of(column, used[column])


@dataclass(frozen=True)
class Calibrated:
    """A calibration file: its name, its digest, and what it says of the published measures."""

    file: str
    sha256: str
    calibration: Calibration

    @property
    def measures(self) -> list[str]:
        return list(self.calibration.curves)

    @property
    def shipped(self) -> bool:
        return self.sha256 == file_digest(SHIPPED)

    @property
    def columns(self) -> dict[str, str]:
        """The measure of each column that the calibration adds, in their order."""
        return {name + end: name for name in self.measures for end in (SCORE, ACCEPTED)}

    def of_pairs(self, values: Mapping[str, np.ndarray]) -> dict[str, pa.Array]:
        """Each added column from the values of its measure, float32 [n].

        It is the expected score, 0..5, or the probability that people accept the pair, 0..1; null
        where the value is NaN.
        """
        arrays = {}
        for column, name in self.columns.items():
            curve = self.calibration.curves[name]
            meant = curve.expected if column.endswith(SCORE) else curve.probability
            arrays[column] = pa.array(meant(values[name]).astype(np.float32), from_pandas=True)
        return arrays

    def facts(self) -> dict[str, Any]:
        """What the manifest says of it: file, digest, version, judgements, each measure's error."""
        known = self.calibration
        errors = {
            name: {"ece": known.curves[name].ece, "pairs": known.curves[name].pairs}
            for name in self.measures
        }
        return {
            "file": self.file,
            "sha256": self.sha256,
            **known.facts,
            "measures": errors,
            "columns": self.columns,
        }

    def meaning(self, column: str) -> str:
        facts, name = self.calibration.facts, self.columns[column]
        judged = (
            f"by `{name}` and the calibration; an own pair's is that of its value, as any other's"
        )
        if column.endswith(SCORE):
            return f"human score to be expected, 0..5, {judged}"
        return (
            f"probability that a person gives at least {facts['accept']:g} of {facts['high']:g},"
            f" {judged}"
        )

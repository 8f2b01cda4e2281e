"""The thresholds of a benchmark's grades: values, or probabilities that a calibration turns into
values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from capgrade.acceptance import value_at
from capgrade.agreement.calibration import SHIPPED, calibration_file, load_calibration
from capgrade.pipelines.publish.tables import Calibrated, PublishedSplit
from capgrade.pipelines.stages.publish import PublishParams
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import file_digest


@dataclass(frozen=True)
class Thresholds:
    """Rising values by the name of their grade; and the calibration that they are from, if any."""

    values: dict[str, float]
    calibrated: Calibrated | None = None


def thresholds_of(
    splits: Sequence[PublishedSplit], measure: str, params: PublishParams
) -> Thresholds:
    """Those of the parameters. InputError where a calibration does not know the measure or its
    parameters or has no value for a P, and for splits whose captions give different values."""
    if not params.by_p:
        return Thresholds({name: float(value) for name, value in params.grades.items()})
    path = calibration_file(Path(params.calibration or SHIPPED.stem))
    found: list[dict[str, float]] = []
    for split in splits:
        found.append(
            {
                name: value_at(split.labels, p, measure=measure, calibration=path)
                for name, p in params.by_p.items()
            }
        )
        if found[-1] != found[0]:
            problem = "the splits have other numbers of captions an image, and so other thresholds"
            raise InputError(problem, file=split.labels.file, remedy="publish them one by one")
    if sorted(set(found[0].values())) != list(found[0].values()):
        problem = f"two grades have the same value of {measure}: {found[0]}"
        raise InputError(problem, file=path, remedy="name one of them, or P further apart")
    first = splits[0].labels
    fitting = load_calibration(path).fitting(splits[0].captions.owner)
    known = fitting.of({measure: (first.made_with or {})[measure]}, Path(first.file), path)
    return Thresholds(found[0], Calibrated(path.name, file_digest(path), known))

"""`capgrade.value_at`: from which value of a measure people accept a pair, by a calibration."""

from __future__ import annotations

from pathlib import Path

from capgrade.agreement.calibration import calibration_file, load_calibration
from capgrade.labels import Labels
from capgrade.schemas.errors import InputError


def value_at(
    labels: Labels,
    p: float,
    *,
    measure: str | None = None,
    calibration: str | Path = "crisscrossed",
) -> float:
    """The value of `measure` from which people accept a caption of another image with a
    probability of at least p, by a calibration: a file of `capgrade agree --calibrate`, or the
    one that comes with capgrade. Its curve is that of as many captions as an image of the labels
    usually has.

    InputError where the calibration does not know the measure or its parameters, and where no
    value has this p.

    >>> 0.5 < value_at(Labels.load("dataset"), 0.5, measure="sbert") < 1
    True
    """
    name, path = labels.choose_measure(measure), calibration_file(Path(calibration))
    if labels.made_with is None:
        problem = "the parameters of their measures are not known"
        raise InputError(problem, file=labels.file, remedy="open them with Labels.load")
    used = {name: labels.made_with[name]}
    calibrated = load_calibration(path).fitting(labels.owner).of(used, Path(labels.file), path)
    return calibrated.curves[name].value_at(p)

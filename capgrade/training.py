"""`capgrade.train`: what `capgrade train` does, as a function."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capgrade.measures.params import MeasuresParams
from capgrade.schemas.block import validated
from capgrade.schemas.params import with_preset
from capgrade.trainer.fit import train as fit
from capgrade.trainer.stages.train import TrainParams


def train(
    captions: str | Path,
    out: str | Path,
    preset: str | None = None,
    *,
    regions: str | Path | None = None,
    images: str | Path | None = None,
    shards: str | Path | None = None,
    measures: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> dict[str, Any]:
    """Train an image-text model; write the best one, its epochs and its summary to `out`.

    captions: folder of `capgrade captions`. regions: of `capgrade regions`, or images: a folder of
    pictures, for models that read them. shards: of `capgrade shards`, where relevance is looked up.
    preset: of `capgrade list presets`; parameters: keys of the block `train` of params.yaml, above
    the preset; measures: its block `measures`. A run that was stopped goes on, unless `restart`.
    Returns the summary. Raises InputError as `capgrade train`.

    >>> train("captions", "run", "triplet", regions="regions", epochs=2)["epochs"]  # doctest: +SKIP
    2
    """
    told = {"preset": preset, "images": None if images is None else str(images)}
    given = {key: value for key, value in told.items() if value is not None}
    block = with_preset({**given, **parameters}, {})
    return fit.train(
        Path(captions),
        Path(out),
        validated(TrainParams, block),
        validated(MeasuresParams, dict(measures or {})),
        regions=None if regions is None else Path(regions),
        shards=None if shards is None else Path(shards),
    )

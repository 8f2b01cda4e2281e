"""Weights of a mixture of measures that are fitted to people's judgements, and its predictions for
images that it was not fitted on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.optimize import nnls

from capgrade.measures import parts_of
from capgrade.measures.catalogue import MEASURES, require_name
from capgrade.measures.params import MeasuresParams
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_text

_HEAD = "# A mixture that capgrade agree fitted"


def mix(
    values: Mapping[str, np.ndarray],
    score: np.ndarray,
    image: np.ndarray,
    folds: int,
    seed: int = 0,
) -> tuple[np.ndarray, dict[str, float]]:
    """Fit non-negative weights and a constant to human scores by least squares. Returns predicted
    scores float64 [n], each with the weights of the other folds; and measure -> weight by all
    judgements, without weights that are 0.

    values: measure -> float [n] on the judged pairs; score float64 [n]; image int64 [n]. All pairs
    of an image are in one fold. Raises InputError for fewer images than folds."""
    images = np.unique(image)
    if len(images) < folds:
        raise InputError(
            f"{len(images)} judged images cannot be in {folds} folds", remedy="ask for fewer folds"
        )
    table = np.stack([values[name] for name in values], axis=1).astype(np.float64)
    fold_of = np.random.default_rng(seed).permutation(len(images)) % folds
    fold = fold_of[np.searchsorted(images, image)]
    predicted = np.empty(len(score))
    for k in range(folds):
        constant, weights = _fit(table[fold != k], score[fold != k])
        predicted[fold == k] = constant + table[fold == k] @ weights
    weights = _fit(table, score)[1]
    matters = weights * table.std(axis=0) > 1e-9 * score.std()
    return predicted, {
        name: float(w) for name, w, kept in zip(values, weights, matters, strict=True) if kept
    }


def _fit(table: np.ndarray, score: np.ndarray) -> tuple[float, np.ndarray]:
    """Constant and weights by least squares of centred columns. Weights are not negative; the
    constant may have any sign."""
    centre = table.mean(axis=0)
    scale = np.maximum(table.std(axis=0), 1e-12)
    weights = nnls((table - centre) / scale, score - score.mean())[0] / scale
    return float(score.mean() - centre @ weights), weights


def require_mixture(name: str) -> None:
    """InputError for a name that cannot be a mixture's."""
    require_name(name)
    if name in MEASURES:
        problem = f"mixture '{name}' would have the name of a measure"
        raise InputError(problem, remedy="call it otherwise")


def write_mixture(
    path: Path, weights: Mapping[str, float], params: MeasuresParams, told: str
) -> None:
    """Write a file for --params: `measures.mixtures` with the mixture, named as the file, and the
    parameters of its parts that are not the defaults. `told` says in a line what it was fitted on.

    Weights are divided by their sum, so that the mixture's range is within its parts'; ranks, and
    so agreement by ranks, stay the same. A part that is a mixture is written as its own parts.
    InputError where all weights are 0."""
    parts: dict[str, float] = {}
    for name, weight in weights.items():
        for part, share in params.all_mixtures.get(name, {name: 1.0}).items():
            parts[part] = parts.get(part, 0.0) + weight * share
    total = sum(parts.values())
    rounded = {name: float(f"{weight / total:.4g}") for name, weight in parts.items() if weight}
    if not rounded:
        raise InputError(
            "no measure agrees with these judgements", remedy="name other measures to mix"
        )
    blocks: dict[str, Any] = {}
    for name in sorted(parts_of(rounded, params)):  # those that rank for others too
        if name in params.imported:
            blocks.setdefault("imported", {})[name] = params.imported[name]
        elif settings := getattr(params, block := MEASURES[name].block or name).model_dump(
            exclude_defaults=True
        ):
            blocks[block] = settings
    ranking = {block.get("of") for block in blocks.values()} & params.mixtures.keys()
    mixtures = {**{name: params.mixtures[name] for name in ranking}, path.stem: rounded}
    text = yaml.safe_dump({"measures": {**blocks, "mixtures": mixtures}}, sort_keys=False)
    write_text(path, f"{_HEAD} {told}\n{text}")

"""Weights of a mixture of measures by people's judgements, and what it predicts of images it has not seen."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.optimize import nnls

from capgrade.schemas.errors import InputError


def mix(
    values: Mapping[str, np.ndarray], score: np.ndarray, image: np.ndarray, folds: int, seed: int = 0
) -> tuple[np.ndarray, dict[str, float]]:
    """Fit non-negative weights and a constant to human scores by least squares: predicted scores float64 [n], each by
    weights of the other folds; and weights of all judgements by measure, without those that came out 0.

    values: a measure's float [n] on the judged pairs; score float64 [n]; image int64 [n]. All pairs of an image are in
    one fold. Raises InputError for fewer images than folds.
    """
    images = np.unique(image)
    if len(images) < folds:
        raise InputError(f"{len(images)} judged images cannot be in {folds} folds", remedy="ask for fewer folds")
    table = np.stack([values[name] for name in values], axis=1).astype(np.float64)
    fold_of = np.random.default_rng(seed).permutation(len(images)) % folds
    fold = fold_of[np.searchsorted(images, image)]
    predicted = np.empty(len(score))
    for k in range(folds):
        constant, weights = _fit(table[fold != k], score[fold != k])
        predicted[fold == k] = constant + table[fold == k] @ weights
    weights = _fit(table, score)[1]
    felt = weights * table.std(axis=0) > 1e-9 * score.std()
    return predicted, {name: float(w) for name, w, some in zip(values, weights, felt, strict=True) if some}


def _fit(table: np.ndarray, score: np.ndarray) -> tuple[float, np.ndarray]:
    """Constant and weights: non-negative least squares of centred columns, of any sign for the constant alone."""
    centre = table.mean(axis=0)
    scale = np.maximum(table.std(axis=0), 1e-12)
    weights = nnls((table - centre) / scale, score - score.mean())[0] / scale
    return float(score.mean() - centre @ weights), weights

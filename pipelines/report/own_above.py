"""How own captions stand to all others in a dense matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from capgrade.schemas.files import numpy_type
from capgrade.schemas.relevance import Relevance


@dataclass(frozen=True)
class OwnAndOther:
    """Medians of own captions (as they are stored; with the caption left out of the references), of others the median
    and 99th percentile; NaN where no value is known. Then of each caption, own left out where there is such a value:
    `above`, the mean share of other images that are less relevant to it than its own image (ties half), and `rivals`,
    int64 [captions with a value], how many other images are as relevant as its own or more."""

    own: float
    left_out: float
    median: float
    percentile_99: float
    above: float
    rivals: np.ndarray

    @property
    def equalled(self) -> float:
        """The share of captions with a rival."""
        return _of(np.mean, self.rivals > 0)

    @property
    def images(self) -> float:
        """The median number of rivals of the captions that have one."""
        return _of(np.median, self.rivals[self.rivals > 0])


def own_and_other(relevance: Relevance, owner: np.ndarray, own: np.ndarray, left_out: np.ndarray | None) -> OwnAndOther:
    """Of a dense file, images x captions; owner int [n_captions], own and left_out float32 [n_captions], the latter NaN
    where an image has no other caption, and None for a measure that has no such values."""
    stored = numpy_type(relevance.schema.field("relevance").type.value_type)
    compared = (own if left_out is None else left_out).astype(stored).astype(np.float32)  # rounded as others are
    matrix = relevance.matrix()
    other = owner != np.arange(len(matrix))[:, None]
    lower, equal = ((relation(matrix, compared) & other).sum(axis=0) for relation in (np.less, np.equal))
    others = len(matrix) - 1
    known = np.isfinite(compared) & (others > 0)
    above, rivals = ((lower + equal / 2) / max(others, 1))[known], (others - lower)[known]
    alone = np.array([]) if left_out is None else left_out[np.isfinite(left_out)]
    median, high = np.quantile(matrix[other], (0.5, 0.99), overwrite_input=True).tolist() if others else (math.nan,) * 2
    return OwnAndOther(_of(np.median, own), _of(np.median, alone), median, high, _of(np.mean, above), rivals)


def _of(figure: Callable[[np.ndarray], np.floating], values: np.ndarray) -> float:
    return float(figure(values)) if len(values) else math.nan

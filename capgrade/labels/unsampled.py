"""What stands for the pairs that sampling did not keep: their estimated mean, or the most that they
can be."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from capgrade.labels.stored import Sampled
from capgrade.schemas.errors import InputError

Unknown = Literal["mask", "estimate", "bound"]
UNKNOWN_RULES: tuple[Unknown, ...] = ("mask", "estimate", "bound")


def estimates(stored: Sampled, measure: str, file: Path | str) -> np.ndarray:
    """float32 [n_images]: the mean relevance of an image's captions that were not kept, estimated
    from those that were.

    A pair of weight w was kept with probability p = 1 / w, so beside itself it stands for w - 1
    that were not: E[kept (w - 1) v] = (1 - p) v. So sum (w - 1) v over the kept pairs is without
    bias the sum of v over the others, sum (w - 1) is their number, and the quotient is the
    estimate: a mean of values of this image, within their range. As a ratio of estimates it has a
    bias, of the order 1 / n for n pairs that were drawn and smaller than its standard deviation,
    about that of the values over the square root of n. An image with no such pair gets the quotient
    of all images' sums. Pairs kept for certain count nothing. Source: Hajek 1971; Saerndal et al.
    1992, section 5.7. InputError where no pair at all was drawn at random and some are unknown.
    """
    total, count = np.zeros((2, len(stored.sizes)))
    for known in stored.pairs(measure):
        others = known.weight - 1
        total += np.bincount(known.image, others * known.value, len(total))
        count += np.bincount(known.image, others, len(count))
    if count.sum() == 0 and (stored.sizes < stored.n_captions).any():
        problem = "every pair was kept for certain, so nothing tells of those that were not"
        raise InputError(
            problem,
            file=file,
            remedy="sample some: {sample.uniform} above 0; or leave them out: {unknown}=mask",
            keys=("sample.uniform", "unknown"),
        )
    pooled = total.sum() / max(count.sum(), 1)
    return np.divide(total, count, out=np.full(len(total), pooled), where=count > 0).astype(
        np.float32
    )


def bounds(stored: Sampled, measure: str, file: Path | str) -> np.ndarray:
    """float32 [n_images]: the least of an image's top captions, which no caption that was not kept
    exceeds.

    InputError where an image with unknown pairs has no top of the measure.
    """
    last = stored.limits(measure)
    if not np.isfinite(last[stored.sizes < stored.n_captions]).all():
        problem = f"no top captions of {measure}, so nothing bounds those that were not kept"
        raise InputError(
            problem,
            file=file,
            remedy="sample some: {sample.top} above 0; or estimate them: {unknown}=estimate",
            keys=("sample.top", "unknown"),
        )
    return last


def stand_ins(stored: Sampled, measure: str, unknown: Unknown, file: Path | str) -> np.ndarray:
    """float32 [n_images]: what stands for the unknown pairs of each image; made once a measure and
    kept beside it. InputError for a measure of some pairs."""
    if stored.partial(measure):
        problem = f"{measure} scores some pairs alone, and nothing tells of the others"
        raise InputError(
            problem, file=file, remedy="leave them out: {unknown}=mask", keys=("unknown",)
        )
    key = measure, unknown
    if key not in stored.stand_ins:
        stored.stand_ins[key] = (estimates if unknown == "estimate" else bounds)(
            stored, measure, file
        )
    return stored.stand_ins[key]

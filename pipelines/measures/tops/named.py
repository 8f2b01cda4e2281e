"""Captions that the parts of a mixture name as their best, and what no value of another caption is above."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from capgrade.pipelines.measures.base import CHUNK, ArrayState
from capgrade.pipelines.measures.cider import FittedCider
from capgrade.pipelines.measures.tops.cider import CiderTops
from capgrade.pipelines.measures.tops.rouge import RougeTops
from capgrade.pipelines.measures.tops.sbert import SbertTops

if TYPE_CHECKING:
    from capgrade.pipelines.measures.tops.find import Finder

NAMED = 3  # captions, by each part, for each one wanted
LEAST = 2048  # captions for each one wanted: with fewer, all pairs take less time
PAYS: dict[type, int] = {RougeTops: 2048}  # captions for each one named: with fewer, a part is scored for all


class Named(NamedTuple):
    """Captions of some images that a part names."""

    image: np.ndarray  # int64
    rows: np.ndarray  # int64
    last: np.ndarray  # float32 [images]: what no value of another caption is above, but for own captions


def named(find: Finder, images: np.ndarray, width: int) -> Named:
    """`width` of each image, or a few more."""
    if isinstance(find, SbertTops):
        ptr, rows, last = find.named(images, width)
        return Named(np.repeat(np.arange(len(images)), np.diff(ptr)), rows, last)
    tops = find.tops(images, width)
    return Named(np.repeat(np.arange(len(images)), tops.rows.shape[1]), tops.rows.ravel(), tops.values[:, -1])


def blocks(finders: Sequence[Finder], images: np.ndarray, n_captions: int) -> Iterator[np.ndarray]:
    """Of all captions, chunk after chunk, what no value of these parts is above: float32 [parts, images, up to CHUNK],
    in memory that the next chunk overwrites."""
    room = np.empty((len(finders), len(images), CHUNK), np.float32)
    walks = [find.fitted.chunks(images, 0, n_captions, out) for find, out in zip(finders, room, strict=True)]
    for at, _ in zip(range(0, n_captions, CHUNK), zip(*walks, strict=True), strict=True):
        yield room[:, :, : n_captions - at]


def naming(
    finders: Sequence[Finder], bounded: Sequence[bool], weights: Sequence[float], n_captions: int, k: int
) -> list[bool]:
    """Of each part, whether it names captions: parts that are `bounded`. None where all pairs take less time, as where
    as many parts are to be scored for all captions as name some; nor where the threshold would not hold: a weight is
    negative, or listed values are not known to be those of all pairs."""
    counts = [w > 0 for w in weights]
    pays = [n_captions >= NAMED * k * PAYS.get(type(find), 0) for find in finders]
    names = [all(some) for some in zip(bounded, counts, pays, strict=True)]
    cheaper = 0 < k * LEAST <= n_captions and 2 * sum(names) > sum(counts)
    holds = all(0 <= w < np.inf for w in weights) and all(_lists(find) for find in finders)
    return names if cheaper and holds else [False] * len(names)


def _lists(find: Finder) -> bool:
    """Whether listed values are those of all pairs: not those of measures on a GPU, nor of CIDEr-D
    without its index."""
    indexed = isinstance(find, CiderTops) or not isinstance(find.fitted, FittedCider)
    return isinstance(find.fitted, ArrayState) and indexed

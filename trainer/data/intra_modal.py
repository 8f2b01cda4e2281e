"""Relevance between captions, which measures of captions to reference sets give too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self, cast

import numpy as np

from capgrade.pipelines.measures import MEASURES, Fitted
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError

SPREAD_IMAGES = 2000  # images whose own captions `own_spread` compares
TOGETHER = 32  # of them scored in one block


class Own(Fitted, Protocol):
    """A measure of ours, which knows its captions: other reference sets may be made of them."""

    ref_ptr: np.ndarray
    refs: np.ndarray

    def regrouped(self, ref_ptr: np.ndarray, refs: np.ndarray) -> Self: ...


def against_captions(fitted: Fitted) -> Callable[[np.ndarray], np.ndarray]:
    """From caption rows int64 [n] to the relevance between them, float32 [n, n].

    (m(i, j) + m(j, i)) / 2, where m(i, j) is the measure of caption j with caption i as its only reference: one
    meaning for all measures, and for Sentence-BERT the cosine. Against the whole reference set of i's image it would
    be the relevance of the image again. CIDEr-D and ROUGE-L tell caption from reference, hence the mean of both ways;
    CIDEr-D keeps the document frequencies it was fitted with.
    """
    known = _ours(fitted)
    rows = np.arange(len(known.refs))
    alone = known.regrouped(np.arange(len(rows) + 1), rows)

    def block(captions: np.ndarray) -> np.ndarray:
        one_way = alone.score(captions, captions)
        return (one_way + one_way.T) / 2

    return block


def own_spread(fitted: Fitted, captions: Captions) -> float:
    """BCLS's automatic alpha: standard deviation of the relevance between captions of one image, two by two
    (section III-D), all pairs together, over at most SPREAD_IMAGES images; see `against_captions`.

    The paper finds about 0.2 on Flickr30K and COCO. InputError when no image has two captions.
    """
    images = np.unique(np.linspace(0, captions.n_images - 1, min(SPREAD_IMAGES, captions.n_images)).astype(np.int64))
    block = against_captions(fitted)
    found = []
    for at in range(0, len(images), TOGETHER):
        rows = np.flatnonzero(np.isin(captions.owner, images[at : at + TOGETHER]))
        same = captions.owner[rows][:, None] == captions.owner[rows][None, :]
        found.append(block(rows)[np.triu(same, 1)])
    values = np.concatenate(found)
    if not len(values):
        raise InputError("no image has two captions to compare", remedy="give alpha as a number")
    return float(values.std(dtype=np.float64))


def _ours(fitted: Fitted) -> Own:
    if hasattr(fitted, "ref_ptr"):
        return cast(Own, fitted)
    raise InputError("an imported matrix has images and captions only", remedy=f"choose from: {', '.join(MEASURES)}")

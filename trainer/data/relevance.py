"""Relevance of a batch's captions to its images: looked up in labels, or computed by a fitted
measure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from capgrade.labels.batches import Neighbours
from capgrade.labels.stored import RelevanceBlock
from capgrade.labels.unsampled import Unknown
from capgrade.measures.base import Fitted, Measure
from capgrade.measures.catalogue import MEASURES
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError

if TYPE_CHECKING:
    from capgrade.labels import Labels


@dataclass(frozen=True)
class LookedUp:
    """Labels that were made before, of one measure: relevance to all captions of an image.

    `unknown` says what a pair that was not sampled gets, as in `Labels.block`; but for "mask" every
    pair is then known to a loss, as it is where labels hold every pair.
    """

    labels: Labels
    measure: str
    unknown: Unknown = "estimate"

    @cached_property
    def span(self) -> tuple[float, float]:
        """The least and the most that is known."""
        return self.labels.stored.span(self.measure)

    def block(self, images: np.ndarray, captions: np.ndarray) -> RelevanceBlock:
        """Of image numbers [n] and caption rows [m], int64."""
        looked_up = self.labels.block(images, captions, self.measure, unknown=self.unknown)
        whole = self.unknown != "mask" or not self.labels.stored.sampled
        return RelevanceBlock(looked_up.relevance) if whole else looked_up


def find_neighbours(captions: Captions, rows: np.ndarray, labels: LookedUp | None) -> Neighbours:
    """Of the training captions, `rows`, those that shards sampled as relevant to each image.
    InputError where there is none."""
    if labels is None:
        problem = "seeded batches need the sampled captions of each image"
        raise InputError(problem, remedy="give --shards")
    allowed = np.zeros(captions.n_captions, np.bool_)
    allowed[rows] = True
    neighbours = Neighbours.kept_for(labels.labels, labels.measure, allowed)
    if not np.diff(neighbours.start)[captions.owner[rows]].any():
        problem = "no caption is sampled as relevant to another image"
        remedy = "raise shards.top, or train.composition=random"
        raise InputError(problem, file=labels.labels.file, remedy=remedy)
    return neighbours


def learnt_from(captions: Captions, rows: np.ndarray) -> Captions:
    """The table of these caption rows alone: what a measure is fitted on, so that no label tells of
    the others."""
    if len(rows) == captions.n_captions:
        return captions
    digest = hashlib.sha256(
        f"{captions.digest} rows ".encode() + rows.astype(np.int64).tobytes()
    ).hexdigest()
    return replace(captions.of_rows(rows), digest=digest)


class ExactRelevance:
    """Computed from a measure fitted on the captions that are learnt from (`rows`, None: all):
    every pair is known.

    Of caption j to the reference set of image i; or `between_captions`, to caption i, the one that
    stands for image i in the batch, see `against_captions`; with Sentence-BERT the label of BCLS.
    Each caption is an image's own there, so captions of one image have the relevance that the
    measure gives them, and 1 stands on the diagonal.
    """

    def __init__(
        self,
        measure: Measure,
        captions: Captions,
        rows: np.ndarray | None = None,
        between_captions: bool = False,
    ) -> None:
        rows = np.arange(captions.n_captions) if rows is None else rows
        self.captions = learnt_from(captions, rows)
        self.fitted = measure.fit(self.captions)
        self.span = measure.low, measure.high
        self._row = np.full(captions.n_captions, -1)
        self._image = np.full(captions.n_images, -1)
        self._row[rows], self._image[captions.owner[rows]] = (
            np.arange(len(rows)),
            self.captions.owner,
        )
        self._between = against_captions(self.fitted) if between_captions else None

    def block(self, images: np.ndarray, captions: np.ndarray) -> RelevanceBlock:
        """As `LookedUp.block`, of captions that are learnt from; between captions image i is
        captions[i]'s."""
        rows = self._row[captions]
        assert rows.min(initial=0) >= 0, "a caption that is not learnt from"
        return RelevanceBlock(
            self.fitted.score(self._image[images], rows)
            if self._between is None
            else self._between(rows)
        )


# between the images and captions of a batch; values are within `span`
BatchRelevance = LookedUp | ExactRelevance
SPREAD_IMAGES = 2000  # images whose own captions `own_spread` compares
_TOGETHER = 32  # of them scored in one block


def against_captions(fitted: Fitted) -> Callable[[np.ndarray], np.ndarray]:
    """From caption rows int64 [n] to the relevance between them, float32 [n, n].

    (m(i, j) + m(j, i)) / 2, where m(i, j) is the measure of caption j with caption i as its only
    reference: one meaning for all measures, and for Sentence-BERT the cosine. Against the whole
    reference set of i's image it would be the relevance of the image again. CIDEr-D and ROUGE-L
    tell caption from reference, hence the mean of both ways; CIDEr-D keeps the document frequencies
    it was fitted with. InputError for an imported matrix.
    """
    if not hasattr(fitted, "ref_ptr"):
        known = ", ".join(MEASURES)
        raise InputError(
            "an imported matrix has images and captions only", remedy=f"choose from: {known}"
        )
    ours: Any = fitted  # it knows its captions, and other reference sets may be made of them
    rows = np.arange(len(ours.refs))
    alone = ours.regroup(np.arange(len(rows) + 1), rows)

    def block(captions: np.ndarray) -> np.ndarray:
        one_way = alone.score(captions, captions)
        return (one_way + one_way.T) / 2

    return block


def own_spread(fitted: Fitted, captions: Captions) -> float:
    """BCLS's automatic alpha: standard deviation of the relevance between captions of one image,
    two by two (section III-D), all pairs together, over at most SPREAD_IMAGES images; see
    `against_captions`.

    The paper finds about 0.2 on Flickr30K and COCO. InputError when no image has two captions.
    """
    images = np.unique(
        np.linspace(0, captions.n_images - 1, min(SPREAD_IMAGES, captions.n_images)).astype(
            np.int64
        )
    )
    block = against_captions(fitted)
    spreads = []
    for at in range(0, len(images), _TOGETHER):
        rows = np.flatnonzero(np.isin(captions.owner, images[at : at + _TOGETHER]))
        same = captions.owner[rows][:, None] == captions.owner[rows][None, :]
        spreads.append(block(rows)[np.triu(same, 1)])
    values = np.concatenate(spreads)
    if not len(values):
        raise InputError("no image has two captions to compare", remedy="give alpha as a number")
    return float(values.std(dtype=np.float64))

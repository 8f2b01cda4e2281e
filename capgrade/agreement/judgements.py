"""People's judgements: of pairs of an image and a caption, and within one modality.

Within one modality are Crisscrossed Captions STS (caption and caption) and SIS (image and image).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.judges import CHOSEN, YES_OR_NO

OF_CAPTIONS, OF_IMAGES = "captions", "images"


@dataclass(frozen=True)
class Ratings:
    """Every single rating: value float64 [ratings], those of pair k at ptr[k]:ptr[k + 1]; ptr int64
    [pairs + 1]."""

    ptr: np.ndarray
    value: np.ndarray

    @staticmethod
    def of(rows: Sequence[Sequence[float]]) -> Ratings:
        """From the ratings of each pair, one or more."""
        ptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return Ratings(ptr, np.array([value for row in rows for value in row], np.float64))

    @property
    def counts(self) -> np.ndarray:
        """int64 [pairs]"""
        return np.diff(self.ptr)

    @property
    def means(self) -> np.ndarray:
        """float64 [pairs]"""
        return np.asarray(np.add.reduceat(self.value, self.ptr[:-1]) / self.counts)


@dataclass(frozen=True)
class Judgements:
    """Human scores of pairs: image int64 and caption int64 numbers of the captions, score float64,
    all [n]. Where a pair has several ratings, `score` is their mean and `ratings` has each.
    `uncalibrated` says why these cannot tell what a value means to people, where they cannot.
    `scale`: the lowest and the highest score that could be given, None where the file does not say.
    `sampling`: RANDOM where any pair was as likely to be judged, else CHOSEN; `random`, bool [n],
    says it of each pair, where the file does."""

    image: np.ndarray
    caption: np.ndarray
    score: np.ndarray
    ratings: Ratings | None = None
    uncalibrated: str | None = None
    scale: tuple[float, float] | None = None
    sampling: str = CHOSEN
    random: np.ndarray | None = None

    @property
    def binary(self) -> bool:
        """Whether people said yes or no: every rating is 0 or 1, both were given, and no other
        could be."""
        given = self.score if self.ratings is None else self.ratings.value
        return self.scale in (None, YES_OR_NO) and set(np.unique(given)) == {0.0, 1.0}

    def values(self, fitted: Any, captions: Captions) -> np.ndarray:
        """A fitted measure on these pairs, float32 [n]."""
        del captions
        return np.asarray(fitted.pairs(self.image, self.caption))


@dataclass(frozen=True)
class Within(Judgements):
    """Pairs of captions or of images: first and second int64 [n], their numbers. `image` is the
    first one's image, `caption` the second caption, or the second image's first one."""

    of: str = OF_CAPTIONS
    first: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    second: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    @staticmethod
    def between(
        of: str, first: np.ndarray, second: np.ndarray, score: np.ndarray, captions: Captions
    ) -> Within:
        """From the numbers of captions, or of images."""
        image = captions.owner[first] if of == OF_CAPTIONS else first
        caption = second if of == OF_CAPTIONS else captions.refs[captions.ref_ptr[second]]
        return Within(
            image,
            caption,
            score,
            uncalibrated=f"they are of pairs of {of}",
            of=of,
            first=first,
            second=second,
        )

    def values(self, fitted: Any, captions: Captions) -> np.ndarray:
        """A fitted measure m on these pairs, float32 [n], both ways: (m(a, b) + m(b, a)) / 2.

        Of captions, m(a, b) is the measure of caption b with caption a as its only reference. Of
        images, it is the mean of the measure over b's captions, each with a's reference set.
        InputError for an imported matrix.
        """
        if not hasattr(fitted, "ref_ptr"):
            remedy = "name other --measures"
            raise InputError(
                "an imported matrix has no values between captions or between images", remedy=remedy
            )
        rows, sizes = np.arange(captions.n_captions), np.diff(captions.ref_ptr)

        def way(given: np.ndarray, asked: np.ndarray) -> np.ndarray:
            if self.of == OF_CAPTIONS:
                return np.asarray(
                    fitted.regrouped(np.arange(len(rows) + 1), rows).pairs(given, asked)
                )
            each = sizes[asked]
            starts = np.cumsum(each) - each
            within = np.arange(each.sum()) - np.repeat(starts, each)
            caption = captions.refs[np.repeat(captions.ref_ptr[asked], each) + within]
            return np.asarray(
                np.add.reduceat(fitted.pairs(np.repeat(given, each), caption), starts) / each
            )

        return np.asarray((way(self.first, self.second) + way(self.second, self.first)) / 2)

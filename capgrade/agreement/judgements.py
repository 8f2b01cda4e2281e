"""People's judgements of pairs of an image and a caption, and of pairs within one modality, such as
Crisscrossed Captions STS (two captions) and SIS (two images)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.judges import CHOSEN, YES_OR_NO
from capgrade.schemas.pairs import Pairs, number_anew

OF_CAPTIONS, OF_IMAGES = "captions", "images"


@dataclass(frozen=True)
class Ratings:
    """Every single rating: those of pair k are value[ptr[k]:ptr[k + 1]]."""

    ptr: np.ndarray  # int64 [pairs + 1]
    value: np.ndarray  # float64 [ratings]

    @staticmethod
    def of(rows: Sequence[Sequence[float]]) -> Ratings:
        """Ratings from those of each pair, one or more."""
        ptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return Ratings(ptr, np.array([value for row in rows for value in row], np.float64))

    def of_pairs(self, pairs: np.ndarray) -> Ratings:
        """The ratings of these pairs, int64 [m], in their order."""
        rows = [np.arange(self.ptr[k], self.ptr[k + 1]) for k in pairs]
        ptr = np.cumsum([0, *map(len, rows)])
        return Ratings(ptr, self.value[np.concatenate([np.empty(0, np.int64), *rows])])

    @property
    def counts(self) -> np.ndarray:
        """int64 [pairs]: the number of ratings of each pair."""
        return np.diff(self.ptr)

    @property
    def means(self) -> np.ndarray:
        """float64 [pairs]: the mean rating of each pair."""
        return np.asarray(np.add.reduceat(self.value, self.ptr[:-1]) / self.counts)


@dataclass(frozen=True)
class Judgements:
    """Human scores of pairs of an image and a caption; arrays are [n]."""

    image: np.ndarray  # int64
    caption: np.ndarray  # int64
    score: np.ndarray  # float64, the mean of several ratings
    ratings: Ratings | None = None  # every single one, where pairs have several
    uncalibrated: str | None = None  # why a calibration cannot be fitted to these, if it cannot
    scale: tuple[float, float] | None = None  # lowest and highest possible score, if known
    sampling: str = CHOSEN  # RANDOM where every pair was equally likely to be judged
    random: np.ndarray | None = None  # bool, the same of each pair, where the file says it
    left_out: int = 0  # judged pairs that are not here, as their image or caption is not

    @property
    def binary(self) -> bool:
        """Whether people said yes or no: every rating is 0 or 1, both occur, and the scale, if
        known, has no other."""
        ratings = self.score if self.ratings is None else self.ratings.value
        return self.scale in (None, YES_OR_NO) and set(np.unique(ratings)) == {0.0, 1.0}

    def restricted_to(self, images: np.ndarray, captions: np.ndarray) -> Judgements:
        """The judgements of these images and captions, int64 [m] each, by their places there; the
        others are counted in `left_out`."""
        assert not isinstance(self, Within), "a model's scores are of an image and a caption"
        image, caption = number_anew(self.image, images), number_anew(self.caption, captions)
        renumbered = replace(self, image=image, caption=caption)
        return renumbered.take(np.flatnonzero((image >= 0) & (caption >= 0)))

    def take(self, rows: np.ndarray) -> Self:
        """The judgements of these rows, int64 [m]; the others are counted in `left_out`."""
        of_pair = ("image", "caption", "score", "random", "first", "second")
        taken = {
            name: column[rows]
            for name in of_pair
            if (column := getattr(self, name, None)) is not None
        }
        if self.ratings is not None:
            taken["ratings"] = self.ratings.of_pairs(rows)
        return replace(self, **taken, left_out=self.left_out + len(self.score) - len(rows))

    def means(self, n_captions: int) -> Pairs:
        """Each pair once, with the mean of its scores, by image and caption; of so many captions in
        all."""
        codes, row = np.unique(self.image * n_captions + self.caption, return_inverse=True)
        score = np.bincount(row, self.score) / np.bincount(row)
        return Pairs(*np.divmod(codes, n_captions), np.ones(len(codes)), {"score": score})

    def values(self, fitted: Any, captions: Captions) -> np.ndarray:
        """The values of a fitted measure for these pairs, float32 [n]."""
        del captions
        return np.asarray(fitted.pairs(self.image, self.caption))


@dataclass(frozen=True)
class Within(Judgements):
    """Judgements of pairs of captions or of images, whose numbers are `first` and `second`, int64
    [n]. `image` is the first item's image, `caption` the second caption, or the first caption of
    the second image."""

    of: str = OF_CAPTIONS
    first: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    second: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    @staticmethod
    def between(
        of: str, first: np.ndarray, second: np.ndarray, score: np.ndarray, captions: Captions
    ) -> Within:
        """Judgements from the numbers of captions, or of images."""
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
        """The values of a fitted measure m for these pairs, float32 [n]: (m(a, b) + m(b, a)) / 2.

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

        def one_way(reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
            if self.of == OF_CAPTIONS:
                return np.asarray(
                    fitted.regroup(np.arange(len(rows) + 1), rows).pairs(reference, candidate)
                )
            n_captions = sizes[candidate]
            starts = np.cumsum(n_captions) - n_captions
            position = np.arange(n_captions.sum()) - np.repeat(starts, n_captions)
            caption = captions.refs[np.repeat(captions.ref_ptr[candidate], n_captions) + position]
            return np.asarray(
                np.add.reduceat(fitted.pairs(np.repeat(reference, n_captions), caption), starts)
                / n_captions
            )

        return np.asarray((one_way(self.first, self.second) + one_way(self.second, self.first)) / 2)

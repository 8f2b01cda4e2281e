"""Pairs of an image and a caption, whatever they are of: shards, published or dense labels, judged
samples, pools to judge.

`Pairs` are rows in any order. `PairLists` are the same of images in order, each with a list of
captions: so they lie in shards and published datasets, and are found without a search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from capgrade.schemas.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa  # which metrics need not load

_GAIN = "gain"  # what the values of judged pairs are called
LEFT_OUT = "_left_out"  # after a measure's name: its value without the caption among its references


def scored_reason(measure: str) -> str:
    """Why a pair is kept that a measure of some pairs scores. The measure has no other values."""
    return f"scored_{measure}"


@dataclass(frozen=True, eq=False)
class Pairs:
    """A table of pairs, every column [n].

    image and caption, int: rows of tables of these, and of scores. weight, float: how many pairs
    each stands for, itself included, which is the inverse of its probability of being kept or
    judged. values by name, float, NaN where one is not known. reasons, uint32, a bit a reason: why
    each was kept, None where nobody says. most, float: the largest value that the pairs have for
    which each stands, None where nothing bounds them.

    >>> judged = Pairs.judged(np.array([0, 0]), np.array([1, 2]), np.array([1.0, 0.0]),
    ...     np.array([1.0, 0.5]))
    >>> judged.weight
    array([1., 2.])
    """

    image: np.ndarray
    caption: np.ndarray
    weight: np.ndarray
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    reasons: np.ndarray | None = None
    most: np.ndarray | None = None

    @classmethod
    def judged(
        cls,
        image: np.ndarray,
        caption: np.ndarray,
        gain: np.ndarray,
        probability: np.ndarray,
        most: np.ndarray | None = None,
    ) -> Pairs:
        """Judged pairs, every column [n]: rows and columns of scores, whichever side is the query;
        gain, at least 0; and the probability in (0, 1] with which each was chosen to be judged.

        InputError for columns that do not fit, and for other values.
        """
        limits = np.zeros(len(gain)) if most is None else most
        sizes = [np.shape(column) for column in (image, caption, gain, probability, limits)]
        if len(set(sizes)) > 1 or len(sizes[0]) != 1:
            raise InputError(f"columns of the shapes {sizes}", remedy="give columns of one length")
        if not ((probability > 0) & (probability <= 1)).all():
            remedy = "give that with which the pair was chosen"
            raise InputError("a probability is outside (0, 1]", remedy=remedy)
        weight = 1 / np.asarray(probability, np.float64)
        judged = cls(image, caption, weight, {_GAIN: gain}, most=most)
        judged.require_gains()
        return judged

    @classmethod
    def from_dense(cls, images: np.ndarray, values: Mapping[str, np.ndarray]) -> Pairs:
        """All pairs of these images, int [n], by the rows of matrices, [n, n_captions]."""
        n_captions = next(iter(values.values())).shape[1]
        image, caption = np.meshgrid(images, np.arange(n_captions), indexing="ij")
        flat = {name: rows.ravel() for name, rows in values.items()}
        return cls(image.ravel(), caption.ravel(), np.ones(image.size), flat)

    @classmethod
    def concatenate(cls, parts: Iterable[Pairs]) -> Pairs:
        """One table of them all, of one part or more with the same columns."""
        tables = list(parts)
        names = list(tables[0].values)
        unbounded = all(one.most is None for one in tables)
        return cls(
            np.concatenate([one.image for one in tables]),
            np.concatenate([one.caption for one in tables]),
            np.concatenate([one.weight for one in tables]),
            {name: np.concatenate([one.values[name] for one in tables]) for name in names},
            _joined([one.reasons for one in tables]),
            None if unbounded else np.concatenate([one.limits for one in tables]),
        )

    def __len__(self) -> int:
        return len(self.image)

    @property
    def value(self) -> np.ndarray:
        """The only column of values."""
        (values,) = self.values.values()
        return values

    def valued(self, values: np.ndarray) -> Pairs:
        """The same pairs with other values in the only column; of pairs without values, such as a
        pool to judge, with these as gains."""
        (name,) = self.values or (_GAIN,)
        return replace(self, values={name: values})

    def are_pairs_of(self, other: Pairs) -> bool:
        """Whether these are the pairs of another table, in its order."""
        return np.array_equal(self.image, other.image) and np.array_equal(
            self.caption, other.caption
        )

    def require_gains(self) -> None:
        """InputError for a value that is below 0 or no number."""
        if not (np.isfinite(self.value).all() and (np.asarray(self.value) >= 0).all()):
            remedy = "give finite gains of at least 0"
            raise InputError("a gain is below 0 or no number", remedy=remedy)

    def take(self, rows: Any) -> Pairs:
        """Some of the pairs: rows int [m] or bool [n]."""
        return Pairs(
            self.image[rows],
            self.caption[rows],
            self.weight[rows],
            {name: column[rows] for name, column in self.values.items()},
            None if self.reasons is None else self.reasons[rows],
            None if self.most is None else self.most[rows],
        )

    def is_own(self, owner: np.ndarray) -> np.ndarray:
        """bool [n]: whether the caption was written for the image; owner int64 [n_captions]."""
        return np.asarray(owner[self.caption] == self.image)

    def of_others(self, owner: np.ndarray) -> Pairs:
        """Those that are no own pairs; owner int64 [n_captions]."""
        return self.take(~self.is_own(owner))

    def transposed(self) -> Pairs:
        """The same pairs with both sides exchanged, as rows and columns of transposed scores."""
        return replace(self, image=self.caption, caption=self.image)

    @property
    def limits(self) -> np.ndarray:
        """`most`, infinite where it is not known, float64 [n]."""
        if self.most is None:
            return np.full(len(self), np.inf)
        return np.asarray(self.most, np.float64)

    def require_all(self, n_images: int, n_captions: int, **error: Any) -> None:
        """InputError, with what else an `error` says, where these do not stand for all pairs of so
        many images and captions."""
        pairs, weight = n_images * n_captions, self.weight
        if abs(weight.sum() - pairs) > 1 + 6 * np.sqrt(((weight - 1) * weight).sum()):
            problem = (
                f"the judged pairs stand for {weight.sum():,.0f} of {pairs:,} pairs"
                f" ({n_images:,} x {n_captions:,})"
            )
            raise InputError(problem, **error)

    def among(self, images: np.ndarray, captions: np.ndarray) -> Pairs:
        """The pairs of these images and captions, int, numbered by their places there."""
        image, caption = number_anew(self.image, images), number_anew(self.caption, captions)
        return replace(self, image=image, caption=caption).take((image >= 0) & (caption >= 0))

    def rows_of(self, image: np.ndarray, caption: np.ndarray) -> np.ndarray:
        """The row of each of these pairs, int [m], -1 for one that is not here. No pair is here
        twice."""
        width = 1 + max(self.caption.max(initial=0), caption.max(initial=0))
        codes, wanted = self.image * width + self.caption, image * width + caption
        order = np.argsort(codes, kind="stable")
        at = np.searchsorted(codes, wanted, sorter=order)
        if not len(codes):
            return np.full(len(wanted), -1)
        row = order[at.clip(max=len(codes) - 1)]
        return np.where(codes[row] == wanted, row, -1)


def number_anew(numbers: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The place of each number, int of at least 0, among those that are kept, int64; -1 for one
    that is not.

    >>> number_anew(np.array([7, 2, 5]), np.array([5, 7])).tolist()
    [1, -1, 0]
    """
    places = np.full(max(numbers.max(initial=0), kept.max(initial=0)) + 1, -1)
    places[kept] = np.arange(len(kept))
    return np.asarray(places[numbers])


def _joined(columns: Sequence[np.ndarray | None]) -> np.ndarray | None:
    known = [column for column in columns if column is not None]
    return np.concatenate(known) if len(known) == len(columns) else None


@dataclass(frozen=True, eq=False)
class PairLists:
    """Pairs of some images in order, each image's captions after another's: start int64 [images +
    1], where each one's list begins; and the columns of `Pairs` but for image, no caption twice in
    a list. Arrays are in memory or mapped."""

    start: np.ndarray
    caption: np.ndarray
    weight: np.ndarray
    values: Mapping[str, np.ndarray]
    reasons: np.ndarray

    @classmethod
    def from_shards(cls, batch: pa.RecordBatch, names: Sequence[str]) -> PairLists:
        """Those of a batch of shards, without a copy of the columns that have no nulls."""
        start = batch["captions"].offsets.to_numpy().astype(np.int64)
        caption, weight, reasons, *values = (
            # A value that is not known is null, and a NaN here; other columns stay where they lie.
            batch[name].flatten().to_numpy(zero_copy_only=False)
            for name in ("captions", "weight", "reasons", *names)
        )
        return cls(
            start - start[0], caption, weight, dict(zip(names, values, strict=True)), reasons
        )

    @classmethod
    def from_pairs(cls, pairs: Pairs, n_images: int) -> PairLists:
        """Of so many images; pairs have reasons, and are in the order of images."""
        assert pairs.reasons is not None
        start = np.searchsorted(pairs.image, np.arange(n_images + 1))
        return cls(start, pairs.caption, pairs.weight, pairs.values, pairs.reasons)

    def __len__(self) -> int:
        """How many images there are."""
        return len(self.start) - 1

    def of_images(self, first: int, last: int) -> PairLists:
        """Those of images first..last, nothing copied."""
        start = self.start[first : last + 1]
        rows = slice(start[0], start[-1])
        values = {name: column[rows] for name, column in self.values.items()}
        return PairLists(
            start - start[0], self.caption[rows], self.weight[rows], values, self.reasons[rows]
        )

    def pairs(self, first: int = 0, names: Sequence[str] = ()) -> Pairs:
        """The same as rows, with these values; `first` is the number of the first image."""
        image = np.repeat(np.arange(first, first + len(self)), np.diff(self.start))
        values = {name: self.values[name] for name in names}
        return Pairs(image, self.caption.astype(np.int64), self.weight, values, self.reasons)

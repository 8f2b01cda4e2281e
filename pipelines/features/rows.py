"""Checks of the images of feature files, whose errors are raised as one or left out."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

import numpy as np

from capgrade.pipelines.features.damage import ImageEntry
from capgrade.pipelines.features.numbers import LARGEST_FEATURE, bytes_of, float_types, is_plausible
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import DAMAGED, Regions

# Most of the first images decide the length of features. If all of them are bad, so is the file.
_FIRST = 20
_NAMED = 3  # how many bad images one message names
Read = tuple[ImageEntry, Regions | InputError]


class GoodImages:
    """Reads images and collects the errors of the bad ones. With `unreadable` "skip" these are left
    out, else one InputError counts them after the last image."""

    def __init__(self, unreadable: str = "fail") -> None:
        if unreadable not in ("fail", "skip"):
            raise InputError(f"unreadable is {unreadable}", remedy="choose fail or skip")
        self.skip = unreadable == "skip"
        self.left_out: list[dict[str, str]] = []  # as the manifest of regions lists them
        self.first_error: InputError | None = None
        self.images = 0

    def read(self, entries: Iterable[ImageEntry]) -> Iterator[Regions]:
        """The good images. Without `skip` none follows the first bad one, but all are checked."""
        results = map(_read, entries)
        first = list(islice(results, _FIRST))
        lengths = Counter(
            result.features.shape[1] for _, result in first if isinstance(result, Regions)
        )
        if first and not lengths:
            _, error = first[0]
            assert isinstance(error, InputError)
            none = f"; none of the first {len(first)} images can be read" if len(first) > 1 else ""
            problem = f"{error.problem}{none}"
            raise InputError(problem, file=error.file, row=error.row, remedy=error.remedy)
        places: dict[str, str] = {}
        for entry, result in chain(first, results):
            self.images += 1
            if isinstance(result, Regions):
                result = _fit(entry, result, lengths.most_common(1)[0][0], places)
            if isinstance(result, InputError):
                self._add(entry, result)
            elif self.skip or not self.left_out:
                yield result
        if self.first_error is not None and not self.skip:
            raise self._join_errors(self.first_error)

    def _add(self, entry: ImageEntry, error: InputError) -> None:
        name = Path(error.file or entry.file).name
        file = name if entry.row is None else f"{name} row {entry.row}"
        self.left_out.append({"image_id": entry.image_id, "file": file, "problem": error.problem})
        self.first_error = self.first_error or error

    def _join_errors(self, first: InputError) -> InputError:
        """One error for all bad images, which names the place of the first and the next few."""
        n, others = len(self.left_out), self.left_out[1:_NAMED]
        named = "; ".join(f"{image['file']}: {image['problem']}" for image in others)
        more = f"; and {n - _NAMED} more" if n > _NAMED else ""
        count = f"; {n} of {self.images} images are bad, next {named}{more}" if n > 1 else ""
        remedy = f"{first.remedy}; or leave out what cannot be read: --set regions.unreadable=skip"
        return InputError(f"{first.problem}{count}", file=first.file, row=first.row, remedy=remedy)


def _read(entry: ImageEntry) -> Read:
    """The regions, or the error that says why there are none."""
    try:
        regions = entry.read()
        _require_features(regions, entry)
        return entry, regions.check(file=entry.file, row=entry.row)
    except InputError as error:
        return entry, error


def _require_features(regions: Regions, entry: ImageEntry) -> None:
    """InputError for numbers that cannot be features. Its remedy names the float type that the same
    bytes fit, if there is one."""
    x = regions.features
    if x.ndim != 2 or not x.size or is_plausible(x):
        return
    problem = f"feature value {np.abs(x).max():g} is beyond {LARGEST_FEATURE:,.0f}"
    if infinite := np.count_nonzero(~np.isfinite(x)):
        problem = f"{infinite} feature values are NaN or infinite"
    problem = f"image {regions.image_id!r}: {problem}"
    step = x.shape[1] * x.itemsize
    fitting = [dtype for dtype in float_types([x.tobytes()], step) if dtype != x.dtype.name]
    remedy = DAMAGED
    if len(fitting) == 1:
        remedy = (
            f"the bytes look like {fitting[0]}, {step // bytes_of(fitting[0])} numbers a region:"
            " write them as such"
        )
    raise InputError(problem, file=entry.file, row=entry.row, remedy=remedy)


def _fit(
    entry: ImageEntry, regions: Regions, length: int, places: dict[str, str]
) -> Regions | InputError:
    """The regions of an image that fits the others, or the error."""
    if regions.features.shape[1] != length:
        problem = f"{regions.features.shape[1]} numbers per region, {length} in the others"
        remedy = "keep features of different detectors in different folders"
    elif regions.image_id in places:
        problem = f"image {regions.image_id} is in {places[regions.image_id]} too"
        remedy = "give every image once"
    else:
        row = "" if entry.row is None else f" row {entry.row}"
        places[regions.image_id] = f"{entry.file}{row}"
        return regions
    return InputError(problem, file=entry.file, row=entry.row, remedy=remedy)

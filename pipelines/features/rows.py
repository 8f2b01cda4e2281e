"""The images of feature files, each checked, and those that are bad counted: told all at once, or
left out."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

import numpy as np

from capgrade.pipelines.features.damage import Found
from capgrade.pipelines.features.numbers import LARGEST_FEATURE, float_types, plausible, size_of
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import DAMAGED, Regions

# images: the length of features is that of most of them, and a file of which none is good is given
# up
_FIRST = 20
_NAMED = 3  # bad images in one message
Read = tuple[Found, Regions | InputError]


class BadRows:
    """Images that cannot be read: with `skip` they are left out, else `InputError` counts them all
    at the end."""

    def __init__(self, unreadable: str = "fail") -> None:
        if unreadable not in ("fail", "skip"):
            raise InputError(f"--unreadable {unreadable}", remedy="choose fail or skip")
        self.skip = unreadable == "skip"
        self.left_out: list[dict[str, str]] = []  # as the manifest of regions lists them
        self.errors: list[InputError] = []  # the first
        self.images = 0

    def good(self, found: Iterable[Found]) -> Iterator[Regions]:
        """The images that are good. After the first bad one only with `skip`: the others are
        checked all the same."""
        read = map(_read, found)
        first = list(islice(read, _FIRST))
        lengths = Counter(one.features.shape[1] for _, one in first if isinstance(one, Regions))
        if first and not lengths:
            self.images = len(first)
            for each, one in first:
                self._add(each, one)
            one = self.errors[0]
            none = f"; none of the first {len(first)} images can be read" if len(first) > 1 else ""
            raise InputError(f"{one.problem}{none}", file=one.file, row=one.row, remedy=one.remedy)
        places: dict[str, str] = {}
        for each, one in chain(first, read):
            self.images += 1
            if isinstance(one, Regions):
                one = _fit(each, one, lengths.most_common(1)[0][0], places)
            if isinstance(one, InputError):
                self._add(each, one)
            elif self.skip or not self.left_out:
                yield one
        if self.left_out and not self.skip:
            raise self._error()

    def _add(self, found: Found, error: Regions | InputError) -> None:
        assert isinstance(error, InputError)
        name = Path(error.file or found.file).name
        file = name if found.row is None else f"{name} row {found.row}"
        self.left_out.append({"image_id": found.image_id, "file": file, "problem": error.problem})
        if not self.errors:
            self.errors.append(error)

    def _error(self) -> InputError:
        """One error of all bad images: the place of the first, and the next few."""
        first, n = self.errors[0], len(self.left_out)
        named = "; ".join(f"{one['file']}: {one['problem']}" for one in self.left_out[1:_NAMED])
        more = f"; and {n - _NAMED} more" if n > _NAMED else ""
        others = f"; {n} of {self.images} images are bad, next {named}{more}" if n > 1 else ""
        remedy = f"{first.remedy}; or leave out what cannot be read: --unreadable skip"
        return InputError(f"{first.problem}{others}", file=first.file, row=first.row, remedy=remedy)


def _read(found: Found) -> Read:
    """The regions, or the error that says why there are none."""
    try:
        regions = found.read()
        _require_features(regions, found)
        return found, regions.check(file=found.file, row=found.row)
    except InputError as error:
        return found, error


def _require_features(regions: Regions, found: Found) -> None:
    """InputError for numbers that are no features, with the float type that the same bytes fit if
    there is one."""
    x = regions.features
    if x.ndim != 2 or not x.size or plausible(x):
        return
    infinite = np.count_nonzero(~np.isfinite(x))
    beyond = f"feature value {np.abs(x).max():g} is beyond {LARGEST_FEATURE:,.0f}"
    problem = (
        f"image {regions.image_id!r}:"
        f" {f'{infinite} feature values are NaN or infinite' if infinite else beyond}"
    )
    step = x.shape[1] * x.itemsize
    fitting = [dtype for dtype in float_types([x.tobytes()], step) if dtype != x.dtype.name]
    remedy = DAMAGED
    if len(fitting) == 1:
        remedy = (
            f"the bytes look like {fitting[0]}, {step // size_of(fitting[0])} numbers a region:"
            " write them as such"
        )
    raise InputError(problem, file=found.file, row=found.row, remedy=remedy)


def _fit(
    found: Found, regions: Regions, length: int, places: dict[str, str]
) -> Regions | InputError:
    """An image that is like the others and comes once, or the error."""
    if regions.features.shape[1] != length:
        problem = f"{regions.features.shape[1]} numbers per region, {length} in the others"
        remedy = "keep features of different detectors in different folders"
    elif regions.image_id in places:
        problem, remedy = (
            f"image {regions.image_id} is in {places[regions.image_id]} too",
            "give every image once",
        )
    else:
        places[regions.image_id] = (
            str(found.file) if found.row is None else f"{found.file} row {found.row}"
        )
        return regions
    return InputError(problem, file=found.file, row=found.row, remedy=remedy)

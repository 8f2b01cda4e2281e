"""Which picture, row of features or similarity belongs to which image: one rule, wherever names
meet."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path, PurePath
from typing import TypeVar

from capgrade.schemas.errors import InputError, first_names

_Value = TypeVar("_Value")
NAMES_SHOWN = 3  # names in one line
# .jpg, .jpg_large; of an id like v1.5 no part is an ending
ENDING = re.compile(r"(?<=.)\.[A-Za-z]\w{0,9}$")
_COCO = re.compile(r"(?:COCO_[a-z]+\d{4}_)?([0-9]{12})")  # the file of an image, without its ending
_NUMBER = re.compile(r"0|[1-9][0-9]{0,11}")  # an image's number as annotations write it


@dataclass(frozen=True, slots=True)
class Candidate:
    """What may belong to an image: its id, and its path with folders inside its source, where it
    has one.

    `file` is the archive that the path is in, which tells two of the same path apart in an error.
    """

    image_id: str
    path: str | None = None
    file: str | None = None


@dataclass(frozen=True)
class ImageMatches:
    """Which candidate belongs to which image. Images keep their order."""

    numbers: dict[str, int]  # image id -> number of its candidate
    missing: list[str]  # image ids
    not_asked: list[int]  # numbers of candidates that belong to no image
    images: Mapping[str, str | None]
    candidates: Sequence[Candidate]

    def lines(self, what: str = "pictures") -> list[str]:
        """Lines on what is missing and on what is not asked for, with the first names."""
        lines = []
        if self.missing:
            names = first_names(
                [name_with_file(image_id, self.images[image_id]) for image_id in self.missing],
                NAMES_SHOWN,
            )
            lines.append(
                f"no {what} of {len(self.missing):,} of the {len(self.images):,} images: {names}"
            )
        if self.not_asked:
            others = [
                self.candidates[k].path or self.candidates[k].image_id for k in self.not_asked
            ]
            names = first_names(others, NAMES_SHOWN)
            lines.append(
                f"not asked for: {len(self.not_asked):,} of {len(self.candidates):,} {what}:"
                f" {names}"
            )
        return lines


def name_with_file(image_id: str, path: str | None) -> str:
    """An image's id in words, with its file where that says more."""
    return repr(image_id) if path in (None, image_id) else f"{image_id!r} ({path})"


def match_images(
    images: Mapping[str, str | None],
    candidates: Iterable[Candidate | str],
    source: str | Path | None = None,
) -> ImageMatches:
    """The candidate of each image, by the first of these that fits: the id; the image file, with
    its folders, then without those that only one side has; the stem; COCO's number
    (`COCO_val2014_000000391895.jpg` is image 391895). By each of them names are compared as they
    are written, then as Unicode composes them: a Mac writes the e and the accent of `é` apart.

    `images` has the image file of each id, None where it is not recorded: the id is the name then.
    A candidate that is an id alone is a string. InputError, which shows both, for two candidates of
    one image, or two images of one.
    """
    ids = list(images)
    listed = [Candidate(one) if isinstance(one, str) else one for one in candidates]
    # What images and candidates are called, as it is written and composed.
    called = [(image_id, file) for image_id, file in images.items()]
    found = [(candidate.image_id, candidate.path) for candidate in listed]
    spellings = [tuple([_Name(*one) for one in names] for names in (called, found))]
    if not all(name is None or name.isascii() for one in (*called, *found) for name in one):
        spellings.append(
            tuple(
                [_Name(composed(one), path and composed(path)) for one, path in names]
                for names in (called, found)
            )
        )
    owner: dict[int, int] = {}  # candidate -> image
    rest, free = list(range(len(called))), list(range(len(found)))
    for rule, (wanted, names) in ((rule, one) for rule in range(len(_RULES)) for one in spellings):
        fits = _RULES[rule]
        by_key: dict[object, list[int]] = {}
        for c in free:
            if (key := names[c].keys[rule]) is not None:
                by_key.setdefault(key, []).append(c)
        unmatched = []
        for i in rest:
            fitting = []
            for c in by_key.get(wanted[i].keys[rule], ()):
                if fits is None or fits(wanted[i], names[c]):
                    fitting.append(c)
            if not fitting:
                unmatched.append(i)
            for c in fitting[:2]:
                if (other := owner.setdefault(c, i)) != i:
                    problem = (
                        f"{_shown(listed[c])} belongs to two images, {_both(called, other, i)}"
                    )
                    remedy = (
                        "give each image a picture or features of its own, named by the image id"
                    )
                    raise InputError(problem, file=source, remedy=remedy)
            if len(fitting) > 1:
                problem = (
                    f"image {ids[i]!r} has two,"
                    f" {' and '.join(_shown(listed[c]) for c in fitting[:2])}"
                )
                raise InputError(
                    problem, file=source, remedy="keep one, or list which: image_id<TAB>path"
                )
        rest, free = unmatched, [c for c in free if c not in owner]
        if not rest or not free:
            break
    numbers = {ids[i]: c for c, i in sorted(owner.items(), key=itemgetter(1))}
    return ImageMatches(numbers, [ids[i] for i in rest], free, images, listed)


def composed(name: str) -> str:
    """A name in Unicode's composed form, NFC. Names that are equal in it look the same."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def well_formed(image_id: str) -> bool:
    """Whether a text has visible characters and no space around them."""
    return bool(image_id) and image_id == image_id.strip() and image_id.isprintable()


def by_name(values: Mapping[str, _Value]) -> Mapping[str, _Value]:
    """The same values, looked up by names as they are written, else as Unicode composes them.

    >>> by_name({"cafe\u0301.jpg": 7})["caf\u00e9.jpg"]
    7
    """
    return values if all(name.isascii() for name in values) else _ByName(values)


class _ByName(Mapping[str, _Value]):
    def __init__(self, values: Mapping[str, _Value]) -> None:
        self._values = values
        self._written = {composed(name): name for name in values if not name.isascii()}

    def __getitem__(self, name: str) -> _Value:
        return self._values[name if name in self._values else self._written[composed(name)]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class _Name:
    """What an image, or a candidate, is called; its path is the id where there is no other."""

    __slots__ = ("bare", "base", "id", "keys", "path", "stem")

    def __init__(self, image_id: str, path: str | None) -> None:
        self.id, self.bare = image_id, path is None  # bare: an id alone
        self.path = (path or image_id).replace("\\", "/").removeprefix("./")
        self.base = self.path.rpartition("/")[2]
        self.stem = ENDING.sub("", self.base)
        number = None
        if coco := _COCO.fullmatch(self.stem) or _COCO.fullmatch(image_id):
            number = int(coco[1])
        elif _NUMBER.fullmatch(image_id):
            number = int(image_id)
        # What must be equal by each of `_RULES`; by one whose key is None nothing is.
        self.keys = ((image_id, self.path), image_id, self.path, self.base, self.stem, number)


def _same_file(one: _Name, other: _Name) -> bool:
    """Whether the folders that both name are the same, from the last upwards."""
    a, b = one.path.split("/")[-2::-1], other.path.split("/")[-2::-1]
    return a[: len(b)] == b[: len(a)]


def _same_id(image: _Name, candidate: _Name) -> bool:
    """Whether ids are the same. A picture in a folder has its stem as id: the folder counts too."""
    return (
        candidate.bare
        or candidate.id != PurePath(candidate.base).stem
        or _same_file(image, candidate)
    )


def _of_coco(image: _Name, candidate: _Name) -> bool:
    """One side has COCO's twelve digits: two plain numbers are ids, which differ."""
    return any(_COCO.fullmatch(one) for name in (image, candidate) for one in (name.stem, name.id))


# What must fit beside the keys of two names, by rule. The strictest comes first, as several files
# may have the same id.
_RULES: tuple[Callable[[_Name, _Name], bool] | None, ...] = (
    None,  # id and path
    _same_id,  # id
    None,  # path
    _same_file,  # the file without its folders
    _same_file,  # the file without folders and ending
    _of_coco,  # COCO's number
)


def _shown(candidate: Candidate) -> str:
    path = candidate.path if candidate.file is None else f"{candidate.path} of {candidate.file}"
    return name_with_file(candidate.image_id, path)


def _both(names: Sequence[tuple[str, str | None]], one: int, other: int) -> str:
    return " and ".join(name_with_file(*names[k]) for k in (one, other))

"""Which picture, row of features or similarity belongs to which image: one rule, wherever names
meet."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from capgrade.schemas.errors import InputError, first_of

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
            names = first_of(
                [named(image_id, self.images[image_id]) for image_id in self.missing], NAMES_SHOWN
            )
            lines.append(
                f"no {what} of {len(self.missing):,} of the {len(self.images):,} images: {names}"
            )
        if self.not_asked:
            others = [
                self.candidates[k].path or self.candidates[k].image_id for k in self.not_asked
            ]
            names = first_of(others, NAMES_SHOWN)
            lines.append(
                f"not asked for: {len(self.not_asked):,} of {len(self.candidates):,} {what}:"
                f" {names}"
            )
        return lines


def named(image_id: str, path: str | None) -> str:
    """An image's id in words, with its file where that says more."""
    return repr(image_id) if path in (None, image_id) else f"{image_id!r} ({path})"


def match_images(
    images: Mapping[str, str | None],
    candidates: Iterable[Candidate | str],
    source: str | Path | None = None,
) -> ImageMatches:
    """The candidate of each image, by the first of these that fits: the id; the image file, with
    its folders, then without those that only one side has; the stem; COCO's number
    (`COCO_val2014_000000391895.jpg` is image 391895).

    `images` has the image file of each id, None where it is not recorded: the id is the name then.
    A candidate that is an id alone is a string. InputError, which shows both, for two candidates of
    one image, or two images of one.
    """
    listed = [Candidate(one) if isinstance(one, str) else one for one in candidates]
    wanted = [_Name(image_id, _plain(file or image_id)) for image_id, file in images.items()]
    names = [
        _Name(one.image_id, _plain(one.path or one.image_id), one.path is None) for one in listed
    ]
    owner: dict[int, int] = {}  # candidate -> image
    rest, free = list(range(len(wanted))), list(range(len(names)))
    for key, fits in _RULES:
        by_key: dict[object, list[int]] = {}
        for c in free:
            if (value := key(names[c])) is not None:
                by_key.setdefault(value, []).append(c)
        for i in rest if by_key else ():
            fitting = [
                c
                for c in by_key.get(key(wanted[i]), ())
                if fits is None or fits(wanted[i], names[c])
            ]
            for c in fitting[:2]:
                if (other := owner.setdefault(c, i)) != i:
                    problem = (
                        f"{_shown(listed[c])} belongs to two images, {_both(wanted, other, i)}"
                    )
                    remedy = (
                        "give each image a picture or features of its own, named by the image id"
                    )
                    raise InputError(problem, file=source, remedy=remedy)
            if len(fitting) > 1:
                problem = (
                    f"image {wanted[i].id!r} has two,"
                    f" {' and '.join(_shown(listed[c]) for c in fitting[:2])}"
                )
                raise InputError(
                    problem, file=source, remedy="keep one, or list which: image_id<TAB>path"
                )
        done = set(owner.values())
        rest, free = [i for i in rest if i not in done], [c for c in free if c not in owner]
        if not rest or not free:
            break
    numbers = {wanted[i].id: c for c, i in sorted(owner.items(), key=lambda pair: pair[1])}
    return ImageMatches(numbers, [wanted[i].id for i in rest], free, images, listed)


class _Name:
    """What an image, or a candidate, is called; its path is the id where there is no other."""

    __slots__ = ("bare", "base", "id", "path", "stem")

    def __init__(self, image_id: str, path: str, bare: bool = True) -> None:
        # bare: a candidate that is an id alone
        self.id, self.path, self.bare = (
            image_id,
            path,
            bare,
        )
        self.base = path.rpartition("/")[2]
        self.stem = ENDING.sub("", self.base)

    @property
    def number(self) -> int | None:
        coco = _COCO.fullmatch(self.stem) or _COCO.fullmatch(self.id)
        return int(coco[1]) if coco else int(self.id) if _NUMBER.fullmatch(self.id) else None


def _plain(path: str) -> str:
    path = path.replace("\\", "/")
    return path.removeprefix("./")


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


# Each rule has what must be equal, and what must fit besides. The strictest comes first, as several
# files may have the same id.
_RULES: tuple[tuple[Callable[[_Name], object], Callable[[_Name, _Name], bool] | None], ...] = (
    (lambda name: (name.id, name.path), None),
    (lambda name: name.id, _same_id),
    (lambda name: name.path, None),
    (lambda name: name.base, _same_file),
    (lambda name: name.stem, _same_file),
    (lambda name: name.number, _of_coco),
)


def _shown(candidate: Candidate) -> str:
    path = candidate.path if candidate.file is None else f"{candidate.path} of {candidate.file}"
    return named(candidate.image_id, path)


def _both(names: Sequence[_Name], one: int, other: int) -> str:
    return " and ".join(named(names[k].id, names[k].path) for k in (one, other))

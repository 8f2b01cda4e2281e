"""What a run reads of its images: regions of their store, or pictures prepared as the model wants
them."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from capgrade.pictures.listing import list_pictures, match_pictures
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError, first_of
from capgrade.schemas.files import MANIFEST, digest
from capgrade.schemas.image_matching import NAMES_SHOWN, ImageMatches, named
from capgrade.schemas.inputs import file_digest
from capgrade.schemas.left_out import MISSING, UNREADABLE, line_of
from capgrade.schemas.progress import progress
from capgrade.schemas.region_store import RegionStore
from capgrade.schemas.regions import Regions
from capgrade.schemas.say import tell
from capgrade.trainer.models import configure, model_of
from capgrade.trainer.models.base import Transform


class PictureStore:
    """Pictures of `list_pictures`, decoded and prepared when asked for by their number: each is one
    region, the whole of it, whose feature float32 [1, 3 side side] is its prepared pixels in the
    order of [3, side, side].

    With `skip` an image without a readable picture is left out; else it is an InputError, which
    names `setting`.
    """

    def __init__(
        self, folder: Path, transform: Transform, skip: bool = False, setting: str = ""
    ) -> None:
        self.folder, self.transform, self.skip, self.setting = folder, transform, skip, setting
        self._pictures = list_pictures(folder)
        self._problems: dict[int, InputError | None] = {}  # of those that were decoded once
        self.metadata = {"dim": transform(np.zeros((8, 8, 3), np.uint8)).size}

    @property
    def names(self) -> list[str]:
        """What its pictures are called."""
        return [one.path or one.image_id for one in self._pictures]

    def require(self, captions: Captions) -> None:
        """Ids of pictures are names of files or of a list: they fit the captions they fit."""

    def __getitem__(self, number: int) -> Regions:
        rgb, _ = self._pictures[number].decode()
        pixels = np.asarray(self.transform(rgb), np.float32)
        name = self._pictures[number].image_id
        return Regions(name, rgb.shape[1], rgb.shape[0], boxes=None, features=pixels.reshape(1, -1))

    def match(self, images: Mapping[str, str | None]) -> ImageMatches:
        """The picture of each image, by `match_images`."""
        return match_pictures(images, self._pictures, self.folder)

    def reasons(self, images: Mapping[str, str | None]) -> dict[str, str]:
        """Why these images are left out, which have no picture; none without `skip`."""
        return dict.fromkeys(images, MISSING) if self.skip else {}

    def unreadable(self, numbers: Sequence[int]) -> set[int]:
        """Those that cannot be decoded: all are, once, before anything is made of them. InputError
        without `skip`."""
        todo = [k for k in numbers if k not in self._problems]
        with (
            progress("looking at pictures", len(todo), unit="images") as advance,
            ThreadPoolExecutor() as pool,
        ):
            for k, problem in zip(todo, pool.map(self._problem, todo), strict=True):
                self._problems[k] = problem
                advance()
        found = [k for k in numbers if self._problems[k] is not None]
        if found and not self.skip:
            first = cast(InputError, self._problems[found[0]])
            many = f", {len(found):,} such of {len(numbers):,}" if len(found) > 1 else ""
            remedy = f"mend it, or leave such images out: --set {self.setting}=skip"
            raise InputError(
                f"{first.problem}{many}", file=first.file, row=first.row, remedy=remedy
            )
        return set(found)

    def _problem(self, number: int) -> InputError | None:
        try:
            self._pictures[number].decode()
        except InputError as error:
            return error
        return None

    def digest(self, images: Mapping[str, str | None]) -> str:
        """SHA-256 over these images' ids and the bytes of their pictures, in the order of ids;
        files are read whole. One in a table is known by the table and its row."""
        these = sorted(
            (image_id, self._pictures[k]) for image_id, k in self.match(images).numbers.items()
        )
        lines = (
            f"{name} {file_digest(Path(one.file))} {'' if one.row is None else one.row}"
            for name, one in these
        )
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


# images by their numbers, as sets of regions of `metadata["dim"]` numbers
ImageStore = RegionStore | PictureStore


def open_images(
    name: str,
    options: dict[str, Any],
    regions: Path | None,
    images: Path | None,
    unreadable: str = "fail",
    setting: str = "train.unreadable",
) -> ImageStore:
    """The store that a model reads; `unreadable` says what a picture is that cannot be, by the
    parameter `setting`. InputError where the store is not given, for the other one, and for an
    unknown model."""
    model = model_of(name)
    given, other, wanted = (
        (images, regions, "images") if model.reads == "pictures" else (regions, images, "regions")
    )
    if given is None:
        raise InputError(
            f"model '{name}' reads {model.reads}, which are not given", remedy=f"give --{wanted}"
        )
    if other is not None:
        unread = "regions" if wanted == "images" else "images"
        raise InputError(
            f"model '{name}' does not read --{unread}", remedy=f"give --{wanted} alone"
        )
    if wanted == "regions":
        return RegionStore(given)
    return PictureStore(
        given, model.transform(configure(name, options, 0, 0)), unreadable == "skip", setting
    )


@dataclass(frozen=True)
class SplitImages:
    """Where a store has the images of some captions."""

    numbers: np.ndarray  # int64 [n_images]: of the store; -1 where there is none
    left_out: dict[str, str]  # images that a stage left out -> the reason


def find_images(
    captions: Captions, store: ImageStore, rows: np.ndarray | None = None
) -> SplitImages:
    """The images of these captions in a store, by `match_images`.

    Those that the stage before left out are left out. InputError for another one that is not there,
    of the images that have one of the caption `rows` (None: all).
    """
    store.require(captions)
    match = store.match(captions.image_files)
    numbers = np.full(captions.n_images, -1)
    numbers[[captions.image_numbers[image_id] for image_id in match.numbers]] = list(
        match.numbers.values()
    )
    wanted = np.unique(captions.owner if rows is None else captions.owner[rows])
    absent = [captions.image_ids[i] for i in wanted[numbers[wanted] < 0]]
    left_out = store.reasons({image_id: captions.image_files[image_id] for image_id in absent})
    if unknown := [image_id for image_id in absent if image_id not in left_out]:
        raise _absent(captions, store, unknown, len(wanted))
    there = wanted[numbers[wanted] >= 0]
    bad = there[np.isin(numbers[there], list(store.unreadable(numbers[there].tolist())))]
    left_out |= {captions.image_ids[i]: UNREADABLE for i in bad}
    numbers[bad] = -1
    if len(left_out) == len(wanted):
        problem = (
            f"none of the {len(wanted):,} images of split '{captions.split}' is here: all were"
            " left out"
        )
        raise InputError(
            problem, file=store.folder, remedy="mend the pictures, and extract their regions again"
        )
    return SplitImages(numbers, left_out)


def _absent(
    captions: Captions, store: ImageStore, absent: Sequence[str], wanted: int
) -> InputError:
    """What the user has to know where images of these captions are nowhere."""
    names = first_of(
        [named(image_id, captions.image_files[image_id]) for image_id in absent], NAMES_SHOWN
    )
    if isinstance(store, PictureStore):
        what, remedy = (
            "pictures",
            "name files after their images, or give a list of image_id<TAB>path",
        )
        remedy += f"; --set {store.setting}=skip leaves such images out"
    else:
        what = "regions"
        remedy = (
            "give the captions to capgrade regions, or regions import: --captions DIR says which"
            " are missing there"
        )
    problem = (
        f"no {what} of {len(absent):,} of the {wanted:,} images of split '{captions.split}':"
        f" {names}"
    )
    return InputError(
        f"{problem}; it has {first_of(store.names, NAMES_SHOWN)}", file=store.folder, remedy=remedy
    )


def without_left_out(captions: Captions, store: ImageStore) -> tuple[Captions, dict[str, str]]:
    """The captions of the images that the store has, and the reason for each image that it was made
    without, which is said."""
    found = find_images(captions, store)
    tell_left_out(captions, np.arange(captions.n_captions), found.left_out)
    return captions.of_rows(np.flatnonzero(found.numbers[captions.owner] >= 0)), found.left_out


def tell_left_out(captions: Captions, rows: np.ndarray, left_out: Mapping[str, str]) -> None:
    """One line on images that are left out, of those of these caption rows."""
    if left_out:
        owner = captions.owner[rows]
        lost = np.isin(owner, [captions.image_numbers[image_id] for image_id in left_out])
        tell(line_of(left_out, len(np.unique(owner)), int(lost.sum()), f"split '{captions.split}'"))


def image_digest(store: ImageStore, captions: Iterable[Captions]) -> dict[str, str]:
    """What a run read of its images, by name: the digest of the regions, or of the captions'
    pictures."""
    if isinstance(store, PictureStore):
        return {
            "images": store.digest({k: v for some in captions for k, v in some.image_files.items()})
        }
    return {"regions": digest(store.folder / MANIFEST)}

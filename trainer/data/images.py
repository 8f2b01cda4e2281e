"""The images of a run: regions from their store, or pictures prepared for the model."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from capgrade.pictures.listing import list_pictures, match_pictures
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError, first_names
from capgrade.schemas.files import MANIFEST, digest, file_digest
from capgrade.schemas.image_matching import NAMES_SHOWN, ImageMatches, name_with_file
from capgrade.schemas.left_out import MISSING, UNREADABLE, line_of
from capgrade.schemas.progress import progress
from capgrade.schemas.regions import Regions, RegionStore
from capgrade.schemas.say import tell
from capgrade.trainer.models import configure, model_of
from capgrade.trainer.models.base import Transform


class PictureStore:
    """Pictures of `list_pictures` by their number, decoded and prepared when they are read. Each is
    one region, whose feature float32 [1, 3 side side] is its prepared pixels [3, side, side].

    With `skip` an image without a readable picture is left out; else it is an InputError, whose
    remedy names the parameter `setting`.
    """

    def __init__(
        self, folder: Path, transform: Transform, skip: bool = False, setting: str = ""
    ) -> None:
        self.folder, self.transform, self.skip, self.setting = folder, transform, skip, setting
        self._pictures = list_pictures(folder)
        self._problems: dict[int, InputError | None] = {}  # by number, None for a good picture
        self.metadata = {"dim": transform(np.zeros((8, 8, 3), np.uint8)).size}

    @property
    def names(self) -> list[str]:
        """The path or id of each picture."""
        return [picture.path or picture.image_id for picture in self._pictures]

    def require(self, captions: Captions) -> None:
        """Nothing to check, unlike for regions: pictures are not made from captions."""

    def __getitem__(self, number: int) -> Regions:
        rgb, _ = self._pictures[number].decode()
        pixels = np.asarray(self.transform(rgb), np.float32)
        name = self._pictures[number].image_id
        return Regions(name, rgb.shape[1], rgb.shape[0], boxes=None, features=pixels.reshape(1, -1))

    def match(self, images: Mapping[str, str | None]) -> ImageMatches:
        """The picture of each image, by `match_images`."""
        return match_pictures(images, self._pictures, self.folder)

    def reasons(self, images: Mapping[str, str | None]) -> dict[str, str]:
        """The reason why each of these images, which have no picture, is left out; empty without
        `skip`."""
        return dict.fromkeys(images, MISSING) if self.skip else {}

    def unreadable(self, numbers: Sequence[int]) -> set[int]:
        """The pictures among these that cannot be decoded; each is decoded once for this.
        InputError for one without `skip`."""
        todo = [k for k in numbers if k not in self._problems]
        with (
            progress("looking at pictures", len(todo), unit="images") as advance,
            ThreadPoolExecutor() as pool,
        ):
            for k, problem in zip(todo, pool.map(self._problem, todo), strict=True):
                self._problems[k] = problem
                advance()
        bad = [k for k in numbers if self._problems[k] is not None]
        if bad and not self.skip:
            first = cast(InputError, self._problems[bad[0]])
            count = f", {len(bad):,} such of {len(numbers):,}" if len(bad) > 1 else ""
            text = f"{first.problem}{count}"
            remedy = f"mend it, or leave such images out: --set {self.setting}=skip"
            raise InputError(text, file=first.file, row=first.row, remedy=remedy)
        return set(bad)

    def _problem(self, number: int) -> InputError | None:
        try:
            self._pictures[number].decode()
        except InputError as error:
            return error
        return None

    def digest(self, images: Mapping[str, str | None]) -> str:
        """SHA-256 over these images' ids and the digests of their files, in the order of ids; for a
        picture in a table, the digests of the table and of a file that its row names, and the row.
        """
        pictures = sorted(
            (image_id, self._pictures[k]) for image_id, k in self.match(images).numbers.items()
        )
        lines = []
        for image_id, picture in pictures:
            line = f"{image_id} {file_digest(Path(picture.file))}"
            line += f" {'' if picture.row is None else picture.row}"
            if picture.named_file is not None and picture.named_file.is_file():
                line += f" {file_digest(picture.named_file)}"
            lines.append(line)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


# A store returns the regions of an image by its number; a feature has `metadata["dim"]` numbers.
ImageStore = RegionStore | PictureStore


def open_images(
    name: str,
    options: dict[str, Any],
    regions: Path | None,
    images: Path | None,
    unreadable: str = "fail",
    setting: str = "train.unreadable",
) -> ImageStore:
    """The store of regions or of pictures that a model reads. `unreadable`, the value of the
    parameter `setting`, is "skip" to leave unreadable pictures out. InputError where the folder is
    missing, for the other folder, and for an unknown model."""
    model = model_of(name)
    reads_pictures = model.reads == "pictures"
    folder, other = (images, regions) if reads_pictures else (regions, images)
    option = "images" if reads_pictures else "regions"
    unread = "regions" if reads_pictures else "images"
    if folder is None:
        problem = f"model '{name}' reads {model.reads}, which are not given"
        raise InputError(problem, remedy=f"give --{option}")
    if other is not None:
        problem = f"model '{name}' does not read --{unread}"
        raise InputError(problem, remedy=f"give --{option} alone")
    if option == "regions":
        return RegionStore(folder)
    transform = model.transform(configure(name, options, 0, 0))
    return PictureStore(folder, transform, unreadable == "skip", setting)


def images_of_model(
    name: str, regions: Path | None, pictures: str | None, setting: str
) -> tuple[Path | None, Path | None]:
    """The regions and the pictures for a model. The stages of a pipeline give both to every model:
    one that reads pictures, those of the parameter `setting`, leaves the regions out, with a note;
    another leaves the pictures out."""
    images = None if pictures is None else Path(pictures)
    if regions is None or images is None:
        return regions, images
    if model_of(name).reads != "pictures":
        return regions, None
    tell(f"model '{name}' reads the pictures of {setting}, not {regions}")
    return None, images


@dataclass(frozen=True)
class SplitImages:
    """The numbers that the images of captions have in a store."""

    numbers: np.ndarray  # int64 [n_images]; -1 for an image that the store lacks
    left_out: dict[str, str]  # images that a stage left out -> the reason


def find_images(
    captions: Captions, store: ImageStore, rows: np.ndarray | None = None
) -> SplitImages:
    """The images of these captions in a store, by `match_images`.

    Only images of the caption `rows` (None: all) are required. Those that an earlier stage left out
    are left out; InputError for any other that is missing.
    """
    store.require(captions)
    match = store.match(captions.image_files)
    numbers = np.full(captions.n_images, -1)
    for image_id, number in match.numbers.items():
        numbers[captions.image_numbers[image_id]] = number
    required = np.unique(captions.owner if rows is None else captions.owner[rows])
    left_out: dict[str, str] = {}
    if absent := [captions.image_ids[i] for i in required[numbers[required] < 0]]:
        left_out = store.reasons({image_id: captions.image_files[image_id] for image_id in absent})
        if missing := [image_id for image_id in absent if image_id not in left_out]:
            raise _missing_error(captions, store, missing, len(required))
    present = required[numbers[required] >= 0]
    bad = present[np.isin(numbers[present], list(store.unreadable(numbers[present].tolist())))]
    left_out |= {captions.image_ids[i]: UNREADABLE for i in bad}
    numbers[bad] = -1
    if len(left_out) == len(required):
        images = f"the {len(required):,} images of split '{captions.split}'"
        problem = f"none of {images} is here: all were left out"
        remedy = "mend the pictures, and extract their regions again"
        raise InputError(problem, file=store.folder, remedy=remedy)
    return SplitImages(numbers, left_out)


def _missing_error(
    captions: Captions, store: ImageStore, missing: Sequence[str], required: int
) -> InputError:
    """The error for images of captions that the store lacks."""
    images = [name_with_file(image_id, captions.image_files[image_id]) for image_id in missing]
    if isinstance(store, PictureStore):
        what = "pictures"
        remedy = "name files after their images, or give a list of image_id<TAB>path"
        remedy += f"; --set {store.setting}=skip leaves such images out"
    else:
        what = "regions"
        remedy = "give the captions to capgrade regions"
        remedy += ": --captions DIR says which are missing there"
    problem = f"no {what} of {len(missing):,} of the {required:,} images of split"
    problem += f" '{captions.split}': {first_names(images, NAMES_SHOWN)}"
    problem += f"; it has {first_names(store.names, NAMES_SHOWN)}"
    return InputError(problem, file=store.folder, remedy=remedy)


def drop_left_out(captions: Captions, store: ImageStore) -> tuple[Captions, dict[str, str]]:
    """The captions of the images that the store has, and the reason for each image that was left
    out, with a note."""
    images = find_images(captions, store)
    tell_left_out(captions, np.arange(captions.n_captions), images.left_out)
    return captions.of_rows(np.flatnonzero(images.numbers[captions.owner] >= 0)), images.left_out


def tell_left_out(captions: Captions, rows: np.ndarray, left_out: Mapping[str, str]) -> None:
    """Say in one line which images of these caption rows are left out."""
    if left_out:
        owner = captions.owner[rows]
        lost = np.isin(owner, [captions.image_numbers[image_id] for image_id in left_out])
        tell(line_of(left_out, len(np.unique(owner)), int(lost.sum()), f"split '{captions.split}'"))


def image_digest(store: ImageStore, captions: Iterable[Captions]) -> dict[str, str]:
    """The digest of a run's images, by name: of the regions, or of the captions' pictures."""
    if isinstance(store, PictureStore):
        files: dict[str, str | None] = {}
        for table in captions:
            files |= table.image_files
        return {"images": store.digest(files)}
    return {"regions": digest(store.folder / MANIFEST)}

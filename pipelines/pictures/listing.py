"""What to look at: a list of pictures from a folder, a zip, a text file or a captions folder that carries them."""

import hashlib
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic, read_arrow
from capgrade.schemas.image_matching import Candidate, ImageMatches, match_images
from capgrade.schemas.output import SIGNATURE
from capgrade.schemas.pictures import SUFFIXES, decode_image, open_picture
from capgrade.schemas.regions import well_formed

TABLE = "images.arrow"  # in a captions folder: image_id and png
ORIENTATION = 0x0112
SIDEWAYS = (5, 6, 7, 8)
MOST_BYTES = 2**28  # of a picture in a zip, which may be small packed and endless unpacked


@dataclass(frozen=True, slots=True)
class Picture:
    """An image by its id: a file, a row of an Arrow table of PNG bytes, or a member of a zip. Small, so that it can be
    sent about."""

    image_id: str
    file: str
    row: int | None = None
    member: str | None = None
    path: str | None = None  # with folders, inside of its source; None where an id is all there is

    @property
    def name(self) -> str:
        """The file without its folder, which differs between machines."""
        if self.member is not None:
            return f"{Path(self.file).name} {self.member}"
        return Path(self.file).name if self.row is None else f"{Path(self.file).name} row [{self.row}]"

    @property
    def is_file(self) -> bool:
        """Whether the file is the picture and nothing else."""
        return self.row is None and self.member is None

    def read(self) -> bytes:
        """Its bytes as stored. InputError when they cannot be read, or are in a zip and more than MOST_BYTES."""
        try:
            if self.member is None:
                return Path(self.file).read_bytes() if self.row is None else _column(self.file)[self.row].as_py()
            if _zip(self.file).getinfo(self.member).file_size > MOST_BYTES:
                raise InputError(f"more than {MOST_BYTES:,} bytes", file=self.file, row=self.member)
            return _zip(self.file).read(self.member)
        except (OSError, zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"cannot be read ({reason})", file=self.file, row=self.member) from error

    def decode(self) -> tuple[np.ndarray, str]:
        """uint8 (H, W, 3) RGB and the SHA-256 of the stored bytes. InputError for a picture that is no picture."""
        data = self.read()
        row = self.member if self.row is None else f"[{self.row}]"
        return decode_image(data, self.file, row), hashlib.sha256(data).hexdigest()

    def size(self) -> tuple[int, int] | None:
        """Width and height as its header has them, pixels not decoded; None when there is no header to read."""
        try:
            with open_picture(Path(self.file) if self.is_file else self.read()) as image:
                sideways = "exif" in image.info and image.getexif().get(ORIENTATION) in SIDEWAYS
                return (image.height, image.width) if sideways else image.size
        except Exception:  # whatever is wrong is said when it is decoded
            return None

    def stamp(self) -> str:
        """What changes when the picture does, or who may read it: id, row, and size and change time of the file."""
        try:
            stat = Path(self.file).stat()
        except OSError:
            return f"{self.image_id} missing"
        place = self.row if self.member is None else self.member
        return f"{self.image_id} {stat.st_size} {stat.st_ctime_ns} {place}"


class PictureList(Sequence[Picture]):
    """The pictures of a source, in its order; and the names of what was not taken, by the reason."""

    def __init__(self, pictures: Iterable[Picture], not_taken: dict[str, list[str]] | None = None) -> None:
        self.pictures, self.not_taken = list(pictures), not_taken or {}

    def __getitem__(self, key: Any) -> Any:
        return self.pictures[key]

    def __len__(self) -> int:
        return len(self.pictures)


def match_pictures(images: Mapping[str, str | None], pictures: Sequence[Picture], source: Path | str) -> ImageMatches:
    """`match_images` of the pictures of a source."""
    return match_images(images, (Candidate(one.image_id, one.path) for one in pictures), source)


def opener(source: Path, images: Mapping[str, str | None]) -> Callable[[str], Image.Image]:
    """What gives the RGB picture of one of `images`, which have the file of each id where it is known. InputError, when
    called, for an image that is not in `source`."""
    pictures = list_pictures(source)
    numbers = match_pictures(images, pictures, source).numbers

    def opened(image_id: str) -> Image.Image:
        if image_id not in numbers:
            remedy = "give the images that the regions were made from"
            raise InputError(f"no image {image_id!r}", file=source, remedy=remedy)
        return Image.fromarray(pictures[numbers[image_id]].decode()[0])

    return opened


@lru_cache(maxsize=1)
def _column(file: str) -> pa.ChunkedArray:
    return read_arrow(Path(file))["png"]


@lru_cache(maxsize=1)
def _zip(file: str) -> zipfile.ZipFile:
    return zipfile.ZipFile(file)


def list_pictures(source: Path) -> PictureList:
    """The pictures of a folder and those below it, in order of path, the file's stem the image id; of a zip, likewise;
    or of a captions folder with images.arrow, in its order; or of a text file of lines `image_id<TAB>path`, in its
    order, paths relative to it; or one picture by its file. InputError for no picture."""
    if source.is_dir() and (source / TABLE).is_file():
        pictures = _of_table(source / TABLE)
    elif source.is_dir():
        files = sorted((path.relative_to(source).as_posix(), path) for path in source.rglob("*") if _shown(path))
        pictures = [Picture(path.stem, str(path), path=name) for name, path in files]
    elif source.suffix.lower() == ".zip" and source.is_file():
        pictures = _of_zip(source)
    elif _shown(source) and source.is_file():
        pictures = [Picture(source.stem, str(source), path=source.name)]
    else:
        pictures = _of_list(source)
    if not pictures:
        raise InputError("no picture", file=source, remedy=f"give pictures named {', '.join(sorted(SUFFIXES))}")
    return PictureList(pictures)


def read_pictures(source: Path) -> PictureList:
    """`list_pictures`, where each is called by its own id. InputError for an id that comes twice, and for one that no
    regions can have."""
    pictures = list_pictures(source)
    seen: dict[str, Picture] = {}
    for picture in pictures:
        first = seen.setdefault(picture.image_id, picture)
        if first is not picture:
            problem = f"image {picture.image_id!r} is {first.member or first.file} too"
            remedy = "give every image an id of its own, in a list file"
            raise InputError(problem, file=picture.file, row=picture.member, remedy=remedy)
        if not well_formed(picture.image_id):
            problem = f"image id {picture.image_id!r}: visible characters, and no space around them, are needed"
            raise InputError(problem, file=picture.file, remedy="rename it, or give its id in a list file")
    return pictures


def _shown(path: PurePath) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def _of_zip(path: Path) -> list[Picture]:
    try:
        names = [info.filename for info in _zip(str(path)).infolist() if not info.is_dir()]
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError(f"not a whole zip ({error})", file=path) from error
    files = sorted((PurePosixPath(name), name) for name in names)
    return [Picture(at.stem, str(path), member=name, path=at.as_posix()) for at, name in files if _shown(at)]


def _of_table(path: Path) -> list[Picture]:
    table = read_arrow(path)
    missing = {"image_id", "png"} - set(table.column_names)
    if missing:
        raise InputError(f"no column {sorted(missing)[0]!r}", file=path, remedy="write it with `capgrade captions`")
    return [Picture(image_id, str(path), k) for k, image_id in enumerate(table["image_id"].to_pylist())]


def _of_list(path: Path) -> list[Picture]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            lines = [line.removesuffix("\n") for line in file]
    except FileNotFoundError:
        raise InputError("no such file or folder", file=path, remedy="check the path") from None
    except UnicodeDecodeError as error:
        remedy = "give a folder of pictures, a zip, or a text file of lines image_id<TAB>path"
        raise InputError(f"not text in UTF-8 ({error.reason})", file=path, remedy=remedy) from None
    pictures = []
    for row, line in enumerate(lines, start=1):
        image_id, _, name = line.partition("\t")
        if not (image_id and name) or "\t" in name or "\0" in name:
            raise InputError("not image_id<TAB>path", file=path, row=row, remedy="write one picture a line")
        pictures.append(Picture(image_id, str(path.parent / name), path=name))
    return pictures


def write_png(path: Path, image: Image.Image) -> None:
    """A picture that says that it is ours, by which a later run knows that it may replace it."""
    text = PngInfo()
    text.add_text("Software", SIGNATURE)
    with atomic(path) as temporary:
        image.save(temporary, "PNG", optimize=True, pnginfo=text)


COLUMNS, MARGIN = 3, 14  # of a grid, and pixels around its pictures


def grid(tiles: Sequence[Image.Image]) -> Image.Image:
    """One picture of several, `COLUMNS` in a row."""
    rows = [tiles[at : at + COLUMNS] for at in range(0, len(tiles), COLUMNS)]
    width = MARGIN + max(sum(tile.width + MARGIN for tile in row) for row in rows)
    height = MARGIN + sum(max(tile.height for tile in row) + MARGIN for row in rows)
    sheet = Image.new("RGB", (width, height), "white")
    y = MARGIN
    for row in rows:
        x = MARGIN
        for tile in row:
            sheet.paste(tile, (x, y))
            x += tile.width + MARGIN
        y += max(tile.height for tile in row) + MARGIN
    return sheet

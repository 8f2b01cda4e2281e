"""The corpus' pictures, where they were given, as small JPEGs."""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from PIL import Image

from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError

if TYPE_CHECKING:
    from capgrade.pipelines.pictures.listing import Picture  # which loads torch

SIDE = 320  # pixels, of the longer side


class Thumbnails:
    """JPEG bytes of an image by its number; found by image id, or by the stem of the captions' image_file."""

    def __init__(self, captions: Captions, source: Path | None) -> None:
        self.pictures = [None] * captions.n_images if source is None else _matched(captions, source)
        self.jpeg = lru_cache(maxsize=1024)(self._jpeg)

    def __contains__(self, image: int) -> bool:
        return 0 <= image < len(self.pictures) and self.pictures[image] is not None

    def _jpeg(self, image: int) -> bytes:
        picture = self.pictures[image]
        if picture is None:
            raise InputError(f"no picture of image {image}")
        return jpeg(Image.fromarray(picture.decode()[0]))


def jpeg(picture: Image.Image) -> bytes:
    """At most SIDE pixels wide and high."""
    small = picture.copy()
    small.thumbnail((SIDE, SIDE))
    data = io.BytesIO()
    small.save(data, "JPEG", quality=85)
    return data.getvalue()


def _matched(captions: Captions, source: Path) -> list[Picture | None]:
    from capgrade.pipelines.pictures.listing import read_pictures

    known = {picture.image_id: picture for picture in read_pictures(source)}
    first = captions.refs[captions.ref_ptr[:-1]]
    files = captions.table["image_file"].take(first).to_pylist()
    stems = (PurePosixPath(name).stem if name else None for name in files)
    found = [known.get(i) or (known.get(s) if s else None) for i, s in zip(captions.image_ids, stems, strict=True)]
    if not any(found):
        remedy = "give the pictures of these captions, named by image id or image_file"
        raise InputError(f"none of the {len(found)} images of split '{captions.split}'", file=source, remedy=remedy)
    return found

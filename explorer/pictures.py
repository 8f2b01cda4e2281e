"""The corpus' pictures, where they were given, as small JPEGs."""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path

from PIL import Image

from capgrade.pipelines.pictures.lookup import PictureLookup, find
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError

SIDE = 320  # pixels, of the longer side


class Thumbnails:
    """JPEG bytes of an image by its number, from a folder, a zip, a list or a URL template (`lookup.py`)."""

    def __init__(self, captions: Captions, source: str | Path | None) -> None:
        self.ids = captions.image_ids
        self.found = None if source is None else find(captions, source)
        self.jpeg = lru_cache(maxsize=1024)(self._jpeg)
        if self.found is not None:
            self._tell(self.found)

    def __contains__(self, image: int) -> bool:
        return self.found is not None and 0 <= image < len(self.ids) and self.ids[image] in self.found

    def _tell(self, found: PictureLookup) -> None:
        for image_id in self.ids:
            if image_id not in found:
                found.read(image_id)
        found.asked.update(self.ids)
        found.tell()

    def _jpeg(self, image: int) -> bytes:
        picture = None if self.found is None else self.found.image(self.ids[image])
        if picture is None:
            raise InputError(f"no picture of image {image}")
        return jpeg(picture)


def jpeg(picture: Image.Image) -> bytes:
    """At most SIDE pixels wide and high."""
    small = picture.copy()
    small.thumbnail((SIDE, SIDE))
    data = io.BytesIO()
    small.save(data, "JPEG", quality=85)
    return data.getvalue()

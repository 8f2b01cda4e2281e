"""The corpus' pictures, where they were given, as JPEGs for the page."""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path

from PIL import Image

from capgrade.pipelines.pictures.lookup import PictureLookup, find
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError

SIDE = 480  # pixels, of the longer side


class Thumbnails:
    """JPEG bytes of an image by its number, from a folder, a zip, a list or a URL template (`lookup.py`)."""

    def __init__(self, captions: Captions, source: str | Path | None) -> None:
        self.ids = captions.image_ids
        self.pictures = PictureLookup("", {}) if source is None else find(captions, source)
        self.jpeg = lru_cache(maxsize=1024)(self._jpeg)
        if source is not None:  # one warning for all that have none
            for image_id in self.ids:
                if image_id not in self.pictures:
                    self.pictures.read(image_id)
            self.pictures.asked.update(self.ids)
            self.pictures.tell()

    def __contains__(self, image: int) -> bool:
        return 0 <= image < len(self.ids) and self.ids[image] in self.pictures

    def _jpeg(self, image: int) -> bytes:
        """InputError for a picture that is not there or damaged, or whose address does not answer."""
        picture = self.pictures.image(self.ids[image]) if image in self else None
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

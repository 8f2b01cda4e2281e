"""Small pictures of images, as text that a page can carry."""

from __future__ import annotations

import io
from functools import cached_property, lru_cache
from pathlib import Path

from PIL import Image

from capgrade.pipelines.pictures.listing import TABLE, Picture, read_pictures
from capgrade.pipelines.report.page import data_uri

QUALITY = 70


class Thumbnails:
    """Images of a captions folder; without pictures in it, of none: captions stand for images then."""

    def __init__(self, captions_dir: Path) -> None:
        self.folder = captions_dir
        self.small = lru_cache(maxsize=None)(self._small)

    @cached_property
    def pictures(self) -> dict[str, Picture]:
        """The pictures by image id; none where the captions folder has no images."""
        known = (self.folder / TABLE).is_file()
        return {picture.image_id: picture for picture in read_pictures(self.folder)} if known else {}

    def image(self, image_id: str) -> Image.Image | None:
        """The picture at full size; None where there is none."""
        picture = self.pictures.get(image_id)
        return None if picture is None else Image.fromarray(picture.decode()[0])

    def uri(self, image_id: str, side: int) -> str | None:
        """A WebP of at most `side` pixels a side."""
        return self.small(image_id, side)

    def _small(self, image_id: str, side: int) -> str | None:
        image = self.image(image_id)
        if image is None:
            return None
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        out = io.BytesIO()
        image.save(out, "WEBP", quality=QUALITY)
        return data_uri(out.getvalue(), "webp")

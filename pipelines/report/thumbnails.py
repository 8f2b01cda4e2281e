"""Small pictures of images, as text that a page can carry."""

from __future__ import annotations

import io
from functools import cached_property, lru_cache
from pathlib import Path

from PIL import Image

from capgrade.pipelines.pictures.listing import TABLE, Picture, read_pictures
from capgrade.pipelines.report.page import data_uri
from capgrade.schemas.captions import FILE
from capgrade.schemas.files import open_arrow

QUALITY = 70


class Thumbnails:
    """Images of a captions folder, or of a folder of pictures, by image id or the file's name; without pictures, of
    none: captions stand for images then."""

    def __init__(self, captions_dir: Path, images: Path | None = None) -> None:
        self.folder, self.images = captions_dir, images
        self.small = lru_cache(maxsize=None)(self._small)

    @cached_property
    def pictures(self) -> dict[str, Picture]:
        """The pictures by image id; none where the captions folder has no images."""
        if self.images is not None:
            return self._by_file(read_pictures(self.images))
        known = (self.folder / TABLE).is_file()
        return {picture.image_id: picture for picture in read_pictures(self.folder)} if known else {}

    def _by_file(self, found: list[Picture]) -> dict[str, Picture]:
        """Pictures of the captions' images: the file of the captions table, else the id, less what follows the dot."""
        at = {picture.image_id: picture for picture in found}
        table = open_arrow(self.folder / FILE).read_all().select(["image_id", "image_file"]).group_by("image_id")
        rows = table.aggregate([("image_file", "max")]).to_pylist()
        names = {row["image_id"]: Path(row["image_file_max"] or row["image_id"]).stem for row in rows}
        return {image_id: at[name] for image_id, name in names.items() if name in at}

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

"""Small pictures of images, as text that a page can carry: as many as its limit allows, the others
as links."""

from functools import lru_cache
from pathlib import Path

from capgrade.pictures.listing import PICTURES_TABLE
from capgrade.pictures.lookup import PictureLookup, data_uri, encode_image, find_pictures
from capgrade.schemas.captions import read_captions
from capgrade.schemas.files import read_manifest

_QUALITY = 70
MOST_BYTES = 6_000_000  # of pictures in a page, as text: it opens at once and can be sent by mail


class PageThumbnails:
    """Pictures of the captions folder, or from `images`: a folder, a zip, a list or a URL template
    (`lookup.py`). Where there are none, pages show captions in the place of images. The page lies
    in the folder `beside`, and carries at most MOST_BYTES of pictures. Raises InputError where
    `images` has no picture of these captions."""

    def __init__(
        self, captions_dir: Path, images: str | Path | None = None, beside: Path = Path()
    ) -> None:
        self.images, self.beside, self.left = images, beside, MOST_BYTES
        self._encode = lru_cache(maxsize=None)(self._encoded)
        self.pictures = PictureLookup()
        if images is not None or (captions_dir / PICTURES_TABLE).is_file():
            splits = read_manifest(captions_dir, "captions").get("splits") or {}
            captions = read_captions(captions_dir, "+".join(splits) or None)
            self.pictures = find_pictures(captions, captions_dir if images is None else images)

    def link(self, image_id: str) -> str | None:
        """Where the full-size picture is, as the page links to it; None without `images`."""
        return None if self.images is None else self.pictures.link(image_id, self.beside)

    def uri(self, image_id: str, side: int) -> str | None:
        """A data URI of a WebP of at most `side` pixels a side; None where there is no picture, or
        the page is full. A picture that is shown twice counts twice."""
        text = self._encode(image_id, side) if self.left > 0 else None
        if text is None:
            return None
        self.left -= len(text)
        return text if self.left >= 0 else None

    def _encoded(self, image_id: str, side: int) -> str | None:
        image = self.pictures.image(image_id)
        return (
            None if image is None else data_uri(encode_image(image, side, "WEBP", _QUALITY), "webp")
        )

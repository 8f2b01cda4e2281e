"""Pictures of a captions table's images: where each one is, by the image file that the captions
name.

A source is a folder, a zip, a list or a captions folder, as `list_pictures` takes them, or a URL
template such as `https://images.example.org/val2014/{file}`, in which {file} stands for the image's
file and {id} for its id.
"""

import base64
import io
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from PIL import Image

from capgrade.pictures.listing import list_pictures, match_pictures
from capgrade.pictures.picture import Picture
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.pictures import decode_image
from capgrade.schemas.say import warn

_PLACES = ("{file}", "{id}")
SCHEMES = ("http://", "https://")
# to wait for a picture's address to answer, and of its answer
SECONDS, _MOST_BYTES = (
    10,
    20 * 2**20,
)
UNANSWERED = 3  # addresses that do not answer: then no other is asked


@dataclass
class PictureLookup:
    """Pictures by image id; `names` are those of all images that pages may show, with their file
    where it is known. Without a source there are none."""

    source: str = ""
    names: Mapping[str, str | None] = field(default_factory=dict)
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    template: str | None = None
    # image id -> why its file is no picture of these
    not_taken: Mapping[str, str] = field(default_factory=dict)
    # image id -> why its picture cannot be shown
    lost: dict[str, str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    failed: int = 0

    def __bool__(self) -> bool:
        return bool(self.source)

    def __contains__(self, image_id: object) -> bool:
        known = image_id in self.names if self.template else image_id in self.pictures
        return known and image_id not in self.lost

    def read(self, image_id: str) -> bytes | None:
        """The bytes of its file; None where there are none, which `tell` counts."""
        self.asked.add(image_id)
        if image_id not in self:
            self.lost.setdefault(image_id, self.not_taken.get(image_id, "not there"))
            return None
        try:
            return (
                self.pictures[image_id].read() if self.template is None else self._fetched(image_id)
            )
        except InputError as error:
            self.lost[image_id] = error.problem
            return None

    def image(self, image_id: str) -> Image.Image | None:
        """At full size, RGB; None where there is no readable picture, which `tell` counts."""
        data = self.read(image_id)
        try:
            return None if data is None else Image.fromarray(decode_image(data, image_id))
        except InputError as error:
            self.lost[image_id] = error.problem
            return None

    def link(self, image_id: str, beside: Path) -> str | None:
        """Where a page in the folder `beside` finds it: its address, or the way to its file; None
        in a zip or table."""
        if image_id not in self:
            return None
        if self.template is not None:
            return self.address(image_id)
        picture = self.pictures[image_id]
        return (
            quote(Path(os.path.relpath(picture.file, beside)).as_posix())
            if picture.is_file
            else None
        )

    def address(self, image_id: str) -> str:
        """The template's, for this image."""
        file = self.names[image_id] or image_id
        return str(self.template).replace("{file}", quote(file)).replace("{id}", quote(image_id))

    def tell(self) -> None:
        """One warning for all images that were asked for in vain."""
        if self and self.lost:
            first, why = next(iter(self.lost.items()))
            many = (
                f"{len(self.lost):,} of the {len(self.asked | self.lost.keys()):,} images that were"
                " asked for"
            )
            warn(f"{self.source}: no picture of {many}; the first is '{first}' ({why})")

    def _fetched(self, image_id: str) -> bytes:
        if self.failed >= UNANSWERED:
            raise InputError(f"not asked for: the {UNANSWERED} before it had no answer")
        try:
            with _OPENER.open(self.address(image_id), timeout=SECONDS) as answer:
                data = answer.read(_MOST_BYTES + 1)
        except urllib.error.HTTPError as error:  # it answers, but not with this picture
            self.failed = 0
            raise InputError(f"{error.code} {error.reason}") from error
        except (OSError, HTTPException, ValueError) as error:
            self.failed += 1
            raise InputError(f"no answer ({error})") from error
        self.failed = 0
        if len(data) > _MOST_BYTES:
            raise InputError(f"more than {_MOST_BYTES:,} bytes")
        return data


def encoded(image: Image.Image, side: int, kind: str, quality: int) -> bytes:
    """At most `side` pixels wide and high, as a file of a kind that Pillow knows: JPEG, WEBP."""
    small, out = image.copy(), io.BytesIO()
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    small.save(out, kind, quality=quality)
    return out.getvalue()


def data_uri(data: bytes, suffix: str) -> str:
    """An image in the page itself; `suffix` is its kind: png, webp."""
    return f"data:image/{suffix};base64,{base64.b64encode(data).decode()}"


class _WithinHost(urllib.request.HTTPRedirectHandler):
    """Follows what stays at the host that the user has named: another one may lie inside the user's
    network."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        here, there = urlsplit(req.full_url), urlsplit(newurl)
        secured = (here.scheme, here.port, there.scheme, there.port) == (
            "http",
            None,
            "https",
            None,
        )
        if here.hostname != there.hostname or not (
            secured or (here.scheme, here.port) == (there.scheme, there.port)
        ):
            place = there.netloc or newurl
            raise urllib.error.HTTPError(
                newurl,
                code,
                f"sends on to {place}, another host, which is not followed",
                headers,
                fp,
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_WithinHost)


def find(captions: Captions, source: str | Path) -> PictureLookup:
    """The pictures of these captions' images in `source`, by `match_images`. InputError where no
    image has one."""
    names = captions.image_files
    if str(source).startswith(SCHEMES):
        if not any(place in str(source) for place in _PLACES):
            remedy = "write {file} or {id} where the file's name or the image id stands"
            raise InputError("the same address for every image", file=str(source), remedy=remedy)
        if any(place in urlsplit(str(source)).netloc for place in _PLACES):
            remedy = "write the host out, and {file} or {id} after it"
            raise InputError(
                "the host is not the same for every image", file=str(source), remedy=remedy
            )
        if "{file}" in str(source) and not any(names.values()):
            raise InputError(
                "these captions name no image files",
                file=str(source),
                remedy="write {id} for the id",
            )
        return PictureLookup(str(source), names, template=str(source))
    there = list_pictures(Path(source))
    match = match_pictures(names, there, source)
    pictures = {image_id: there[k] for image_id, k in match.numbers.items()}
    if not pictures:
        remedy = "give the pictures of these captions, named by image id or image_file"
        problem = f"a picture of none of the {len(names)} images of split '{captions.split}'"
        raise InputError(problem, file=source, remedy=remedy)
    not_taken = there.reasons({image_id: names[image_id] for image_id in match.missing})
    return PictureLookup(str(source), names, pictures, not_taken=not_taken)

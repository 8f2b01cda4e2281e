"""Looks up the pictures of a captions table's images, by their ids or the image files that the
captions name.

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
from capgrade.pictures.picture import Picture, decode_image
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.say import warn

_PLACEHOLDERS = ("{file}", "{id}")
SCHEMES = ("http://", "https://")
SECONDS, _MOST_BYTES = 10, 20 * 2**20  # limits of waiting for an address, and of its answer
MAX_UNANSWERED = 3  # addresses in a row without an answer, after which no other is tried


@dataclass
class PictureLookup:
    """Pictures by image id, of a list or by a URL template. Without a source there are none."""

    source: str = ""
    # image id -> its file, None where it is not known, of all images
    names: Mapping[str, str | None] = field(default_factory=dict)
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    template: str | None = None
    # image id -> why its file was not taken as a picture
    not_taken: Mapping[str, str] = field(default_factory=dict)
    # image id -> why its picture cannot be shown
    unavailable: dict[str, str] = field(default_factory=dict)
    requested: set[str] = field(default_factory=set)
    failures: int = 0  # addresses in a row without an answer

    def __bool__(self) -> bool:
        return bool(self.source)

    def __contains__(self, image_id: object) -> bool:
        is_listed = image_id in self.names if self.template else image_id in self.pictures
        return is_listed and image_id not in self.unavailable

    def read(self, image_id: str) -> bytes | None:
        """The bytes of an image's picture; None where there are none, which is noted for
        `warn_of_missing`."""
        self.requested.add(image_id)
        if image_id not in self:
            self.unavailable.setdefault(image_id, self.not_taken.get(image_id, "not there"))
            return None
        try:
            return (
                self.pictures[image_id].read() if self.template is None else self._fetch(image_id)
            )
        except InputError as error:
            self.unavailable[image_id] = error.problem
            return None

    def image(self, image_id: str) -> Image.Image | None:
        """An image's picture at full size, RGB; None where there is no readable one, which is noted
        for `warn_of_missing`."""
        data = self.read(image_id)
        try:
            return None if data is None else Image.fromarray(decode_image(data, image_id))
        except InputError as error:
            self.unavailable[image_id] = error.problem
            return None

    def link(self, image_id: str, beside: Path) -> str | None:
        """The link to a picture in a page of the folder `beside`: its address, or the relative path
        of its file; None for a picture in a zip, tar or table, and for a missing one."""
        if image_id not in self:
            return None
        if self.template is not None:
            return self.address(image_id)
        picture = self.pictures[image_id]
        return (
            quote(Path(os.path.relpath(picture.file, beside)).as_posix())
            if picture.place is None
            else None
        )

    def address(self, image_id: str) -> str:
        """The URL of an image's picture, by the template."""
        file = self.names[image_id] or image_id
        return str(self.template).replace("{file}", quote(file)).replace("{id}", quote(image_id))

    def warn_of_missing(self) -> None:
        """Give one warning for all requested images without a picture."""
        if self and self.unavailable:
            first_id, problem = next(iter(self.unavailable.items()))
            n_requested = len(self.requested | self.unavailable.keys())
            warn(
                f"{self.source}: no picture of {len(self.unavailable):,} of the {n_requested:,}"
                f" images that were asked for; the first is '{first_id}' ({problem})"
            )

    def _fetch(self, image_id: str) -> bytes:
        if self.failures >= MAX_UNANSWERED:
            raise InputError(f"not asked for: the {MAX_UNANSWERED} before it had no answer")
        try:
            with _OPENER.open(self.address(image_id), timeout=SECONDS) as answer:
                data = answer.read(_MOST_BYTES + 1)
        except urllib.error.HTTPError as error:
            # The host answers, so other pictures may be there.
            self.failures = 0
            raise InputError(f"{error.code} {error.reason}") from error
        except (OSError, HTTPException, ValueError) as error:
            self.failures += 1
            raise InputError(f"no answer ({error})") from error
        self.failures = 0
        if len(data) > _MOST_BYTES:
            raise InputError(f"more than {_MOST_BYTES:,} bytes")
        return data


def encode_image(image: Image.Image, side: int, kind: str, quality: int) -> bytes:
    """The bytes of an image file of at most `side` pixels a side; `kind` as Pillow names it: JPEG,
    WEBP."""
    thumbnail, out = image.copy(), io.BytesIO()
    thumbnail.thumbnail((side, side), Image.Resampling.LANCZOS)
    thumbnail.save(out, kind, quality=quality)
    return out.getvalue()


def data_uri(data: bytes, suffix: str) -> str:
    """An image file as a data URI; `suffix` is its kind: png, webp.

    >>> data_uri(b"abc", "png")
    'data:image/png;base64,YWJj'
    """
    return f"data:image/{suffix};base64,{base64.b64encode(data).decode()}"


class _WithinHost(urllib.request.HTTPRedirectHandler):
    """Follows redirects that stay at the host that the user has named: another host may lie inside
    the user's network."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        source, target = urlsplit(req.full_url), urlsplit(newurl)
        schemes = (source.scheme, source.port), (target.scheme, target.port)
        is_upgrade = schemes == (("http", None), ("https", None))
        if source.hostname != target.hostname or not (
            is_upgrade or (source.scheme, source.port) == (target.scheme, target.port)
        ):
            target_name = target.netloc or newurl
            raise urllib.error.HTTPError(
                newurl,
                code,
                f"sends on to {target_name}, another host, which is not followed",
                headers,
                fp,
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_WithinHost)


def find_pictures(captions: Captions, source: str | Path) -> PictureLookup:
    """The lookup of these captions' images in `source`, matched by `match_images`. InputError where
    no image has a picture."""
    names = captions.image_files
    if str(source).startswith(SCHEMES):
        if not any(placeholder in str(source) for placeholder in _PLACEHOLDERS):
            remedy = "write {file} or {id} where the file's name or the image id stands"
            raise InputError("the same address for every image", file=str(source), remedy=remedy)
        if any(placeholder in urlsplit(str(source)).netloc for placeholder in _PLACEHOLDERS):
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
    listed = list_pictures(Path(source))
    match = match_pictures(names, listed, source)
    pictures = {image_id: listed[k] for image_id, k in match.numbers.items()}
    if not pictures:
        remedy = "give the pictures of these captions, named by image id or image_file"
        problem = f"a picture of none of the {len(names)} images of split '{captions.split}'"
        raise InputError(problem, file=source, remedy=remedy)
    not_taken = listed.reasons({image_id: names[image_id] for image_id in match.missing})
    return PictureLookup(str(source), names, pictures, not_taken=not_taken)

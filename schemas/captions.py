"""The captions table: one row a caption, in the order of the source, with its tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from schemas.params import CaptionsParams


@dataclass(frozen=True, slots=True)
class Caption:
    """One caption as a source gives it.

    `row` says where it stands in `file`, for error messages (see `InputError`). `image_file` is the image's
    file name when the source knows it, else None.
    """

    image_id: str
    caption_id: str
    split: str
    text: str
    file: str
    row: int | str
    image_file: str | None = None


class SourceReader(Protocol):
    """A source: its parameters in, captions out in file order. Checks that every source shares (duplicate ids,
    empty captions, images without captions) are the stage's; a source refuses what only it can see."""

    def __call__(self, params: CaptionsParams) -> Iterator[Caption]: ...

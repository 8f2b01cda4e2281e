"""Flickr8k.token.txt, Flickr30k's results_20130124.token, and their lists of the images of a split."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from capgrade.pipelines.sources.fields import Position, keep_splits, read_lines, source_path
from capgrade.schemas.captions import Caption
from capgrade.schemas.params import CaptionsParams

LAYOUT = "write each row as file.jpg#k, a tab, the caption"
logger = logging.getLogger(__name__)


class Listing(NamedTuple):
    """The split that a list gives an image, and where."""

    split: str
    position: Position


def read_flickr(params: CaptionsParams) -> Iterator[Caption]:
    """Captions in file order; the image id is the file name, the caption id `file.jpg#k`.

    Without `params.split_lists` everything is in `params.split`, or "all". With lists the split of a caption is
    the name of the list that has its image, and captions of images in no list are left out: 460 of Flickr8k's,
    one of them of 2258277193_586949ec62.jpg.1, a slip in the file. How many is logged.
    Raises InputError for a malformed row, an image in two lists, and a listed image without captions.
    """
    path = source_path(params)
    if not params.split_lists:
        return _captions(path, params.split or "all")
    return keep_splits(_listed(path, _read_lists(params.split_lists)), params.split, path)


def _captions(path: Path, split: str) -> Iterator[Caption]:
    for row, line in read_lines(path):
        caption_id, tab, text = line.partition("\t")
        image, hash_sign, number = caption_id.rpartition("#")
        if not tab:
            raise Position(str(path), row).refuse("no tab between the caption id and the caption", LAYOUT)
        if not (image and hash_sign and number.isdecimal()):
            raise Position(str(path), row).refuse(f"'{caption_id}' is not a file name, '#' and a number", LAYOUT)
        yield Caption(image, caption_id, split, text, str(path), row, image_file=image)


def _listed(path: Path, listings: Mapping[str, Listing]) -> Iterator[Caption]:
    bare = dict.fromkeys(listings)  # listed images without a caption so far
    left_out = 0
    for caption in _captions(path, "all"):
        listing = listings.get(caption.image_id)
        if listing is None:
            left_out += 1
            continue
        bare.pop(caption.image_id, None)
        yield replace(caption, split=listing.split)
    for image in bare:
        remedy = f"drop it from the list, or name images as {path.name} does"
        raise listings[image].position.refuse(f"image '{image}' has no caption in {path}", remedy)
    if left_out:
        logger.info("%s: %s captions left out, their images are in no list", path, f"{left_out:,}")


def _read_lists(lists: Mapping[str, str]) -> dict[str, Listing]:
    """Image -> its listing."""
    listings: dict[str, Listing] = {}
    for split, name in lists.items():
        before = len(listings)
        for row, line in read_lines(Path(name)):
            image, position = line.strip(), Position(name, row)
            if not image:
                raise position.refuse("no image in this row", "delete the empty row")
            if image in listings:
                first = listings[image].position
                problem = f"image '{image}' is already in {first.file} row {first.row}"
                raise position.refuse(problem, "keep it in one list, once")
            listings[image] = Listing(split, position)
        if len(listings) == before:
            raise Position(name).refuse("no images in this list", "write one file name per row, or leave it out")
    return listings

"""Splits for captions whose source has none."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.image_matching import composed

_REST = "train"  # the split of images that no other split takes


def divide(
    captions: Iterable[Caption], sizes: Mapping[str, float], file: str | None
) -> Iterator[Caption]:
    """The captions in their order, with a split for each image by the hash of its id, a number from
    0 to 1.

    `sizes` gives for each split a share of the images (below 1) or their number; the others are
    `train`. A share is a range of hashes, so that no other image moves when one is added; a split
    that would be empty takes the next image. A number takes the smallest hashes that are left, so
    that a new image moves at most one out of each such split. Raises InputError where the source
    has splits of its own, and where no image would be left to train on.
    """
    captions = list(captions)
    if len(splits := {caption.split for caption in captions}) > 1:
        problem = f"captions.divide for a source that has splits: {', '.join(sorted(splits))}"
        raise InputError(problem, file=file, remedy="leave captions.divide out")
    points = {caption.image_id: _point(caption.image_id) for caption in captions}
    shares = {split: size for split, size in sizes.items() if size < 1}
    counts = {split: int(size) for split, size in sizes.items() if size >= 1}
    split_of = dict[str, str]()
    start = 0.0
    for split, size in shares.items():
        free = sorted(points.keys() - split_of.keys(), key=lambda one: (points[one] - start) % 1)
        taken = [one for one in free if start <= points[one] < start + size]
        split_of |= dict.fromkeys(taken or free[:1], split)
        start += size
    for split, count in counts.items():
        free = sorted(points.keys() - split_of.keys(), key=points.__getitem__)
        split_of |= dict.fromkeys(free[:count], split)
    wanted = sum(counts.values()) + max(1, len(shares))
    if start >= 1 or wanted > len(points) or len(split_of) == len(points):
        asked = ", ".join(f"{split} {size:g}" for split, size in sizes.items())
        problem = f"captions.divide asks for {asked}, of {len(points):,} images"
        raise InputError(problem, file=file, remedy="leave some to train on")
    for caption in captions:
        yield replace(caption, split=split_of.get(caption.image_id, _REST))


def _point(image_id: str) -> float:
    """The hash of an id, evenly spread from 0 to 1."""
    name = composed(image_id).encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest()) / 2**64

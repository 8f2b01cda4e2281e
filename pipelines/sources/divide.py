"""Splits for captions whose source has none."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError

_REST = "train"  # the split of images that no other split takes


def divide(
    captions: Iterable[Caption], sizes: Mapping[str, float], file: str | None
) -> Iterator[Caption]:
    """The captions in their order, with a split for each image that its id's hash alone decides.

    `sizes` gives for each split a share of the images (below 1) or their number. The other images
    are `train`. Raises InputError where the source has splits of its own, and where no image would
    be left to train on.
    """
    captions = list(captions)
    if len(splits := {caption.split for caption in captions}) > 1:
        problem = f"captions.divide for a source that has splits: {', '.join(sorted(splits))}"
        raise InputError(problem, file=file, remedy="leave captions.divide out")
    images = sorted({caption.image_id for caption in captions}, key=_hash_id)
    counts = {
        split: max(1, round(size * len(images))) if size < 1 else int(size)
        for split, size in sizes.items()
    }
    if sum(counts.values()) >= len(images):
        problem = f"captions.divide asks for {sum(counts.values()):,} of {len(images):,} images"
        raise InputError(problem, file=file, remedy="leave some to train on")
    remaining, split_of = iter(images), dict[str, str]()
    for split, count in counts.items():
        split_of |= {next(remaining): split for _ in range(count)}
    for caption in captions:
        yield replace(caption, split=split_of.get(caption.image_id, _REST))


def _hash_id(image_id: str) -> bytes:
    return hashlib.blake2b(image_id.encode(), digest_size=8).digest()

"""Splits for captions whose source has none."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError

_REST = "train"  # what is in no other split


def divide(
    captions: Iterable[Caption], sizes: Mapping[str, float], file: str | None
) -> Iterator[Caption]:
    """The captions in their order, those of each image in one split: of `sizes` a share below 1 of
    the images, or so many images; the others are `train`. Which image goes where is decided by a
    hash of its id alone.

    Raises InputError where the source has splits of its own, and where no image would be left to
    train on.
    """
    read = list(captions)
    if len(names := {caption.split for caption in read}) > 1:
        problem = f"captions.divide for a source that has splits: {', '.join(sorted(names))}"
        raise InputError(problem, file=file, remedy="leave captions.divide out")
    images = sorted({caption.image_id for caption in read}, key=_hashed)
    counts = {
        split: max(1, round(size * len(images))) if size < 1 else int(size)
        for split, size in sizes.items()
    }
    if sum(counts.values()) >= len(images):
        problem = f"captions.divide asks for {sum(counts.values()):,} of {len(images):,} images"
        raise InputError(problem, file=file, remedy="leave some to train on")
    left, split_of = iter(images), dict[str, str]()
    for split, count in counts.items():
        split_of |= {next(left): split for _ in range(count)}
    yield from (replace(caption, split=split_of.get(caption.image_id, _REST)) for caption in read)


def _hashed(image_id: str) -> bytes:
    return hashlib.blake2b(image_id.encode(), digest_size=8).digest()

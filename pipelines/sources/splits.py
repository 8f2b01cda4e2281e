"""Keeping the split asked for, or several joined by "+"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError


def keep_splits(captions: Iterable[Caption], split: str | None, file: str | Path) -> Iterator[Caption]:
    """The captions of `split`, say "test" or "train+restval", in their order; all of them for None.

    Splits keep the names they have in the source. All of `captions` is read, so its own checks run to the end.
    Raises InputError when a split asked for never came.
    """
    if split is None:
        yield from captions
        return
    read = list(captions)
    if not read:
        return  # the stage says that there are no captions
    known = list(dict.fromkeys(caption.split for caption in read))
    wanted = [split] if split in known else split.split("+")  # a split may itself be called "train+restval"
    missing = [part for part in wanted if part not in known]
    if missing:
        remedy = f"choose with --split from: {', '.join(known)}"
        raise InputError(f"no split '{missing[0]}'", file=file, remedy=remedy)
    yield from (caption for caption in read if caption.split in wanted)

"""Keeping the split asked for, or several joined by "+"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from schemas.captions import Caption
from schemas.errors import InputError


def keep_splits(captions: Iterable[Caption], split: str | None, file: str | Path) -> Iterator[Caption]:
    """The captions of `split`, say "test" or "train+restval", in their order; all of them for None.

    Splits keep the names they have in the source. All of `captions` is read, so its own checks run to the end.
    Raises InputError, after the last caption, when a split asked for never came.
    """
    if split is None:
        yield from captions
        return
    wanted = {split, *split.split("+")}  # a split may itself be called "train+restval"
    seen: dict[str, None] = {}
    for caption in captions:
        seen[caption.split] = None
        if caption.split in wanted:
            yield caption
    missing = [] if split in seen else [part for part in split.split("+") if part not in seen]
    if missing:
        known = ", ".join(seen) or "none"
        raise InputError(f"no split '{missing[0]}'", file=file, remedy=f"choose with --split from: {known}")

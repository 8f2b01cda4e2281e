"""Entries of a leaderboard: a folder each, with a card and a model's scores or embeddings."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from capgrade.schemas.block import ParamsBlock, validated
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST
from capgrade.schemas.params import read_yaml

CARD = "entry.yaml"
_SCORES, _IMAGES, _CAPTIONS = "similarity", "images", "captions"
_GIVE = f"put {_SCORES}.npy there, or {_IMAGES}.npy and {_CAPTIONS}.npy, as `evaluate` reads them"


class EntryCard(ParamsBlock):
    """What an entry says of itself."""

    name: str | None = None
    """what the board calls it; its folder's name unless given"""
    model: str = ""
    """what it is, in a few words"""
    by: str = ""
    """who made it"""
    date: datetime.date | None = None
    link: Annotated[str, Field(pattern="^https?://")] | None = None
    """a page about it"""
    captions: Annotated[str, Field(pattern="^[0-9a-f]{12,64}$")] | None = None
    """the digest of the captions that it was scored on, or how that begins"""


@dataclass(frozen=True)
class Entry:
    """A folder with a card, and in it either one file of scores or two of embeddings."""

    folder: Path
    card: EntryCard
    similarity: Path | None
    embeddings: tuple[Path, Path] | None  # of images, of captions

    @property
    def name(self) -> str:
        """What the board calls it."""
        return self.card.name or self.folder.name


def read_board(board: Path) -> list[Entry]:
    """The entries in the folders of a folder, by their folders' names; those of stages, such as
    captions, are no entries. InputError for a folder without any, for one with scores and no card,
    for a card or files that are not right, and for two entries of one name."""
    entries: dict[str, Entry] = {}
    for folder in sorted(path for path in board.glob("*") if path.is_dir()):
        if not (folder / CARD).is_file():
            if _found(folder, _SCORES, _IMAGES) and not (folder / MANIFEST).is_file():
                remedy = f"write {CARD} there, with a name"
                raise InputError("an entry without a card", file=folder, remedy=remedy)
            continue
        entry = _read_entry(folder)
        if entry.name in entries:
            problem = f"'{entry.name}' is the name of {entries[entry.name].folder.name} too"
            raise InputError(problem, file=folder / CARD, remedy="give each entry its own name")
        entries[entry.name] = entry
    if not entries:
        remedy = f"give a folder with a folder for each entry: {CARD}, and scores or embeddings"
        raise InputError("no entries here", file=board, remedy=remedy)
    return [*entries.values()]


def _read_entry(folder: Path) -> Entry:
    card = validated(EntryCard, read_yaml(folder / CARD), file=folder / CARD)
    scores = _found(folder, _SCORES)
    tables = [*_found(folder, _IMAGES), *_found(folder, _CAPTIONS)]
    if len(scores) == 1 and not tables:
        return Entry(folder, card, scores[0], None)
    if not scores and [path.stem for path in tables] == [_IMAGES, _CAPTIONS]:
        return Entry(folder, card, None, (tables[0], tables[1]))
    there = ", ".join(path.name for path in [*scores, *tables]) or "no scores"
    raise InputError(f"an entry with {there}", file=folder, remedy=_GIVE)


def _found(folder: Path, *stems: str) -> Sequence[Path]:
    return sorted(path for path in folder.iterdir() if path.stem in stems and path.is_file())

"""What a leaderboard shows: entries with their numbers, on one set of captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from capgrade.apps.leaderboard.entries import Entry
from capgrade.comparison import Column
from capgrade.schemas.captions import Captions


@dataclass(frozen=True)
class Standing:
    """An entry with its numbers: values, groups and intervals by direction and metric."""

    entry: Entry
    values: Mapping[Column, float]
    intervals: Mapping[Column, Sequence[float]]
    groups: Mapping[Column, int]
    notes: Sequence[str]

    def json(self) -> dict[str, Any]:
        """The numbers by i2t/recall@1, null where no query has a value."""
        keys = {column: "/".join(filter(None, column)) for column in self.values}
        return {
            "folder": self.entry.folder.name,
            "values": {
                key: None if (value := self.values[column]) != value else value
                for column, key in keys.items()
            },
            "intervals": {
                key: list(self.intervals[column])
                for column, key in keys.items()
                if column in self.intervals
            },
            "groups": {
                key: self.groups[column] for column, key in keys.items() if column in self.groups
            },
        }


@dataclass(frozen=True)
class Board:
    """Entries on one set of captions, and what they were evaluated by."""

    standings: Mapping[str, Standing]  # by name
    captions: Captions
    inputs: Mapping[str, str]  # digests of captions and labels, by what they are
    evaluated: int  # how many were evaluated now; the others had been

    def json(self) -> dict[str, Any]:
        """Every number, and the digests of the labels."""
        return {
            "entries": {name: one.json() for name, one in self.standings.items()},
            "images": self.captions.n_images,
            "captions": self.captions.n_captions,
            "inputs": dict(self.inputs),
            "evaluated": self.evaluated,
        }

"""What a published folder is made from and holds: one value that flows from the tables to the card and Croissant."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from capgrade.labels.named import base_names
from capgrade.measures.own_pairs import LEFT_OUT
from capgrade.pipelines.publish.columns import Calibrated, meaning
from capgrade.pipelines.publish.tables import Table
from capgrade.schemas.captions import Captions
from capgrade.schemas.files import read_manifest
from capgrade.schemas.params import PublishParams
from capgrade.schemas.shards import Shards

MANIFEST, CARD, CROISSANT, SUMS = "manifest.json", "README.md", "croissant.json", "SHA256SUMS"
PICTURE = "figures/distributions.png"
FOLDERS = ("captions", "relevance", "figures")  # nothing else belongs in them


@dataclass(frozen=True)
class Split:
    """The captions and shards of one split, and the tables they became."""

    captions: Captions
    shards: Shards
    tables: tuple[Table, Table]  # relevance, captions

    @property
    def name(self) -> str:
        """As `datasets` accepts it."""
        return self.tables[0].split


@dataclass(frozen=True)
class Contents:
    """Everything that the card and the Croissant metadata are written from."""

    params: PublishParams
    folder: Path
    captions_dir: Path
    splits: tuple[Split, ...]
    files: dict[str, dict[str, Any]]  # name -> rows, bytes, sha256 of each table
    agreement: dict[str, Any] | None = None
    relevance_dir: Path | None = None
    calibrated: Calibrated | None = None

    @property
    def measures(self) -> list[str]:
        """In the order of the columns."""
        return self.splits[0].shards.measures

    @property
    def pairs(self) -> int:
        """Pairs of all splits."""
        return sum(table.rows for table in self.tables("relevance"))

    def tables(self, config: str) -> list[Table]:
        """The tables of a config, `captions` or `relevance`, one per split."""
        return [table for split in self.splits for table in split.tables if table.config == config]

    @property
    def used(self) -> dict[str, Any]:
        """The parameters of each measure, without the folders of this machine."""
        return base_names(self.splits[0].shards.metadata["params"]["measures"])

    @property
    def left_out(self) -> list[str]:
        """The measures that have a column of own pairs without the caption among its references."""
        return [name for name in self.measures if name + LEFT_OUT in self.tables("relevance")[0].schema.names]

    def meaning(self, column: str) -> str:
        """What a column of the relevance table holds, in words."""
        if self.calibrated and column in self.calibrated.columns:
            return self.calibrated.meaning(column)
        return meaning(column, self.used)

    @cached_property
    def captions_params(self) -> dict[str, Any]:
        """How the captions were made, without the folders of this machine."""
        return base_names(read_manifest(self.captions_dir, "captions")["params"])

    @cached_property
    def relevance_params(self) -> dict[str, Any] | None:
        """How dense relevance was made; None where there is none."""
        return base_names(read_manifest(self.relevance_dir, "relevance")["params"]) if self.relevance_dir else None

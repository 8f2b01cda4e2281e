"""What a published folder is made from and holds: one value that flows from the tables to the card and Croissant."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.publish.names import base_names
from pipelines.publish.tables import Table
from schemas.captions import Captions
from schemas.files import read_manifest
from schemas.params import PublishParams
from schemas.shards import Shards

MANIFEST, CARD, CROISSANT, SUMS = "manifest.json", "README.md", "croissant.json", "SHA256SUMS"
PICTURE = "figures/distributions.png"
FOLDERS = ("captions", "relevance", "figures")  # nothing else belongs in them
MEANING = {
    "cider": "CIDEr-D of the caption with the image's reference captions, 0..10, as pycocoevalcap computes it",
    "rouge_l": "ROUGE-L of the caption with the image's reference captions, 0..1",
    "sbert": "cosine of Sentence-BERT embeddings of the caption and the image's reference captions, -1..1",
    "meteor": "METEOR 1.5 of the caption with the image's reference captions, 0..1",
    "bleu": "BLEU of the caption with the image's reference captions",
    "cider_plain": "CIDEr without CIDEr-D's clipping and length penalty, of the caption with the image's references",
    "tfidf_cosine": "cosine of tf-idf word vectors of the caption and the image's reference captions",
}
COLUMNS = {
    "image_id": "the image's id in the source",
    "caption_id": "the caption's id in the source",
    "original": "the caption was written for this image",
    "reasons": "why the pair was kept: `own` caption, among the highest (`top_*`), drawn from a window of a measure's "
    "range (`window_*`), drawn uniformly (`uniform`)",
    "weight": "1 / probability of being kept: `sum(weight * x) / captions` over an image's rows estimates the mean of "
    "x over all captions without bias",
    "caption": "the caption as the source has it",
    "tokens": "the caption's words as the measures see them",
    "image_file": "the image's file name, where the source knows it",
}


@dataclass(frozen=True)
class Split:
    """The captions and shards of one split, and the tables they became."""

    captions: Captions
    shards: Shards
    tables: tuple[Table, Table]  # relevance, captions

    @property
    def name(self) -> str:
        return self.tables[0].split


@dataclass(frozen=True)
class Contents:
    """Everything that the card and the Croissant metadata are written from."""

    params: PublishParams
    captions_dir: Path
    splits: tuple[Split, ...]
    files: dict[str, dict[str, Any]]  # name -> rows, bytes, sha256 of each table
    agreement: dict[str, Any] | None = None
    relevance_dir: Path | None = None

    @property
    def measures(self) -> list[str]:
        return self.splits[0].shards.measures

    @property
    def pairs(self) -> int:
        return sum(table.rows for table in self.tables("relevance"))

    def tables(self, config: str) -> list[Table]:
        return [table for split in self.splits for table in split.tables if table.config == config]

    def meaning(self, column: str) -> str:
        known = COLUMNS.get(column) or MEANING.get(column)
        return known or _other(self.splits[0].shards.metadata["params"]["measures"][column])

    @cached_property
    def captions_params(self) -> dict[str, Any]:
        return base_names(read_manifest(self.captions_dir, "captions")["params"])

    @cached_property
    def relevance_params(self) -> dict[str, Any] | None:
        return base_names(read_manifest(self.relevance_dir, "relevance")["params"]) if self.relevance_dir else None


def _other(used: dict[str, Any]) -> str:
    """What an imported measure or a mixture is, from the parameters it was made with."""
    if "weights" in used:
        return "weighted sum: " + " + ".join(f"{weight:.3g} {name}" for name, weight in used["weights"].items())
    return "relevance that another program computed"

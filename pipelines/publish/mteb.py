"""The layout `mteb`: a retrieval benchmark in both directions, as mteb's loaders read it, with grades of one measure.

Subsets are t2i and i2t, each with configs corpus, queries and qrels (query-id, corpus-id, score int32), and gains
(query-id, corpus-id, gain float64), the values themselves: github.com/embeddings-benchmark/mteb/pull/5516.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from capgrade.labels import Labels
from capgrade.labels.named import base_names
from capgrade.labels.published import hub_split, measures_block
from capgrade.labels.stored import Sampled
from capgrade.metrics.runs import reached
from capgrade.pipelines.publish.card import JUDGED, rendered, set_options
from capgrade.pipelines.publish.columns import meaning
from capgrade.pipelines.publish.tables import ROW_GROUP, Described, PublishedTable, write_parquet
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, parse_manifest
from capgrade.schemas.params import PublishParams

MEANINGS = {
    "id": "the image's or the caption's id in the source",
    "image_file": "the image's file name in the source",
    "text": "the caption as the source has it",
    "query-id": "id of the query",
    "corpus-id": "id of the item of the corpus",
    "score": "the grade: how many thresholds the value reaches",
}


@dataclass(frozen=True)
class BenchmarkSplit:
    """The labels of one split, what made them, and the tables they became."""

    labels: Labels
    manifest: dict[str, Any]  # of the folder that they are from
    tables: tuple[PublishedTable, ...]

    @property
    def captions(self) -> Captions:
        """Their table."""
        return self.labels.table

    @property
    def name(self) -> str:
        """As `datasets` accepts it."""
        return hub_split(self.captions.split)

    @property
    def kind(self) -> str:
        """The stage that made them: relevance or shards."""
        return str(self.manifest["kind"])

    @property
    def known(self) -> int:
        """Pairs whose value is known."""
        stored = self.labels.stored
        whole = self.captions.n_images * self.captions.n_captions
        return int(stored.sizes.sum()) if isinstance(stored, Sampled) else whole


@dataclass(frozen=True)
class Benchmark(Described):
    """Queries, items and grades of both directions."""

    splits: tuple[BenchmarkSplit, ...]

    @property
    def captions(self) -> list[Captions]:
        return [split.captions for split in self.splits]

    @property
    def measures(self) -> list[str]:
        return [self.splits[0].labels.chosen(self.params.measure)]

    @property
    def used(self) -> dict[str, Any]:
        """The parameters of the measure, without the folders of this machine."""
        return base_names({name: self.splits[0].manifest["params"]["measures"][name] for name in self.measures})

    @property
    def package(self) -> str:
        return str(self.splits[0].manifest["package"])

    @property
    def pairs(self) -> int:
        return sum(table.rows for way in ("t2i", "i2t") for table in self.tables(f"{way}-qrels"))

    def rows(self, config: str, split: str) -> int:
        """Of a config and split."""
        return next(table.rows for table in self.tables(config) if table.split == split)

    @property
    def row(self) -> str:
        return f"A retrieval benchmark in both directions, with grades by {self.measures[0]}."

    @property
    def kept(self) -> str:
        return f"pairs that reach the first threshold ({next(iter(self.params.grades.values())):g}) were kept"

    @property
    def absent(self) -> str:
        if all(not split.labels.stored.sampled for split in self.splits):
            return "A pair that is absent is below the first threshold, and mteb counts it as 0."
        return (
            "mteb counts a pair that is absent as 0, also one that was not sampled: scores are of the sampled pairs "
            "alone, and dense labels are the right source."
        )

    def meaning(self, column: str) -> str:
        if column == "gain":
            return f"the value, at least 0: {meaning(self.measures[0], self.used)}"
        return MEANINGS[column]


def benchmark_labels(folder: Path, captions_dir: Path) -> Labels:
    """Those of one split, that `shards` or `relevance` made. InputError for other folders and captions."""
    kind = parse_manifest(folder / MANIFEST)["kind"]
    if kind not in ("shards", "relevance"):
        raise InputError(f"a {kind} folder", file=folder, remedy="give a folder of capgrade relevance or shards")
    return Labels.load(folder, captions=captions_dir)


def write_split(labels: Labels, out: Path, params: PublishParams) -> BenchmarkSplit:
    """Write its tables. InputError where the labels do not have the measure."""
    tables = tuple(_tables(labels, labels.table, out, params))
    return BenchmarkSplit(labels, parse_manifest(Path(labels.file) / MANIFEST), tables)


def _tables(labels: Labels, captions: Captions, out: Path, params: PublishParams) -> Iterator[PublishedTable]:
    split = hub_split(captions.split)
    first = np.unique(captions.owner, return_index=True)[1]
    files = captions.table["image_file"].take(pa.array(first)).combine_chunks()
    named = {} if files.null_count else {"image_file": files}  # mteb's loader refuses a null
    image = pa.table({"id": pa.array(captions.image_ids, pa.string()), **named})
    text = pa.table({"id": captions.table["caption_id"], "text": captions.table["caption"]})
    items = {"images": _written(image, "images", split, out), "texts": _written(text, "texts", split, out)}
    image_row, caption_row, values = _pairs(labels, params)
    grades = reached(values, list(params.grades.values())).astype(np.int32)
    ids = (
        image["id"].combine_chunks().take(pa.array(image_row)),
        text["id"].combine_chunks().take(pa.array(caption_row)),
    )
    for way, (queries, corpus) in {"t2i": ("texts", "images"), "i2t": ("images", "texts")}.items():
        yield PublishedTable(f"{way}-corpus", *items[corpus])
        yield PublishedTable(f"{way}-queries", *items[queries])
        order = pa.array(np.argsort(caption_row, kind="stable") if way == "t2i" else np.arange(len(values)))
        pair = dict(zip(("query-id", "corpus-id"), ids[::-1] if way == "t2i" else ids, strict=True))
        for config, column in (("qrels", {"score": grades}), ("gains", {"gain": np.maximum(values, 0.0)})):
            table = pa.table({**pair, **column}).take(order)
            yield PublishedTable(f"{way}-{config}", *_written(table, f"{way}-{config}", split, out))


def _pairs(labels: Labels, params: PublishParams) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images, captions and values float64 of what reaches the first threshold, and of every own pair that is known."""
    measure, edges = labels.chosen(params.measure), list(params.grades.values())[:1]
    images, captions, values = [], [], []
    for image in range(len(labels.image_ids)):
        found, value = labels.known_of(image, measure)
        kept = (reached(value, edges) > 0) | (labels.owner[found] == image)
        images.append(np.full(kept.sum(), image))
        captions.append(found[kept])
        values.append(value[kept].astype(np.float64))
    return np.concatenate(images), np.concatenate(captions), np.concatenate(values)


def _written(table: pa.Table, folder: str, split: str, out: Path) -> tuple[str, pa.Schema, dict[str, int], int]:
    name = f"{folder}/{split}-00000-of-00001.parquet"
    rows, nbytes = write_parquet(out / name, table.schema, iter(table.combine_chunks().to_batches(ROW_GROUP)))
    return split, table.schema, {name: rows}, nbytes


def benchmark_card(contents: Benchmark) -> str:
    """README.md of the layout, whose header tells mteb and `datasets` the configs."""
    params = [base_names(split.manifest["params"]) for split in contents.splits]
    made = [{**block, "measures": measures_block(block["measures"])} for block in params]
    blocks = {"captions": contents.captions_params, **made[0], "publish": contents.params.model_dump(mode="json")}
    lines, given = ["capgrade captions --params params.yaml --out captions"], []
    for split, block in zip(contents.splits, made, strict=True):
        sets, folder = set_options(made[0], block), f"{split.kind}-{split.name}"
        lines.append(f"capgrade {split.kind} --params params.yaml --captions captions{sets} --out {folder}")
        given.append(f"--{split.kind} {folder}")
    if contents.agreement:
        lines.append(JUDGED)
        given.append("--agreement agreement.json")
    lines.append(f"capgrade publish --params params.yaml --captions captions {' '.join(given)} --out dataset")
    return rendered(
        "mteb.md.j2", contents, tokenizer=contents.captions[0].tokenizer, calibrated=None, dense=None,
        commands=lines, parameters=yaml.safe_dump(blocks, sort_keys=False, allow_unicode=True).rstrip("\n"),
    )  # fmt: skip

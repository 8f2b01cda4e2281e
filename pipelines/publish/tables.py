"""The tables of a published dataset as Parquet, and what a published folder holds.

Tables are of captions, and of pairs with their values. The card, Croissant metadata and manifest
are written from `Contents`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from capgrade.agreement.calibration import load
from capgrade.labels import Labels
from capgrade.labels.named import base_names
from capgrade.labels.published import CAPTIONS_SCHEMA, hub_split
from capgrade.labels.stored import Sampled
from capgrade.pipelines.publish.columns import Calibrated, meaning
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic, entry_of, of_all
from capgrade.schemas.inputs import file_digest
from capgrade.schemas.own_pairs import LEFT_OUT
from capgrade.schemas.params import PublishParams
from capgrade.schemas.shards import read_shards

FIGURE = "figures/distributions.png"
# As `datasets` writes them: of a file that changed, the hub takes the chunks that did, and a reader
# finds its rows. A chunk is up to 1 MiB of one column, so small groups of rows would leave nothing
# to share: where rows are put in, every group's ends change.
ROW_GROUP = 2**20
AS_DATASETS: dict[str, Any] = {
    "compression": "zstd",
    "use_content_defined_chunking": True,
    "write_page_index": True,
}
PARQUET_ROWS = 4_000_000  # pairs per file, about 60 MB


@dataclass(frozen=True)
class PublishedTable:
    """One split of one config, as written.

    `files` has the rows of each file, `nbytes` the bytes that the split has in memory.
    """

    config: str
    split: str
    schema: pa.Schema
    files: dict[str, int]
    nbytes: int

    @property
    def rows(self) -> int:
        return sum(self.files.values())


def write_table(table: pa.Table, config: str, folder: str, split: str, out: Path) -> PublishedTable:
    name = f"{folder}/{split}-00000-of-00001.parquet"
    rows, nbytes = write_parquet(out / name, table.schema, iter(table.to_batches(ROW_GROUP)))
    return PublishedTable(config, split, table.schema, {name: rows}, nbytes)


def write_pairs(
    labels: Labels,
    pairs: int,
    out: Path,
    own: dict[str, np.ndarray],
    calibrated: Calibrated | None = None,
) -> PublishedTable:
    """Write so many pairs of shards, over as many files as their number needs.

    They are in the order of images and captions. `own` has float32 [n_captions] by measure: own
    pairs without the caption among its references. InputError when two columns have one name.
    """
    split, n_files = hub_split(labels.table.split), max(1, -(-pairs // PARQUET_ROWS))
    beside = [*(name + LEFT_OUT for name in own), *(calibrated.columns if calibrated else [])]
    if taken := sorted(set(beside) & set(labels.measures)):
        remedy = "call the imported measure otherwise, or leave --calibration out"
        raise InputError(f"measure '{taken[0]}' has the name of a column", remedy=remedy)
    batches, files, nbytes = _pair_batches(labels, own, calibrated), {}, 0
    first = next(batches)
    batches = chain([first], batches)
    for k in range(n_files):
        name = f"relevance/{split}-{of_all(k, n_files)}.parquet"
        most = None if k == n_files - 1 else PARQUET_ROWS
        files[name], size = write_parquet(out / name, first.schema, batches, most)
        nbytes += size
    if sum(files.values()) != pairs:
        raise InputError(
            f"{sum(files.values())} pairs where the manifest says {pairs}", file=labels.file
        )
    return PublishedTable("relevance", split, first.schema, files, nbytes)


def _pair_batches(
    labels: Labels, own: dict[str, np.ndarray], calibrated: Calibrated | None
) -> Iterator[pa.RecordBatch]:
    stored = labels.stored
    assert isinstance(stored, Sampled)
    image_ids = pa.array(labels.image_ids)
    caption_ids = labels.table.table["caption_id"].combine_chunks()
    names = pa.array(stored.reasons)
    for part, (image, caption) in zip(stored.parts, stored.kept_pairs(), strict=True):
        original = labels.owner[caption] == image
        without = {name + LEFT_OUT: values[caption] for name, values in own.items()}
        bits = (part.reasons[:, None] >> np.arange(len(names), dtype=np.uint32)) & 1
        offsets, which = np.concatenate([[0], np.cumsum(bits.sum(axis=1))]), np.nonzero(bits)[1]
        columns = {
            "image_id": image_ids.take(pa.array(image)),
            "caption_id": caption_ids.take(pa.array(caption)),
            "original": pa.array(original),
            **{name: pa.array(values, from_pandas=True) for name, values in part.values.items()},
            **{
                name: pa.array(values, mask=~original | np.isnan(values))
                for name, values in without.items()
            },
            **(calibrated.of_pairs(part.values) if calibrated else {}),
            "reasons": pa.ListArray.from_arrays(
                pa.array(offsets, pa.int32()), names.take(pa.array(which))
            ),
            "weight": pa.array(part.weights),
        }
        yield pa.record_batch(columns)


def write_parquet(
    path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch], most: int | None = None
) -> tuple[int, int]:
    """Write batches until there are none, or `most` rows are reached, in groups of ROW_GROUP.

    Returns the rows written and their bytes in memory.
    """
    rows = nbytes = 0
    waiting = schema.empty_table()
    with atomic(path) as temporary, pq.ParquetWriter(temporary, schema, **AS_DATASETS) as writer:
        for batch in batches:
            waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])])
            while waiting.num_rows >= ROW_GROUP:
                writer.write_table(waiting.slice(0, ROW_GROUP), row_group_size=ROW_GROUP)
                waiting = waiting.slice(ROW_GROUP)
            rows, nbytes = rows + batch.num_rows, nbytes + batch.nbytes
            if most is not None and rows >= most:
                break
        if waiting.num_rows:
            writer.write_table(waiting, row_group_size=ROW_GROUP)
    return rows, nbytes


def own_without_themselves(labels: Labels) -> dict[str, np.ndarray]:
    """float32 [n_captions] by measure: own pairs without the caption among its references.

    These are of measures that scored them with it; NaN where an image has no other caption. A
    matrix that was imported, and a mixture with one, has none. Raises InputError for shards that
    were made before these values were stored with them.
    """
    shards, by_measure = read_shards(Path(labels.file)), {}
    if not shards.has_left_out:
        problem = "made before shards had the values of own captions without themselves"
        remedy = (
            "make the shards again, or publish without these values: --set publish.left_out=false"
        )
        raise InputError(problem, file=shards.folder, remedy=remedy)
    for name, params in (labels.made_with or {}).items():
        parts = params["measures"].values() if "weights" in params else [params]
        values = shards.left_out(name)
        if values is not None and any(
            part.get("self_reference", "included") == "included" for part in parts
        ):
            by_measure[name] = values
    return by_measure


@dataclass(frozen=True)
class PublishedSplit:
    """A split's labels, with their folder's manifest and the tables that were written.

    `known` is how many pairs' values are known.
    """

    labels: Labels
    manifest: dict[str, Any]
    tables: tuple[PublishedTable, ...]
    known: int

    @property
    def captions(self) -> Captions:
        return self.labels.table

    @cached_property
    def params(self) -> dict[str, Any]:
        """How the labels were made, without the folders of this machine."""
        return base_names(self.manifest["params"])

    @property
    def name(self) -> str:
        """The split's name, as `datasets` accepts it."""
        return self.tables[0].split

    @property
    def kind(self) -> str:
        """The stage that made the labels: shards or relevance."""
        return str(self.manifest["kind"])


@dataclass(frozen=True)
class Contents:
    """What the card, the Croissant metadata and the manifest are written from, whatever the layout.

    `row`, `kept` and `absent` say what a row is, which pairs are there, and what it means that one
    is not; `meaning` gives a column in words.
    """

    params: PublishParams
    out: Path
    splits: tuple[PublishedSplit, ...]
    measures: list[str]
    row: str
    kept: str
    absent: str
    meaning: Callable[[str], str]
    read: dict[str, str] = field(default_factory=dict)  # digests of what the measures read
    calibrated: Calibrated | None = None
    agreement: dict[str, Any] | None = None
    captions_manifest: dict[str, Any] = field(default_factory=dict)
    relevance_manifest: dict[str, Any] | None = None

    @cached_property
    def files(self) -> dict[str, dict[str, Any]]:
        """Rows, bytes and digest of each table's file."""
        rows = {
            name: count
            for split in self.splits
            for table in split.tables
            for name, count in table.files.items()
        }
        return {name: entry_of(self.out / name, rows=rows[name]) for name in sorted(rows)}

    @property
    def configs(self) -> list[str]:
        """Names of the configs, the default one first."""
        return [table.config for table in self.splits[0].tables]

    def tables(self, config: str) -> list[PublishedTable]:
        """The tables of a config, one per split."""
        return [table for split in self.splits for table in split.tables if table.config == config]

    @property
    def introduction(self) -> str:
        """The first paragraphs: the user's description, and what a row is."""
        text = f"How relevant captions are to images they were not written for. {self.row}"
        return f"{self.params.description}\n\n{text}" if self.params.description else text

    @property
    def pairs(self) -> int:
        pairs = ("relevance", "t2i-qrels", "i2t-qrels")
        return sum(table.rows for config in pairs for table in self.tables(config))

    @property
    def used(self) -> dict[str, Any]:
        return {name: self.splits[0].params["measures"][name] for name in self.measures}

    @property
    def left_out(self) -> list[str]:
        """The measures that have a column of own pairs without the caption among its references."""
        return [
            name
            for name in self.measures
            if name + LEFT_OUT in self.splits[0].tables[0].schema.names
        ]

    @property
    def captions_counts(self) -> list[str]:
        """Sentences on captions that were left out, by reason, and on those that repeat another."""
        manifest = self.captions_manifest
        counts = [
            f"{count:,} {reason} were left out"
            for reason, count in manifest.get("left_out", {}).items()
        ]
        if twins := manifest.get("duplicates"):
            counts.append(
                f"{twins:,} captions repeat another caption of their image word for word: their"
                " `*_left_out` values are of a reference that is the caption's twin"
            )
        return counts

    @property
    def captions_params(self) -> dict[str, Any]:
        """How the captions were made, without the folders of this machine."""
        return base_names(self.captions_manifest["params"])

    @property
    def relevance_params(self) -> dict[str, Any] | None:
        """How dense relevance was made; None where there is none."""
        return self.relevance_manifest and base_names(self.relevance_manifest["params"])


def sampled_pairs(
    labels: Sequence[tuple[Labels, dict[str, Any]]],
    out: Path,
    params: PublishParams,
    calibration: Path | None,
) -> Contents:
    """Write the layout `pairs` of each split's labels with their folder's manifest.

    InputError for splits of other measures or columns, and as `own_without_themselves`.
    """
    splits: list[PublishedSplit] = []
    calibrated: Calibrated | None = None
    read: dict[str, str] = {}  # digests of the files that the measures read
    names = labels[0][0].measures
    for one, manifest in labels:
        folder = Path(one.file)
        if one.measures != names:
            remedy = "make their shards with the same --measures"
            raise InputError("the splits have different measures", file=folder, remedy=remedy)
        files = {key: sha for key, sha in one.inputs.items() if key not in ("captions", "split")}
        if splits and files != read:
            problem = "its measures read other files than the first split's"
            remedy = "make the shards of all splits with the same files"
            raise InputError(problem, file=folder, remedy=remedy)
        read = files
        own = own_without_themselves(one) if params.left_out else {}
        if calibration:
            fitting = load(calibration).fitting(one.owner)
            known = fitting.of(one.made_with or {}, folder, calibration)  # those that both have
            calibrated = Calibrated(calibration.name, file_digest(calibration), known)
        pairs = write_pairs(one, manifest["pairs"], out, own, calibrated)
        texts = pa.Table.from_batches(
            one.table.table.select(CAPTIONS_SCHEMA.names).to_batches(), CAPTIONS_SCHEMA
        )
        tables = pairs, write_table(texts, "captions", "captions", pairs.split, out)
        if splits and tables[0].schema != splits[0].tables[0].schema:
            remedy = "make their shards with the same self_reference"
            raise InputError("the splits have different columns", file=folder, remedy=remedy)
        splits.append(PublishedSplit(one, manifest, tables, manifest["pairs"]))
    used = splits[0].params["measures"]
    return Contents(
        params,
        out,
        tuple(splits),
        names,
        row="Each row of `relevance` is an image and a caption with their graded relevance by "
        f"{len(names)} measure(s): {', '.join(names)}.",
        kept="a sample of the pairs was kept, each with the probability of being drawn",
        absent="A pair that is absent was not sampled, which does not make it irrelevant.",
        meaning=lambda column: meaning(column, used, calibrated),
        read=read,
        calibrated=calibrated,
    )

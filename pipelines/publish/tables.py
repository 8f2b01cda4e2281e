"""The tables of a published dataset: what their columns mean, and their Parquet files.

The card, Croissant metadata and manifest are written from `Contents`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from capgrade.agreement.calibration import (
    ACCEPTED,
    SCORE,
    SHIPPED,
    Calibration,
    alike,
    load_calibration,
)
from capgrade.labels import Labels
from capgrade.labels.digests import text_digest
from capgrade.labels.layout import DIGEST
from capgrade.labels.opening import CAPTIONS_SCHEMA, IDS_SCHEMA
from capgrade.labels.stored import Sampled
from capgrade.measures.refit import meaning_of
from capgrade.pictures.picture import Picture
from capgrade.pipelines.publish.pictures import Embedded
from capgrade.pipelines.stages.publish import PublishParams
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic, entry_of, file_digest, of_all
from capgrade.schemas.pairs import LEFT_OUT
from capgrade.schemas.shards import read_shards

COLUMNS = {
    "image_id": "the image's id in the source",
    "caption_id": "the caption's id in the source",
    "original": "the caption was written for this image",
    "reasons": (
        "why the pair was kept: `own` caption, among the highest (`top_*`), drawn from a window of"
        " a measure's range (`window_*`), scored by a measure of some pairs (`scored_*`), drawn"
        " uniformly (`uniform`)"
    ),
    "weight": (
        "1 / probability of being kept: `sum(weight * x) / captions` over an image's rows estimates"
        " the mean of x over all captions without bias"
    ),
    "caption": "the caption as the source has it",
    "tokens": "the caption's tokens; CIDEr and BLEU divide one with a no-break space inside",
    "image_file": "the image's file name, where the source knows it",
    DIGEST: (
        "SHA-256 of the caption's text in UTF-8, with Unicode's form NFC and single spaces, none at"
        " its ends"
    ),
    "image": "the picture's bytes as the source has them, and its file's name",
}
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
# The hub shows a table whose groups of rows are small enough to fetch; a picture is of some 100 KB.
PICTURES_A_FILE, PICTURES_A_GROUP = 4_096, 64
PARQUET_ROWS = 4_000_000  # pairs per file, about 60 MB


def meaning(
    column: str, used: dict[str, dict[str, Any]], calibrated: Calibrated | None = None
) -> str:
    """A column in words; `used` has each measure's parameters, as `MeasuresParams.used`."""
    if calibrated and column in calibrated.columns:
        return calibrated.meaning(column)
    if column in COLUMNS:
        return COLUMNS[column]
    if column not in used:
        name = column.removesuffix(LEFT_OUT)
        return (
            f"of own pairs alone: `{name}` with the caption itself left out of the references; null"
            " for other pairs, where it makes no difference, and where the image has no other"
            " caption"
        )
    return meaning_of(column, used[column])


@dataclass(frozen=True)
class Calibrated:
    """A calibration file: its name, its digest, and what it says of the published measures."""

    file: str
    sha256: str
    calibration: Calibration

    @property
    def measures(self) -> list[str]:
        return list(self.calibration.curves)

    @property
    def shipped(self) -> bool:
        return self.sha256 == file_digest(SHIPPED)

    @property
    def columns(self) -> dict[str, str]:
        """The measure of each column that the calibration adds, in their order."""
        return {name + end: name for name in self.measures for end in (SCORE, ACCEPTED)}

    def of_pairs(self, values: Mapping[str, np.ndarray]) -> dict[str, pa.Array]:
        """Each added column from the values of its measure, float32 [n].

        It is the expected score, 0..5, or the probability that people accept the pair, 0..1; null
        where the value is NaN.
        """
        arrays = {}
        for column, name in self.columns.items():
            curve = self.calibration.curves[name]
            meant = curve.expected if column.endswith(SCORE) else curve.probability
            arrays[column] = pa.array(meant(values[name]).astype(np.float32), from_pandas=True)
        return arrays

    def facts(self) -> dict[str, Any]:
        """What the manifest says of it: file, digest, version, judgements, each measure's error."""
        known = self.calibration
        errors = {
            name: {"ece": known.curves[name].ece, "pairs": known.curves[name].pairs}
            for name in self.measures
        }
        return {
            "file": self.file,
            "sha256": self.sha256,
            **known.facts,
            "measures": errors,
            "columns": self.columns,
        }

    def meaning(self, column: str) -> str:
        facts, name = self.calibration.facts, self.columns[column]
        judged = (
            f"by `{name}` and the calibration; an own pair's is that of its value, as any other's"
        )
        if column.endswith(SCORE):
            return f"human score to be expected, 0..5, {judged}"
        return (
            f"probability that a person gives at least {facts['accept']:g} of {facts['high']:g},"
            f" {judged}"
        )


@dataclass(frozen=True)
class PublishedTable:
    """One split of one config, as written.

    `files` has rows, bytes and digest of each file, `nbytes` the bytes of the split in memory.
    """

    split: str
    schema: pa.Schema
    files: dict[str, dict[str, Any]]
    rows: int
    nbytes: int


@dataclass(frozen=True)
class PublishedSplit:
    """A split's labels, their captions, and their folder's manifest, in which every path is cut to
    its last name; `name` as `datasets` accepts it."""

    name: str
    labels: Labels
    captions: Captions
    manifest: dict[str, Any]


@dataclass(frozen=True)
class Judged:
    """Judgements that a benchmark's grades are of: their file, how many pairs, and the scale.

    `own_added` own pairs were judged by nobody, and `left_out` judgements are of other captions.
    `asked`, bool [n_images] and [n_captions]: of which some pair was judged.
    """

    file: str
    sha256: str
    pairs: int
    low: float
    high: float
    own_added: int
    left_out: int
    asked: tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Contents:
    """What the card, the Croissant metadata and the manifest are written from, whatever the layout.

    `tables` has those of each config, the default one first: one per split. `introduction`, `kept`
    and `absent` say what a row is, which pairs are there, and what it means that one is not.
    """

    params: PublishParams
    out: Path
    splits: Sequence[PublishedSplit]
    tables: dict[str, list[PublishedTable]]
    measures: list[str]
    used: dict[str, Any]  # each measure's parameters
    introduction: str
    kept: str
    absent: str
    meanings: Mapping[str, str]  # of each column
    left_out: Sequence[str] = ()  # columns of own pairs without the caption among its references
    known: Sequence[int] = ()  # of a benchmark: how many pairs' values are known, by split
    read: dict[str, str] = field(default_factory=dict)  # digests of what the measures read
    calibrated: Calibrated | None = None
    agreement: dict[str, Any] | None = None
    images: Embedded | None = None
    judged: Judged | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)  # of a benchmark's grades
    # Manifests of the captions and of dense relevance, every path by its last name.
    captions: dict[str, Any] = field(default_factory=dict)
    relevance: dict[str, Any] | None = None

    @property
    def files(self) -> dict[str, dict[str, Any]]:
        """Rows, bytes and digest of each file of tables, in the order of names."""
        files = dict[str, dict[str, Any]]()
        for tables in self.tables.values():
            for table in tables:
                files |= table.files
        return dict(sorted(files.items()))


def introduce(params: PublishParams, row: str) -> str:
    """The first paragraphs of the card: the user's description, and what a row is."""
    text = f"How relevant captions are to images they were not written for. {row}"
    return f"{params.description}\n\n{text}" if params.description else text


def write_table(table: pa.Table, folder: str, split: str, out: Path) -> PublishedTable:
    """Write a small table, in one file."""
    name = f"{folder}/{split}-00000-of-00001.parquet"
    rows, nbytes = write_parquet(out / name, table.schema, iter(table.to_batches(ROW_GROUP)))
    return PublishedTable(
        split, table.schema, {name: entry_of(out / name, rows=rows)}, rows, nbytes
    )


def write_batches(
    batches: Iterator[pa.RecordBatch],
    expected: int,
    folder: str,
    split: str,
    out: Path,
    per_file: int | None = None,
    per_group: int | None = None,
) -> PublishedTable:
    """Write one batch or more, of about `expected` rows in all, over as many files as they need:
    of `per_file` rows, PARQUET_ROWS unless given, in groups as `write_parquet`."""
    per_file = PARQUET_ROWS if per_file is None else per_file
    n_files = max(1, -(-expected // per_file))
    first = next(batches)
    batches, files = chain([first], batches), {}
    written = nbytes = 0
    for k in range(n_files):
        name = f"{folder}/{split}-{of_all(k, n_files)}.parquet"
        most = None if k == n_files - 1 else per_file
        rows, size = write_parquet(out / name, first.schema, batches, most, per_group)
        files[name] = entry_of(out / name, rows=rows)
        written, nbytes = written + rows, nbytes + size
    return PublishedTable(split, first.schema, files, written, nbytes)


def write_pictures_table(
    pictures: Mapping[str, Picture], id_column: str, folder: str, split: str, out: Path
) -> PublishedTable:
    """Write ids and pictures, with the metadata by which `datasets` and the hub know these."""
    from datasets import Features, Image, Value

    schema = Features({id_column: Value("string"), "image": Image()}).arrow_schema
    return write_batches(
        _picture_batches(pictures, schema),
        len(pictures),
        folder,
        split,
        out,
        per_file=PICTURES_A_FILE,
        per_group=PICTURES_A_GROUP,
    )


def _picture_batches(
    pictures: Mapping[str, Picture], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for image_id, picture in pictures.items():
        name = PurePosixPath(picture.path or image_id).name
        columns = [
            pa.array([image_id], schema.field(0).type),
            pa.array([{"bytes": picture.read(), "path": name}], schema.field(1).type),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _write_pairs(
    split: PublishedSplit,
    out: Path,
    own: dict[str, np.ndarray],
    calibrated: Calibrated | None = None,
) -> PublishedTable:
    """Write the pairs of shards, over as many files as their number needs.

    They are in the order of images and captions. `own` has float32 [n_captions] by measure: own
    pairs without the caption among its references. InputError when two columns have one name.
    """
    labels, pairs = split.labels, split.manifest["pairs"]
    beside = [name + LEFT_OUT for name in own] + list(calibrated.columns if calibrated else ())
    if taken := sorted(set(beside) & set(labels.measures)):
        remedy = "call the imported measure otherwise, or leave --calibration out"
        raise InputError(f"measure '{taken[0]}' has the name of a column", remedy=remedy)
    batches = _pair_batches(split, own, calibrated)
    written = write_batches(batches, pairs, "relevance", split.name, out)
    if written.rows != pairs:
        problem = f"{written.rows} pairs where the manifest says {pairs}"
        raise InputError(problem, file=labels.file)
    return written


def _pair_batches(
    split: PublishedSplit, own: dict[str, np.ndarray], calibrated: Calibrated | None
) -> Iterator[pa.RecordBatch]:
    stored, captions = split.labels.stored, split.captions
    assert isinstance(stored, Sampled)
    image_ids = pa.array(captions.image_ids)
    caption_ids = captions.table["caption_id"].combine_chunks()
    names = pa.array(stored.reasons)
    for pairs in stored.tables(*stored.measures):
        original = pairs.is_own(captions.owner)
        columns = {
            "image_id": image_ids.take(pa.array(pairs.image)),
            "caption_id": caption_ids.take(pa.array(pairs.caption)),
            "original": pa.array(original),
        }
        for name, values in pairs.values.items():
            columns[name] = pa.array(values, from_pandas=True)
        for name, of_captions in own.items():
            values = of_captions[pairs.caption]
            columns[name + LEFT_OUT] = pa.array(values, mask=~original | np.isnan(values))
        if calibrated:
            columns |= calibrated.of_pairs(pairs.values)
        assert pairs.reasons is not None  # of shards
        bits = (pairs.reasons[:, None] >> np.arange(len(names), dtype=np.uint32)) & 1
        offsets, which = np.concatenate([[0], np.cumsum(bits.sum(axis=1))]), np.nonzero(bits)[1]
        columns["reasons"] = pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), names.take(pa.array(which))
        )
        columns["weight"] = pa.array(pairs.weight)
        yield pa.record_batch(columns)


def write_parquet(
    path: Path,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    most: int | None = None,
    per_group: int | None = None,
) -> tuple[int, int]:
    """Write batches until there are none, or `most` rows are reached, in groups of `per_group`
    rows, ROW_GROUP unless given.

    Returns the rows written and their bytes in memory.
    """
    group = ROW_GROUP if per_group is None else per_group
    rows = nbytes = 0
    waiting = schema.empty_table()
    with atomic(path) as temporary, pq.ParquetWriter(temporary, schema, **AS_DATASETS) as writer:
        for batch in batches:
            waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])])
            while waiting.num_rows >= group:
                writer.write_table(waiting.slice(0, group), row_group_size=group)
                waiting = waiting.slice(group)
            rows, nbytes = rows + batch.num_rows, nbytes + batch.nbytes
            if most is not None and rows >= most:
                break
        if waiting.num_rows:
            writer.write_table(waiting, row_group_size=group)
    return rows, nbytes


def _own_without_themselves(labels: Labels) -> dict[str, np.ndarray]:
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


def _captions_table(captions: Captions, params: PublishParams) -> pa.Table:
    """The captions as they are published: with their texts, or with digests of these alone."""
    table = captions.table
    if params.captions == "texts":
        return pa.Table.from_batches(
            table.select(CAPTIONS_SCHEMA.names).to_batches(), CAPTIONS_SCHEMA
        )
    digests = pa.array(map(text_digest, captions.texts), pa.string())
    return table.append_column(DIGEST, digests).select(IDS_SCHEMA.names).cast(IDS_SCHEMA)


def require_alike(split: PublishedSplit, first: PublishedSplit, names: Sequence[str]) -> None:
    """InputError where measures of a split have other parameters than those of the first one: the
    card and the manifest tell of one kind for all."""
    made, expected = (one.labels.made_with or {} for one in (split, first))
    other = [name for name in names if not alike(made.get(name), expected.get(name), own=True)]
    if other:
        problem = f"{', '.join(other)}: other parameters than in the first split's"
        remedy = "make the labels of all splits with the same parameters"
        raise InputError(problem, file=split.labels.file, remedy=remedy)


def sampled_pairs(
    splits: Sequence[PublishedSplit],
    out: Path,
    params: PublishParams,
    calibration: Path | None,
    embedded: Embedded | None,
) -> Contents:
    """Write the layout `pairs` of each split.

    InputError for splits of other measures or columns, and as `_own_without_themselves`.
    """
    relevance, captions, images = (list[PublishedTable]() for _ in range(3))
    calibrated: Calibrated | None = None
    read: dict[str, str] = {}  # digests of the files that the measures read
    names = splits[0].labels.measures
    for split in splits:
        labels, folder = split.labels, Path(split.labels.file)
        if labels.measures != names:
            remedy = "make their shards with the same --measures"
            raise InputError("the splits have different measures", file=folder, remedy=remedy)
        files = {key: sha for key, sha in labels.inputs.items() if key not in ("captions", "split")}
        if relevance and files != read:
            problem = "its measures read other files than the first split's"
            remedy = "make the shards of all splits with the same files"
            raise InputError(problem, file=folder, remedy=remedy)
        read = files
        require_alike(split, splits[0], names)
        own = _own_without_themselves(labels) if params.left_out else {}
        if calibration:
            fitting = load_calibration(calibration).fitting(split.captions.owner)
            known = fitting.of(labels.made_with or {}, folder, calibration)  # those that both have
            calibrated = Calibrated(calibration.name, file_digest(calibration), known)
        relevance.append(_write_pairs(split, out, own, calibrated))
        if relevance[-1].schema != relevance[0].schema:
            remedy = "make their shards with the same self_reference"
            raise InputError("the splits have different columns", file=folder, remedy=remedy)
        if embedded:
            pictures = embedded.pictures[len(captions)]
            images.append(write_pictures_table(pictures, "image_id", "images", split.name, out))
        captions.append(
            write_table(_captions_table(split.captions, params), "captions", split.name, out)
        )
    made_with, columns = splits[0].manifest["params"]["measures"], relevance[0].schema.names
    used = {name: made_with[name] for name in names}
    all_columns = [*columns, *captions[0].schema.names, "image"]
    return Contents(
        params,
        out,
        splits,
        {"relevance": relevance, "captions": captions, **({"images": images} if images else {})},
        names,
        used,
        introduction=introduce(
            params,
            "Each row of `relevance` is an image and a caption with their graded relevance by"
            f" {len(names)} measure(s): {', '.join(names)}.",
        ),
        kept="a sample of the pairs was kept, each with the probability of being drawn",
        absent="A pair that is absent was not sampled, which does not make it irrelevant.",
        meanings={name: meaning(name, used, calibrated) for name in all_columns},
        left_out=[name + LEFT_OUT for name in names if name + LEFT_OUT in columns],
        read=read,
        calibrated=calibrated,
        images=embedded,
    )

"""Shards within somebody's own Beam pipeline: captions in, files at a URL out.

The runner checks and tokenises captions in shares of the images. One worker puts them in order as
Arrow tables, and fits the measures; then each block's file is made by a worker.
"""

from __future__ import annotations

import json
import reprlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable
from zlib import crc32

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from apache_beam.transforms.window import GlobalWindows
from pydantic import BaseModel

from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.captions import BATCH, caption_batches, checked, cuts, write_table
from capgrade.pipelines.execution.folder import Folder, fetch_finished
from capgrade.pipelines.execution.job import run_url, share
from capgrade.pipelines.execution.runners import SHARES, MeasureDoFn, local_processes, shares
from capgrade.pipelines.execution.worker import Job
from capgrade.pipelines.shards import open_shards_run, save_shards_job, schema_of
from capgrade.pipelines.sources.fields import Id, Text, validate_entry
from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.pipelines.stages.shards import ShardsParams
from capgrade.schemas.arrow import write_arrow
from capgrade.schemas.block import validated
from capgrade.schemas.captions import SCHEMA, Caption
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.files import MANIFEST, RUN_FILE, atomic, entry_of, manifest_of, write_json
from capgrade.schemas.lines import read_json
from capgrade.schemas.shards import shard_name
from capgrade.text.language import warn_of_scripts
from capgrade.text.tokens import tokenize

_KINDS = {"arrow": "shards", "parquet": "shards_parquet"}  # of the manifest
ALWAYS, CAPTIONS = "always", "captions"  # what one worker fits from
WHERE = "captions of the pipeline"
_REMEDY = (
    "give each element image_id, caption_id and caption: a mapping, a beam.Row or a NamedTuple"
)
# While all captions are one table, its texts may be over the 2 GiB that 32-bit offsets reach.
_LARGE = pa.large_string()
_LARGE_SCHEMA = pa.schema(
    [
        field.with_type(_LARGE if field.type == pa.string() else pa.large_list(_LARGE))
        for field in SCHEMA
    ]
)
Fields = tuple[str, str, str]  # image_id, caption_id, caption


class CaptionFields(BaseModel):
    """What an element has to have."""

    image_id: Id
    caption_id: Id
    caption: Text


@runtime_checkable
class Named(Protocol):
    """An instance of a NamedTuple, whatever its class."""

    def _asdict(self) -> dict[str, Any]: ...


Element: TypeAlias = Mapping[str, Any] | beam.Row | Named


@dataclass(frozen=True)
class ShardsRun:
    """What a worker has to know. It goes with every block, so it is small."""

    job: Job
    facts: Mapping[str, Any]  # parameters, inputs and counts, for a manifest


@dataclass(frozen=True)
class WrittenShard:
    """A file that a worker wrote, for the manifest."""

    name: str
    entry: dict[str, Any]  # of the manifest
    pairs: int
    run: ShardsRun | None  # with the first block


@beam.typehints.with_input_types(Element)
@beam.typehints.with_output_types(dict[str, Any])
class WriteShards(beam.PTransform):
    """Captions, as mappings, beam.Rows or NamedTuples -> shards at `out`; gives their manifest.

    The PCollection is bounded, in any windows. With `captions`, the URL of a folder of
    `capgrade captions`, the transform begins a pipeline. `out` holds these shards alone, and below
    `url` one worker puts the fitted measures for the others: both are URLs of fsspec. InputError
    for options that cannot be; in workers, for an element without a field, for captions that
    `capgrade captions` refuses, and where `out` holds something else.
    """

    def __init__(
        self,
        out: str,
        url: str,
        params: ShardsParams | None = None,
        measures: MeasuresParams | None = None,
        tokenizer: str = "ptb_py",
        captions: str | None = None,
        format: Literal["arrow", "parquet"] = "arrow",
    ) -> None:
        super().__init__()
        if format not in _KINDS:
            raise InputError(f"no format '{format}'", remedy=choose_from(format, _KINDS))
        # Workers exchange nothing else, and captions of a PCollection are of one split.
        not_asked = {
            "exchange": None,
            "part": None,
            "join": False,
            **({} if captions else {"split": None}),
        }
        read = validated(
            CaptionsParams, {"source": "jsonl", "input": WHERE, "tokenizer": tokenizer}
        )
        params = (params or ShardsParams()).model_copy(update=not_asked)
        self.target = Target(out.rstrip("/"), format)
        self.fit = CaptionsFitter(url, params, measures or MeasuresParams(), read, captions)

    def expand(self, given: beam.PCollection | beam.pvalue.PBegin) -> beam.PCollection:
        if isinstance(given, beam.pvalue.PBegin) != (self.fit.captions is not None):
            remedy = "give captions=URL to a pipeline, or a PCollection of captions without it"
            raise InputError(
                "captions from the pipeline and from a URL, or from neither", remedy=remedy
            )
        captions = {} if isinstance(given, beam.pvalue.PBegin) else self._captions(given)
        # An element that is always there lets the next step refuse a PCollection without captions.
        # On Dask, later steps have as many partitions as the beginning.
        each = range(1 if captions else SHARES)
        always = given.pipeline | beam.Create(each) | "Always" >> beam.Map(lambda _: (0, None))
        return (
            {ALWAYS: always, **captions}
            | "Together" >> beam.CoGroupByKey()
            | "Fit" >> beam.Map(self.fit.run)
            | "Begin" >> beam.Map(self.target.begin)
            | "Shares"
            >> beam.FlatMap(
                lambda run: [
                    (k, (run, one)) for k, one in enumerate(shares(range(run.job.n_blocks)))
                ]
            )
            | "Apart" >> beam.GroupByKey()  # for Dask, which does nothing for a Reshuffle
            | "Blocks" >> beam.FlatMap(_blocks)
            | "Spread" >> beam.Reshuffle()
            | "Write"
            >> beam.ParDo(WriteBlock(self.target, local_processes(given.pipeline.options)))
            | "All" >> beam.GroupByKey()
            | "Manifest"
            >> beam.MapTuple(lambda _, written, target=self.target: target.finish(written))
        )

    def _captions(self, given: beam.PCollection) -> dict[str, beam.PCollection]:
        """Tables of the captions, which are checked and have tokens."""
        if not given.is_bounded:
            remedy = "give a bounded PCollection: shards are of all captions"
            raise InputError("captions from a source without an end", remedy=remedy)
        tables = (
            given
            | "All windows" >> beam.WindowInto(GlobalWindows())
            | "Check" >> beam.Map(key_by_share)
            | "Images" >> beam.GroupByKey()
            | "Tokens" >> beam.Map(tokenize_share, self.fit.read.tokenizer)
            | "Captions" >> beam.Map(lambda table: (0, table))
        )
        return {CAPTIONS: tables}


@dataclass(frozen=True)
class CaptionsFitter:
    """Turns all captions into the run that scores them, and puts what workers read at the URL."""

    url: str
    params: ShardsParams
    measures: MeasuresParams
    read: CaptionsParams
    captions: str | None

    def run(self, element: tuple[int, Mapping[str, Iterable[Any]]]) -> ShardsRun:
        """The run of the captions in `element`, as tables, or in the folder at a URL."""
        with tempfile.TemporaryDirectory(prefix="capgrade-") as folder:
            work = Path(folder)
            if self.captions is None:
                write_sorted(work / "captions", element[1][CAPTIONS], self.read)
            else:
                fetch_finished(self.captions, work / "captions")
            scoring = open_shards_run(work / "captions", self.params, self.measures)
            url = run_url(self.url, scoring.run.made_of)
            job = save_shards_job(scoring, schema_of(scoring), work, url)
            share(work, Folder(url))
        facts = {
            "params": scoring.run.made_with,
            "inputs": scoring.run.inputs,
            "n_captions": scoring.captions.n_captions,
        }
        return ShardsRun(job, json.loads(json.dumps(facts)))  # as a manifest holds them


def _blocks(
    element: tuple[int, Iterable[tuple[ShardsRun, tuple[int, int]]]],
) -> Iterator[tuple[ShardsRun, int]]:
    run, share = next(iter(element[1]))
    return ((run, block) for block in range(*share))


@dataclass(frozen=True)
class Target:
    """The folder at a URL that files go to, and their format."""

    out: str
    format: str

    def name(self, run: ShardsRun, block: int) -> str:
        """The name of a block's file."""
        name = shard_name(block, run.job.n_blocks)
        return Path(name).with_suffix(f".{self.format}").name

    def begin(self, run: ShardsRun) -> ShardsRun:
        """Write there what the run is of. Returns the run.

        InputError where the folder holds anything but files of the same run.
        """
        folder, remedy = Folder(self.out), "give the URL of an empty folder"
        names, own = folder.names(), {self.name(run, block) for block in range(run.job.n_blocks)}
        known = names & {MANIFEST, RUN_FILE}
        if other := sorted(names - known - own if known else names):
            raise InputError(
                f"{folder}: holds {other[0]}, which is not of these shards", remedy=remedy
            )
        for name in known:
            found = None
            with tempfile.TemporaryDirectory(prefix="capgrade-") as copy:
                folder.get(name, Path(copy) / name)
                with suppress(InputError):  # somebody's file, which is no JSON
                    found = read_json(Path(copy) / name)
            if (
                not isinstance(found, dict)
                or {key: found.get(key) for key in run.facts} != run.facts
            ):
                raise InputError(
                    f"{folder}: holds shards of other captions or parameters", remedy=remedy
                )
        if not known:
            folder.write(RUN_FILE, lambda file: write_json(file, run.facts))
        return run

    def write(self, name: str, batch: pa.RecordBatch) -> dict[str, Any]:
        """Write a file. Returns its entry for the manifest."""
        found: dict[str, Any] = {}

        def write(file: Path) -> None:
            if self.format == "arrow":
                write_arrow(file, batch.schema, [batch])
            else:
                with atomic(file) as temporary:
                    pq.write_table(pa.Table.from_batches([batch]), temporary)
            found.update(entry_of(file, rows=batch.num_rows))

        Folder(self.out).write(name, write)
        return found

    def finish(self, written: Iterable[WrittenShard]) -> dict[str, Any]:
        """Write the manifest of all files, and return it."""
        # A file that was written twice has the same bytes.
        files = {one.name: one for one in written}
        run = next(one.run for one in files.values() if one.run)
        entries = {name: one.entry for name, one in sorted(files.items())}
        pairs = sum(one.pairs for one in files.values())
        manifest = manifest_of(_KINDS[self.format], entries, pairs=pairs, **run.facts)
        folder = Folder(self.out)
        folder.write(MANIFEST, lambda file: write_json(file, manifest))
        folder.delete(RUN_FILE)
        return manifest


class WriteBlock(MeasureDoFn):
    """Writes the file of a block to the folder at the URL."""

    def __init__(self, target: Target, workers: int = 1) -> None:
        super().__init__(workers)
        self.target = target

    def process(self, element: tuple[ShardsRun, int]) -> Iterator[tuple[int, WrittenShard]]:
        run, block = element
        batch, name = self.worker(run.job).table(block), self.target.name(run, block)
        entry, pairs = self.target.write(name, batch), len(batch["captions"].flatten())
        yield 0, WrittenShard(name, entry, pairs, None if block else run)


def key_by_share(element: Element) -> tuple[int, Fields]:
    """The share of the images that an element is of, and its fields.

    Ids that are integers become decimal text, as in `capgrade captions`. InputError that names the
    field and the element for one that is missing or is no text.
    """
    if isinstance(element, beam.Row):
        element = element.as_dict()
    elif isinstance(element, Named):
        element = element._asdict()
    shown = reprlib.repr(element)
    if not isinstance(element, Mapping):
        raise InputError("no caption", file=WHERE, row=shown, remedy=_REMEDY)
    caption = validate_entry(CaptionFields, dict(element), WHERE, shown, _REMEDY)
    fields = (caption.image_id, caption.caption_id, caption.caption)
    return crc32(caption.image_id.encode()) % SHARES, fields


def tokenize_share(element: tuple[int, Iterable[Fields]], tokenizer: str) -> pa.Table:
    """All captions of a share of the images, as rows of SCHEMA."""
    rows = sorted(element[1])
    records = [Caption(image, caption, "all", text, WHERE, "") for image, caption, text in rows]
    tokens = tokenize(tokenizer, [record.text for record in records])
    return pa.Table.from_batches(caption_batches(records, tokens), SCHEMA)


def write_sorted(out: Path, shares: Iterable[pa.Table], params: CaptionsParams) -> None:
    """Write the captions of all shares as `capgrade captions` does, sorted by image and caption id.

    They stay in Arrow, as Python objects would take many times the memory. InputError as `checked`.
    """
    tables = [share.cast(_LARGE_SCHEMA) for share in shares]
    table = pa.concat_tables(tables or [_LARGE_SCHEMA.empty_table()])
    table = table.take(
        pc.sort_indices(table, [("image_id", "ascending"), ("caption_id", "ascending")])
    )
    _refuse(table, params)
    warn_of_scripts(table["caption"].slice(0, BATCH).to_pylist(), params.tokenizer)
    images = pc.count_distinct(table["image_id"]).as_py()
    facts = {"images": images, "splits": {"all": table.num_rows}, "left_out": {}}
    table = table.combine_chunks()
    ends = pairwise(cuts(pc.binary_length(table["caption"]).to_numpy()))
    small = (
        table.slice(at, stop - at).cast(SCHEMA).combine_chunks().to_batches() for at, stop in ends
    )
    write_table(out, chain.from_iterable(small), params, facts)


def _refuse(table: pa.Table, params: CaptionsParams) -> None:
    """Raise what `checked` raises for these captions.

    It is handed only those that it refuses, as it takes Python objects.
    """
    ids = pc.value_counts(table["caption_id"])
    twice = ids.field("values").filter(pc.greater(ids.field("counts"), 1))
    wrong = pc.or_(
        pc.is_in(table["caption_id"], twice), pc.equal(pc.list_value_length(table["tokens"]), 0)
    )
    rows = np.flatnonzero(wrong)
    if len(rows) or not table.num_rows:
        columns = [
            table[name].take(pa.array(rows)).to_pylist()
            for name in ("image_id", "caption_id", "caption")
        ]
        records = zip(*columns, rows.tolist(), strict=True)
        checked(
            [
                Caption(image, caption, "all", text, WHERE, row)
                for image, caption, text, row in records
            ],
            params,
        )

"""Shards within somebody's own Beam pipeline: captions in, part files at a URL out, each made by a worker."""

from __future__ import annotations

import hashlib
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.transforms.window import GlobalWindows

from capgrade.pipelines.beam_captions import (
    WHERE,
    Element,
    added,
    counted,
    counts_frequencies,
    keyed,
    tokenized,
    with_frequencies,
    write_sorted,
)
from capgrade.pipelines.execution.job import Job
from capgrade.pipelines.execution.remote import Remote, fetch_folder, whole_json
from capgrade.pipelines.execution.runners import SHARES, Opening, processes_here, shares
from capgrade.pipelines.execution.sampled import SCORED, TABLE
from capgrade.pipelines.execution.work import code_digest
from capgrade.pipelines.execution.worker import run_name, share
from capgrade.pipelines.shards import Source
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    MANIFEST,
    canonical,
    digest,
    manifest_of,
    package_version,
    parse_manifest,
    write_arrow,
    write_json,
)
from capgrade.schemas.params import CaptionsParams, MeasuresParams, ShardsParams, validated
from capgrade.schemas.shards import shard_name

KINDS = {"arrow": "shards", "parquet": "shards_parquet"}  # of the manifest
RUN, CAPTIONS, FREQUENCIES = "run", "captions", "frequencies"  # what one worker fits from


@dataclass(frozen=True)
class Run:
    """What workers are told: small, as it goes with every block."""

    job: Job
    facts: Mapping[str, Any]  # for a manifest


@dataclass(frozen=True)
class Written:
    """A file, for the manifest."""

    name: str
    entry: dict[str, Any]  # of the manifest
    pairs: int
    scored: dict[str, int]
    run: Run | None  # with the first block


@beam.typehints.with_input_types(Element)
@beam.typehints.with_output_types(dict[str, Any])
class WriteShards(beam.PTransform):
    """PCollection of {image_id, caption_id, caption} -> one file per block of images at `out`, and last a manifest with
    their digests; PCollection of one element, the manifest.

    An element is a mapping, a beam.Row or a NamedTuple; an id that is an integer becomes a text in decimal. Windows do
    not matter: shards are of all captions of the PCollection, which has to be bounded. They are those of `capgrade
    shards` on the captions sorted by image id and caption id, as texts.
    With `captions`, the URL of a folder that `capgrade captions` wrote, the transform begins a pipeline; order, tokens
    and split (`params.split`) are those of the folder.

    `out` is any URL of fsspec. Workers write there; nothing passes through the machine that starts the pipeline. Arrow
    files with their manifest are a folder of `capgrade shards`, to be copied and read as one; `format="parquet"` is the
    same table for other programs. A block's file has its own name and always the same bytes, so one that is written
    twice, or by a worker that was lost, does no harm; a folder without a manifest is not finished. Until then it holds
    a file that says whose it is: shards of other captions or parameters are refused, also at the same time.

    The runner checks and tokenises captions, and counts CIDEr's document frequencies. One worker gets tables of all
    captions, fits the measures and puts them below `url`, a folder that every worker reaches (any URL of fsspec, or
    file:// on machines that share it); then blocks of images are scored wherever there is room. Threads of a process
    share the fitted measures, and the direct runner's worker processes divide the cores.
    Nothing is computed when the pipeline is built and no result is waited for, so it works in a template. The graph has
    a fixed size. What is below `url`, in a folder of this run, is yours to delete when the pipeline is done; each
    machine keeps a copy of it in its temporary folder.
    Raises InputError for a tokenizer or a format that there is not, for captions from both sides or none, and for an
    unbounded PCollection; workers raise it for an element without one of the fields, for no captions, for captions that
    `capgrade captions` refuses, for a folder that is not whole, as `shards` does, and when `out` holds something else.
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
        if format not in KINDS:
            raise InputError(f"no format '{format}'", remedy=f"one of {', '.join(KINDS)}")
        whole = {"exchange": None, **({} if captions else {"split": None})}
        read = validated(CaptionsParams, {"source": "jsonl", "input": WHERE, "tokenizer": tokenizer})
        params = (params or ShardsParams()).model_copy(update=whole)
        self.out, self.format = out.rstrip("/"), format
        self.fit = Fit(url, params, measures or MeasuresParams(), read, captions)

    def expand(self, given: beam.PCollection | beam.pvalue.PBegin) -> beam.PCollection:
        if isinstance(given, beam.pvalue.PBegin) != (self.fit.captions is not None):
            remedy = "give captions=URL to a pipeline, or a PCollection of captions without it"
            raise InputError("captions from the pipeline and from a URL, or from neither", remedy=remedy)
        captions = {} if isinstance(given, beam.pvalue.PBegin) else self._captions(given)
        # Always there, so that no captions are an error; on Dask what follows a beginning has as many partitions.
        each = range(1 if captions else SHARES)
        always = given.pipeline | beam.Create(each) | "Run" >> beam.Map(lambda _: (0, uuid.uuid4().hex))
        return (
            {RUN: always, **captions}
            | "Together" >> beam.CoGroupByKey()
            | "Fit" >> beam.ParDo(self.fit)
            | "Claim" >> beam.ParDo(Claim(self.out, self.format))
            | "Shares" >> beam.FlatMap(_shares)
            | "Apart" >> beam.GroupByKey()  # Dask does not reshuffle
            | "Blocks" >> beam.FlatMap(_blocks)
            | "Spread" >> beam.Reshuffle()
            | "Write" >> beam.ParDo(WriteBlock(self.out, self.format, processes_here(given.pipeline.options)))
            | "All" >> beam.GroupByKey()
            | "Manifest" >> beam.ParDo(Finish(self.out, self.format))
        )

    def _captions(self, given: beam.PCollection) -> dict[str, beam.PCollection]:
        """Tables of the captions, and of document frequencies if a measure takes them from the captions."""
        if not given.is_bounded:
            remedy = "give a bounded PCollection: shards are of all captions"
            raise InputError("captions from a source without an end", remedy=remedy)
        tokenizer = self.fit.read.tokenizer
        tables = (
            given
            | "All windows" >> beam.WindowInto(GlobalWindows())
            | "Check" >> beam.Map(keyed)
            | "Images" >> beam.GroupByKey()
            | "Tokens" >> beam.Map(tokenized, tokenizer)
        )
        found = {CAPTIONS: tables | "Captions" >> beam.Map(lambda table: (0, table))}
        if counts_frequencies(self.fit.params.measures, self.fit.measures):
            frequencies = tables | "N-grams" >> beam.FlatMap(counted, tokenizer) | "Add" >> beam.CombinePerKey(added)
            found[FREQUENCIES] = frequencies | "Frequencies" >> beam.MapTuple(lambda _, table: (0, table))
        return found


class Fit(beam.DoFn):
    """All captions -> the run that scores them, with what workers read at the URL."""

    def __init__(
        self, url: str, params: ShardsParams, measures: MeasuresParams, read: CaptionsParams, captions: str | None
    ) -> None:
        self.url, self.params, self.measures, self.read, self.captions = url, params, measures, read, captions

    def process(self, element: tuple[int, Mapping[str, Iterable[Any]]]) -> Iterator[Run]:
        parts = element[1]
        with tempfile.TemporaryDirectory(prefix="capgrade-") as folder:
            work = Path(folder)
            if self.captions is None:
                write_sorted(work / "captions", parts[CAPTIONS], self.read)
            else:
                fetch_folder(self.captions, work / "captions")
            source = Source.of(work / "captions", self.params, self.measures)
            if FREQUENCIES in parts:
                source = replace(source, captions=with_frequencies(source.captions, parts[FREQUENCIES]))
            job = source.job(work)
            key = hashlib.sha256(canonical([made_by(), source.made_with, source.inputs]).encode()).hexdigest()
            job = replace(job, url=f"{self.url.rstrip('/')}/{run_name(key, min(parts[RUN]))}")
            share(job)
        facts = {"params": source.made_with, "inputs": source.inputs, "n_captions": source.captions.n_captions}
        yield Run(replace(job, work=Path()), facts)


def made_by() -> list[str]:
    """The version of the package, and the digest of its code, which may change where the version does not."""
    return [package_version(), code_digest()]


def _shares(run: Run) -> Iterator[tuple[int, tuple[Run, tuple[int, int]]]]:
    return ((k, (run, share)) for k, share in enumerate(shares(range(run.job.n_blocks))))


def _blocks(element: tuple[int, Iterable[tuple[Run, tuple[int, int]]]]) -> Iterator[tuple[Run, int]]:
    run, share = next(iter(element[1]))
    return ((run, block) for block in range(*share))


def file_name(run: Run, block: int, format: str) -> str:
    """Of a block's file."""
    return Path(shard_name(block, run.job.n_blocks)).with_suffix(f".{format}").name


def claim_name(run: Run) -> str:
    """Of the file that says whose an unfinished folder is: the same whenever these shards are made by this code."""
    key = hashlib.sha256(canonical([made_by(), run.facts]).encode()).hexdigest()
    return f".capgrade-{key[:32]}"


class Claim(beam.DoFn):
    """The run, if nothing but its own files is at the URL; they are its own from then on."""

    def __init__(self, out: str, format: str) -> None:
        self.out, self.format = out, format

    def process(self, run: Run) -> Iterator[Run]:
        remote, claim = Remote(self.out), claim_name(run)
        if not self._is_of(run, remote):
            with tempfile.TemporaryDirectory(prefix="capgrade-") as folder:
                write_json(Path(folder) / claim, run.facts)
                remote.put(Path(folder), [claim])
            self._is_of(run, remote)  # again: of two that begin at once, one sees the other's claim
        yield run

    def _is_of(self, run: Run, remote: Remote) -> bool:
        """Whether the folder is known to be this run's, or is empty. InputError when it is somebody else's."""
        names, remedy = remote.names(), "give the URL of an empty folder"
        own = {file_name(run, block, self.format) for block in range(run.job.n_blocks)}
        known = names & {MANIFEST, claim_name(run)}
        if other := sorted(names - known - own if known else names):
            raise InputError(f"{remote}: holds {other[0]}, which is not of these shards", remedy=remedy)
        if MANIFEST in names:
            with tempfile.TemporaryDirectory(prefix="capgrade-") as folder:
                remote.get(MANIFEST, Path(folder), whole_json)
                found = parse_manifest(Path(folder) / MANIFEST)
            made = {**run.facts, "package": package_version()}
            if any(canonical(found.get(name)) != canonical(fact) for name, fact in made.items()):
                problem = "holds shards of other captions or parameters, or of another version"
                raise InputError(f"{remote}: {problem}", remedy=remedy)
        return bool(known)


class WriteBlock(Opening):
    """A block -> its file at the URL."""

    def __init__(self, out: str, format: str, workers: int = 1) -> None:
        super().__init__(workers)
        self.out, self.format = out, format

    def process(self, element: tuple[Run, int]) -> Iterator[tuple[int, Written]]:
        run, block = element
        tables, name = self.worker(run.job).tables(block), file_name(run, block, self.format)
        batch = tables[TABLE]
        with tempfile.TemporaryDirectory(prefix="capgrade-") as folder:
            file = Path(folder) / name
            if self.format == "arrow":
                write_arrow(file, batch.schema, [batch])
            else:
                pq.write_table(pa.Table.from_batches([batch]), file)
            entry = {"rows": batch.num_rows, "bytes": file.stat().st_size, "sha256": digest(file)}
            Remote(self.out).put(Path(folder), [name])
        scored = tables[SCORED].to_pylist()[0]
        yield 0, Written(name, entry, len(batch["captions"].flatten()), scored, None if block else run)


class Finish(beam.DoFn):
    """All files -> the manifest at the URL."""

    def __init__(self, out: str, format: str) -> None:
        self.out, self.format = out, format

    def process(self, element: tuple[int, Iterable[Written]]) -> Iterator[dict[str, Any]]:
        remote, written = Remote(self.out), dict[str, Written]()
        for one in element[1]:
            if written.setdefault(one.name, one).entry != one.entry:
                problem = f"{one.name} was written twice, with other bytes"
                raise InputError(f"{remote}: {problem}", remedy="give all workers the same versions of packages")
        run = next(one.run for one in written.values() if one.run)
        files = {name: one.entry for name, one in sorted(written.items())}
        pairs = sum(one.pairs for one in written.values())
        scored = {name: sum(one.scored[name] for one in written.values()) for name in run.job.kinds}
        manifest = manifest_of(KINDS[self.format], files, pairs=pairs, scored=scored, **run.facts)
        remote.drop_partial(files)
        with tempfile.TemporaryDirectory(prefix="capgrade-") as folder:
            write_json(Path(folder) / MANIFEST, manifest)
            remote.put(Path(folder), [MANIFEST])
        remote.delete(claim_name(run))
        yield manifest

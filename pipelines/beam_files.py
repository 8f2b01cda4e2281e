"""Shards within somebody's own Beam pipeline: captions in, files at a URL out, written by the workers."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq

from capgrade.pipelines.beam_captions import Element
from capgrade.pipelines.beam_shards import Run, SampledShards, Scoring, blocks, made_by
from capgrade.pipelines.execution.exchange import Remote, whole_json
from capgrade.pipelines.execution.nearest import SCORED
from capgrade.pipelines.execution.runners import processes_here
from capgrade.pipelines.execution.sampled import TABLE
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
from capgrade.schemas.params import MeasuresParams, ShardsParams
from capgrade.schemas.shards import shard_name

KINDS = {"arrow": "shards", "parquet": "shards_parquet"}  # of the manifest


@beam.typehints.with_input_types(Element)
@beam.typehints.with_output_types(dict[str, Any])
class WriteShards(beam.PTransform):
    """Captions as `SampledShards` takes them -> one file per block of images at `out`, and a manifest with their
    digests last; PCollection of one element, the manifest.

    `out` is any URL of fsspec. Workers write there; nothing passes through the machine that starts the pipeline. Arrow
    files with their manifest are a folder of `capgrade shards`, to be copied and read as one; `format="parquet"` is the
    same table for other programs. A block's file has its own name and always the same bytes, so one that is written
    twice, or by a worker that was lost, does no harm; a folder without a manifest is not finished. Until then it holds
    a file that says whose it is: shards of other captions or parameters are refused, also at the same time.
    Raises InputError as `SampledShards`, for another format, and in workers when `out` holds something else.
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
        self.out, self.format = out.rstrip("/"), format
        self.sampled = SampledShards(url, params, measures, tokenizer, captions)

    def expand(self, given: beam.PCollection | beam.pvalue.PBegin) -> beam.PCollection:
        runs = self.sampled.runs(given) | "Claim" >> beam.ParDo(Claim(self.out, self.format))
        return (
            blocks(runs)
            | "Write" >> beam.ParDo(WriteBlock(self.out, self.format, processes_here(given.pipeline.options)))
            | "All" >> beam.GroupByKey()
            | "Manifest" >> beam.ParDo(Finish(self.out, self.format))
        )


@dataclass(frozen=True)
class Written:
    """A block's file."""

    name: str
    entry: dict[str, Any]  # of the manifest
    pairs: int
    scored: dict[str, int]
    run: Run | None  # with the first block


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


class WriteBlock(Scoring):
    """A block -> its file at the URL."""

    def __init__(self, out: str, format: str, workers: int = 1) -> None:
        super().__init__(workers)
        self.out, self.format = out, format

    def process(self, element: tuple[Run, int]) -> Iterator[tuple[int, Written]]:
        run, block = element
        tables, name = self.scorer(run.job).tables(block), file_name(run, block, self.format)
        batch = tables[TABLE]
        with tempfile.TemporaryDirectory(prefix="capgrade-") as folder:
            file = Path(folder) / name
            if self.format == "arrow":
                write_arrow(file, batch.schema, [batch])
            else:
                pq.write_table(pa.Table.from_batches([batch]), file)
            entry = {"rows": batch.num_rows, "bytes": file.stat().st_size, "sha256": digest(file)}
            Remote(self.out).put(Path(folder), [name])
        all_pairs = dict.fromkeys(run.job.kinds, batch.num_rows * run.job.n_captions)
        scored = tables[SCORED].to_pylist()[0] if SCORED in tables else all_pairs
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

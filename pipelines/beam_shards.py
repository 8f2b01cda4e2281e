"""Shards within somebody's own Beam pipeline: captions in, one record per image out."""

from __future__ import annotations

import hashlib
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.shared import Shared

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
from capgrade.pipelines.execution.fetched import fetch_folder
from capgrade.pipelines.execution.graph import SHARES
from capgrade.pipelines.execution.job import Job
from capgrade.pipelines.execution.runners import processes_here
from capgrade.pipelines.execution.sampled import TABLE
from capgrade.pipelines.execution.scoring import Scorer
from capgrade.pipelines.execution.shared import as_worker, run_name, share
from capgrade.pipelines.execution.work import code_digest
from capgrade.pipelines.shards import Source
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import canonical, open_arrow, package_version, write_arrow
from capgrade.schemas.params import CaptionsParams, MeasuresParams, ShardsParams, validated

IDS = "caption_ids"
RUN, CAPTIONS, FREQUENCIES = "run", "captions", "frequencies"  # what one worker fits from


@dataclass(frozen=True)
class Run:
    """What workers are told: small, as it goes with every block."""

    job: Job
    facts: Mapping[str, Any]  # for a manifest


@beam.typehints.with_input_types(Element)
@beam.typehints.with_output_types(dict[str, Any])
class SampledShards(beam.PTransform):
    """PCollection of {image_id, caption_id, caption} -> PCollection of the rows of shards, a dict per image.

    An element is a mapping, a beam.Row or a NamedTuple; an id that is an integer becomes a text in decimal. Windows do
    not matter: shards are of all captions of the PCollection, which has to be bounded. A row has the columns of
    `shard_schema` and `caption_ids`, the kept captions by id; `captions` are their numbers when all are sorted by image
    id and caption id, as texts. The rows are those of `capgrade shards` on captions in that order.
    With `captions`, the URL of a folder that `capgrade captions` wrote, the transform begins a pipeline; order, tokens
    and split (`params.split`) are those of the folder.

    The runner checks and tokenises captions, and counts CIDEr's document frequencies. One worker gets tables of all
    captions, fits the measures and puts them below `url`, a folder that every worker reaches (any URL of fsspec, or
    file:// on machines that share it); then blocks of images are scored wherever there is room. Threads of a process
    share the fitted measures, and the direct runner's worker processes divide the cores.
    Nothing is computed when the pipeline is built and no result is waited for, so it works in a template. The graph has
    a fixed size. Elements may be delivered twice: the same files, the same rows. What is below `url`, in a folder of
    this run, is yours to delete when the pipeline is done; each machine keeps a copy of it in its temporary folder.
    Raises InputError for a tokenizer that there is not, for captions from both sides or none, and for an unbounded
    PCollection; workers raise it for an element without one of the fields, for no captions, for captions that `capgrade
    captions` refuses, for a folder that is not whole, and as `shards` does.
    """

    def __init__(
        self,
        url: str,
        params: ShardsParams | None = None,
        measures: MeasuresParams | None = None,
        tokenizer: str = "ptb_py",
        captions: str | None = None,
    ) -> None:
        super().__init__()
        whole = {"group_captions": None, "exchange": None, **({} if captions else {"split": None})}
        read = validated(CaptionsParams, {"source": "jsonl", "input": WHERE, "tokenizer": tokenizer})
        params = (params or ShardsParams()).model_copy(update=whole)
        self.fit = Fit(url, params, measures or MeasuresParams(), read, captions)

    def expand(self, given: beam.PCollection | beam.pvalue.PBegin) -> beam.PCollection:
        workers = processes_here(given.pipeline.options)
        return blocks(self.runs(given)) | "Score" >> beam.ParDo(ScoreImages(workers))

    def runs(self, given: beam.PCollection | beam.pvalue.PBegin) -> beam.PCollection:
        """One element, the run."""
        if isinstance(given, beam.pvalue.PBegin) != (self.fit.captions is not None):
            remedy = "give captions=URL to a pipeline, or a PCollection of captions without it"
            raise InputError("captions from the pipeline and from a URL, or from neither", remedy=remedy)
        captions = {} if isinstance(given, beam.pvalue.PBegin) else self._captions(given)
        # Always there, so that no captions are an error; on Dask what follows a beginning has as many partitions.
        each = range(1 if captions else SHARES)
        always = given.pipeline | beam.Create(each) | "Run" >> beam.Map(lambda _: (0, uuid.uuid4().hex))
        return {RUN: always, **captions} | "Together" >> beam.CoGroupByKey() | "Fit" >> beam.ParDo(self.fit)

    def _captions(self, given: beam.PCollection) -> dict[str, beam.PCollection]:
        """Tables of the captions, and of document frequencies if a measure takes them from the captions."""
        if not given.is_bounded:
            remedy = "give a bounded PCollection: shards are of all captions"
            raise InputError("captions from a source without an end", remedy=remedy)
        tokenizer = self.fit.read.tokenizer
        shares = (
            given
            | "All windows" >> beam.WindowInto(GlobalWindows())
            | "Check" >> beam.Map(keyed)
            | "Images" >> beam.GroupByKey()
            | "Tokens" >> beam.Map(tokenized, tokenizer)
        )
        found = {CAPTIONS: shares | "Captions" >> beam.Map(lambda table: (0, table))}
        if counts_frequencies(self.fit.params.measures, self.fit.measures):
            frequencies = shares | "N-grams" >> beam.FlatMap(counted, tokenizer) | "Add" >> beam.CombinePerKey(added)
            found[FREQUENCIES] = frequencies | "Frequencies" >> beam.MapTuple(lambda _, table: (0, table))
        return found


def blocks(runs: beam.PCollection) -> beam.PCollection:
    """(run, block) of all blocks, in many shares: Dask does not reshuffle."""
    return (
        runs
        | "Shares" >> beam.FlatMap(lambda run: [(share, run) for share in range(min(SHARES, run.job.n_blocks))])
        | "Apart" >> beam.GroupByKey()
        | "Blocks" >> beam.FlatMap(_of_share)
        | "Spread" >> beam.Reshuffle()
    )


def _of_share(element: tuple[int, Iterable[Run]]) -> Iterator[tuple[Run, int]]:
    share, run = element[0], next(iter(element[1]))
    n = run.job.n_blocks
    of = min(SHARES, n)
    return ((run, block) for block in range(share * n // of, (share + 1) * n // of))


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
            (work / "keys").mkdir()
            job = source.job(work)
            ids = source.captions.table["caption_id"].cast(pa.large_string()).combine_chunks()
            batch = pa.record_batch({IDS: ids})
            write_arrow(work / "keys" / f"{IDS}.arrow", batch.schema, [batch])
            key = hashlib.sha256(canonical([made_by(), source.made_with, source.inputs]).encode()).hexdigest()
            job = replace(job, remote=f"{self.url.rstrip('/')}/{run_name(key, min(parts[RUN]))}")
            share(job)
        facts = {"params": source.made_with, "inputs": source.inputs, "n_captions": source.captions.n_captions}
        yield Run(replace(job, work=Path()), facts)


def made_by() -> list[str]:
    """The version of the package, and the digest of its code, which may change where the version does not."""
    return [package_version(), code_digest()]


class Scoring(beam.DoFn):
    """A worker, one of `workers` processes on its machine, whose threads share what one of them has opened."""

    def __init__(self, workers: int = 1) -> None:
        self.workers, self.shared = workers, Shared()

    def scorer(self, job: Job) -> Scorer:
        """Opened, from this machine's copy. Kept here too: `Shared` keeps what was asked for last alone."""
        self.opened: Scorer = self.shared.acquire(lambda: Scorer(as_worker(job), self.workers), tag=job.remote)
        return self.opened


class ScoreImages(Scoring):
    """A block -> its images' rows."""

    def process(self, element: tuple[Run, int]) -> Iterator[dict[str, Any]]:
        run, block = element
        scorer = self.scorer(run.job)
        ids = open_arrow(scorer.job.work / "keys" / f"{IDS}.arrow").get_batch(0)[IDS]
        for row in scorer.tables(block)[TABLE].to_pylist():
            yield {**row, IDS: ids.take(pa.array(row["captions"], pa.int64())).to_pylist()}

"""Shards within somebody's own Beam pipeline: captions in, one record per image out."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa

from capgrade.pipelines.captions import write_records
from capgrade.pipelines.execution.fetched import fetch_folder
from capgrade.pipelines.execution.graph import SHARES
from capgrade.pipelines.execution.job import Job
from capgrade.pipelines.execution.sampled import TABLE
from capgrade.pipelines.execution.scoring import Scorer
from capgrade.pipelines.execution.shared import as_worker, share
from capgrade.pipelines.shards import Source
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import canonical, open_arrow, package_version, write_arrow
from capgrade.schemas.params import CaptionsParams, MeasuresParams, ShardsParams, validated

IDS = "caption_ids"
Element = Mapping[str, str]  # image_id, caption_id, caption


@dataclass(frozen=True)
class Run:
    """What workers are told: small, as it goes with every block."""

    job: Job
    facts: Mapping[str, Any]  # for a manifest


class SampledShards(beam.PTransform):
    """PCollection of {image_id, caption_id, caption} -> PCollection of the rows of shards, a dict per image.

    A row has the columns of `shard_schema` and `caption_ids`, the kept captions by id; `captions` are their numbers
    when all are sorted by image id and caption id. The rows are those of `capgrade shards` on captions in that order.
    With `captions`, the URL of a folder that `capgrade captions` wrote, the transform begins a pipeline; order, tokens
    and split (`params.split`) are those of the folder.

    One worker gets all captions, fits the measures and puts them below `url`, a folder that every worker reaches (any
    URL of fsspec, or file:// on machines that share it); then blocks of images are scored wherever there is room.
    Nothing is computed when the pipeline is built and no result is waited for, so it works in a template. The graph has
    a fixed size. Elements may be delivered twice: the same files, the same rows. What is below `url`, in a folder named
    after the captions and the parameters, is yours to delete when the pipeline is done; each machine also keeps a copy
    of it in its temporary folder.
    Raises InputError for a tokenizer that there is not, and for captions from both sides or none; workers raise it for
    captions that `capgrade captions` refuses, for a folder that is not whole, and as `shards` does.
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
        read = validated(CaptionsParams, {"source": "jsonl", "input": "-", "tokenizer": tokenizer})
        params = (params or ShardsParams()).model_copy(update=whole)
        self.fit = Fit(url, params, measures or MeasuresParams(), read, captions)

    def expand(self, given: beam.PCollection | beam.pvalue.PBegin) -> beam.PCollection:
        return blocks(self.runs(given)) | "Score" >> beam.ParDo(ScoreImages())

    def runs(self, given: beam.PCollection | beam.pvalue.PBegin) -> beam.PCollection:
        """One element, the run."""
        begins = isinstance(given, beam.pvalue.PBegin)
        if begins != (self.fit.captions is not None):
            remedy = "give captions=URL to a pipeline, or a PCollection of captions without it"
            raise InputError("captions from the pipeline and from a URL, or from neither", remedy=remedy)
        if begins:
            given = given | beam.Create(range(SHARES))  # what follows has as many partitions on Dask
        return (
            given
            | "Key" >> beam.Map(lambda one: (0, one if begins else dict(one)))  # None has another hash in each process
            | "Together" >> beam.GroupByKey()
            | "Fit" >> beam.ParDo(self.fit)
        )


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

    def process(self, element: tuple[int, Iterable[Any]]) -> Iterator[Run]:
        with tempfile.TemporaryDirectory(prefix="capgrade-") as folder:
            work = Path(folder)
            if self.captions is None:
                write_records(work / "captions", _records(element[1]), self.read)
            else:
                fetch_folder(self.captions, work / "captions")
            source = Source.of(work / "captions", self.params, self.measures)
            (work / "keys").mkdir()
            job = source.job(work)
            batch = pa.record_batch({IDS: pa.array(source.captions.caption_ids, pa.large_string())})
            write_arrow(work / "keys" / f"{IDS}.arrow", batch.schema, [batch])
            name = hashlib.sha256(canonical([package_version(), source.made_with, source.inputs]).encode()).hexdigest()
            job = replace(job, remote=f"{self.url.rstrip('/')}/{name[:16]}")
            share(job)
        facts = {"params": source.made_with, "inputs": source.inputs, "n_captions": source.captions.n_captions}
        yield Run(replace(job, work=Path()), facts)


def _records(given: Iterable[Element]) -> list[Caption]:
    rows = sorted((one["image_id"], one["caption_id"], one["caption"]) for one in given)
    where = "captions of the pipeline"
    return [Caption(image, caption, "all", text, where, k) for k, (image, caption, text) in enumerate(rows)]


class Scoring(beam.DoFn):
    """A worker that keeps what it has opened."""

    def setup(self) -> None:
        self.opened: dict[str, Scorer] = {}

    def scorer(self, job: Job) -> Scorer:
        """Opened, from this machine's copy."""
        key = str(job.remote)
        if key not in self.opened:
            self.opened = {key: Scorer(as_worker(job))}
        return self.opened[key]


class ScoreImages(Scoring):
    """A block -> its images' rows."""

    def process(self, element: tuple[Run, int]) -> Iterator[dict[str, Any]]:
        run, block = element
        scorer = self.scorer(run.job)
        ids = open_arrow(scorer.job.work / "keys" / f"{IDS}.arrow").get_batch(0)[IDS]
        for row in scorer.tables(block)[TABLE].to_pylist():
            yield {**row, IDS: ids.take(pa.array(row["captions"], pa.int64())).to_pylist()}

"""Shards within somebody's own Beam pipeline: captions in, one record per image out."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa

from capgrade.pipelines.captions import write_records
from capgrade.pipelines.execution.job import Job
from capgrade.pipelines.execution.sampled import TABLE
from capgrade.pipelines.execution.scoring import Scorer
from capgrade.pipelines.execution.shared import as_worker, share
from capgrade.pipelines.shards import Source
from capgrade.schemas.captions import Caption
from capgrade.schemas.files import canonical, open_arrow, package_version, write_arrow
from capgrade.schemas.params import CaptionsParams, MeasuresParams, ShardsParams

IDS = "caption_ids"
Element = Mapping[str, str]  # image_id, caption_id, caption


class SampledShards(beam.PTransform):
    """PCollection of {image_id, caption_id, caption} -> PCollection of the rows of shards, a dict per image.

    A row has the columns of `shard_schema` and `caption_ids`, the kept captions by id; `captions` are their numbers
    when all are sorted by image id and caption id. The rows are those of `capgrade shards` on captions in that order.

    One worker gets all captions, fits the measures and puts them below `url`, a folder that every worker reaches (any
    URL of fsspec, or file:// on machines that share it); then blocks of images are scored wherever there is room.
    Nothing is computed when the pipeline is built and no result is waited for, so it works in a template. The graph has
    a fixed size. Elements may be delivered twice: the same files, the same rows. What is below `url`, in a folder named
    after the captions and the parameters, is yours to delete when the pipeline is done; each machine also keeps a copy
    of it in its temporary folder.
    Workers raise InputError for captions that `capgrade captions` refuses, and as `shards` does.
    """

    def __init__(
        self,
        url: str,
        params: ShardsParams | None = None,
        measures: MeasuresParams | None = None,
        tokenizer: str = "ptb_py",
    ) -> None:
        super().__init__()
        whole = {"group_captions": None, "exchange": None, "split": None}
        self.fit = Fit(
            url, (params or ShardsParams()).model_copy(update=whole), measures or MeasuresParams(), tokenizer
        )

    def expand(self, captions: beam.PCollection) -> beam.PCollection:
        jobs = (
            captions
            | "Key" >> beam.Map(lambda caption: (None, dict(caption)))
            | "Together" >> beam.GroupByKey()
            | "Fit" >> beam.ParDo(self.fit)
        )
        return (
            jobs
            | "Blocks" >> beam.FlatMap(lambda job: range(job.n_blocks))
            | "Spread" >> beam.Reshuffle()
            | "Score" >> beam.ParDo(ScoreImages(), beam.pvalue.AsSingleton(jobs))
        )


class Fit(beam.DoFn):
    """All captions -> the job that scores them, with what workers read at the URL."""

    def __init__(self, url: str, params: ShardsParams, measures: MeasuresParams, tokenizer: str) -> None:
        self.url, self.params, self.measures, self.tokenizer = url, params, measures, tokenizer

    def process(self, element: tuple[None, Iterable[Element]]) -> Iterator[Job]:
        rows = sorted((one["image_id"], one["caption_id"], one["caption"]) for one in element[1])
        records = [
            Caption(image, caption, "all", text, "captions of the pipeline", k)
            for k, (image, caption, text) in enumerate(rows)
        ]
        with tempfile.TemporaryDirectory(prefix="capgrade-") as folder:
            work = Path(folder)
            write_records(
                work / "captions", records, CaptionsParams(source="jsonl", input="-", tokenizer=self.tokenizer)
            )
            source = Source.of(work / "captions", self.params, self.measures)
            (work / "keys").mkdir()
            job = source.job(work)
            batch = pa.record_batch({IDS: pa.array(source.captions.caption_ids, pa.string())})
            write_arrow(work / "keys" / f"{IDS}.arrow", batch.schema, [batch])
            name = hashlib.sha256(canonical([package_version(), source.made_with, source.inputs]).encode()).hexdigest()
            job = replace(job, remote=f"{self.url.rstrip('/')}/{name[:16]}")
            share(job)
        yield replace(job, work=Path())


class ScoreImages(beam.DoFn):
    """A block -> its images' rows."""

    def setup(self) -> None:
        self.opened: dict[str, Scorer] = {}

    def process(self, block: int, job: Job) -> Iterator[dict[str, Any]]:
        key = str(job.remote)
        if key not in self.opened:
            self.opened = {key: Scorer(as_worker(job))}
        scorer = self.opened[key]
        ids = open_arrow(scorer.job.work / "keys" / f"{IDS}.arrow").get_batch(0)[IDS]
        for row in scorer.tables(block)[TABLE].to_pylist():
            yield {**row, IDS: ids.take(pa.array(row["captions"], pa.int64())).to_pylist()}

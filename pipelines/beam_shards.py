"""`capgrade shards` as a transform of somebody's own Beam pipeline: captions at a URL in, shards at
a URL out.

One worker fits the measures and puts them at the exchange. The runner's workers make the blocks, as
for the command. One worker writes the shards from their parts, and puts them at the URL.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam

from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.execution.folder import Folder, fetch_finished, put_finished
from capgrade.pipelines.execution.job import ScoringRun, fetch_parts, put_shared, run_url
from capgrade.pipelines.execution.runners import SHARES, MakeBlock, local_processes, shares
from capgrade.pipelines.execution.worker import Job
from capgrade.pipelines.shards import open_shards_run, save_shards_job, schema_of
from capgrade.pipelines.stages.shards import ShardsParams
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, package_version
from capgrade.schemas.lines import read_json
from capgrade.schemas.run import StageRun
from capgrade.schemas.shards import write_shards


@beam.typehints.with_output_types(dict[str, Any])
class WriteShards(beam.PTransform):
    """Captions at a URL -> shards at `out`; begins a pipeline, and gives their manifest.

    `captions` is the URL of a folder of `capgrade captions`. `out` holds the files of the command,
    and nothing else; by way of a folder below `exchange` workers hand each other the fitted
    measures and the parts. All three are URLs of fsspec. In workers InputError for what
    `capgrade shards` refuses, and where `out` holds something else.
    """

    def __init__(
        self,
        captions: str,
        out: str,
        exchange: str,
        params: ShardsParams | None = None,
        measures: MeasuresParams | None = None,
    ) -> None:
        super().__init__()
        given = params or ShardsParams()
        given = given.model_copy(update={"exchange": exchange, "part": None, "join": False})
        self.work = _ShardsAtUrl(captions, out.rstrip("/"), given, measures or MeasuresParams())

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        workers = local_processes(begin.pipeline.options)
        # On Dask, later steps have as many partitions as what stands at the beginning.
        return (
            begin
            | beam.Create(range(SHARES))
            | "Once" >> beam.Filter(lambda number: number == 0)
            | "Fit" >> beam.Map(lambda _, work=self.work: work.begin())
            | "Shares" >> beam.FlatMap(_shares_of)
            | "Apart" >> beam.GroupByKey()  # for Dask, which does nothing for a Reshuffle
            | "Blocks" >> beam.FlatMapTuple(_blocks)
            | "Spread" >> beam.Reshuffle()
            | "Make" >> beam.ParDo(MakeBlock(workers))
            | "All" >> beam.GroupByKey()
            | "Finish" >> beam.MapTuple(lambda _, jobs, work=self.work: work.finish(jobs))
        )


def _shares_of(job: Job) -> Iterator[tuple[int, tuple[Job, tuple[int, int]]]]:
    return ((number, (job, one)) for number, one in enumerate(shares(range(job.n_blocks))))


def _blocks(_: int, given: Iterable[tuple[Job, tuple[int, int]]]) -> Iterator[tuple[Job, int]]:
    job, share = next(iter(given))
    return ((job, block) for block in range(*share))


@dataclass(frozen=True)
class _ShardsAtUrl:
    """What the first and the last worker do."""

    captions: str
    out: str
    params: ShardsParams
    measures: MeasuresParams

    def begin(self) -> Job:
        """Fit the measures and share them. InputError where `out` holds something else, unless a
        worker of this run has begun already."""
        with tempfile.TemporaryDirectory(prefix="capgrade-") as folder:
            work = Path(folder)
            scoring = self._open(work)
            url = run_url(str(self.params.exchange), [self.out, scoring.run.made_of])
            if not Folder(url).names():
                self._written(scoring.run)
            job = save_shards_job(scoring, schema_of(scoring), work, url)
            put_shared(work, Folder(url))
        return job

    def finish(self, jobs: Iterable[Job | None]) -> dict[str, Any]:
        """Write the shards, put them at `out`, and delete what workers exchanged. Returns the
        manifest."""
        job = next(job for job in jobs if job)
        with tempfile.TemporaryDirectory(prefix="capgrade-") as folder:
            work, shards = Path(folder), Path(folder) / "shards"
            scoring = self._open(work)
            if Folder(self.out).exists(MANIFEST) and (done := self._written(scoring.run)):
                return done  # this was done already, and is asked for once more
            files = fetch_parts(job, shards, range(job.n_blocks))
            rows, pairs = write_shards(shards, schema_of(scoring), files, self.params.target_mb)
            n_captions = scoring.captions.n_captions
            manifest = scoring.run.finish(shards, rows, pairs=pairs, n_captions=n_captions)
            put_finished(shards, self.out)
        Folder(job.url).delete_all()
        return manifest

    def _written(self, run: StageRun[Any]) -> dict[str, Any] | None:
        """The manifest of these shards at `out`; None for an empty folder. InputError where
        something else is there."""
        folder = Folder(self.out)
        if not (names := folder.names()):
            return None
        found: Any = None
        if MANIFEST in names:
            with tempfile.TemporaryDirectory(prefix="capgrade-") as copy:
                folder.get(MANIFEST, Path(copy) / MANIFEST)
                with suppress(InputError):  # somebody's file, which is no JSON
                    found = read_json(Path(copy) / MANIFEST)
        told = {"params": run.made_with, "inputs": dict(run.inputs), "package": package_version()}
        made_of = json.loads(json.dumps({**told, "packages": dict(run.packages) or None}))
        if isinstance(found, dict) and {key: found.get(key) for key in made_of} == made_of:
            return found
        problem = f"{folder}: holds {min(names)}, which is not of these shards"
        raise InputError(problem, remedy="give the URL of an empty folder")

    def _open(self, work: Path) -> ScoringRun:
        captions = fetch_finished(self.captions, work / "captions")
        return open_shards_run(captions, self.params, self.measures)

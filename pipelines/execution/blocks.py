"""The Beam pipeline under `relevance` and `shards`: blocks of images, scored by fitted measures, written as parts.

An element is a block of images and a group of captions, all of them unless there are too many for a worker. A worker
opens the fitted measures by memory map, scores the block and writes one part file a table, so nothing large passes
between workers, and a run that was stopped goes on with the parts that are missing. Groups of one block are merged,
and the parts joined in image order: the bytes do not depend on the runner, on the number of workers, on groups, or on
interruptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions

from capgrade.pipelines.execution.exchange import without_secrets
from capgrade.pipelines.execution.graph import graph
from capgrade.pipelines.execution.job import Job
from capgrade.pipelines.execution.runners import arguments, plain_errors, processes_here
from capgrade.pipelines.execution.shared import share
from capgrade.pipelines.execution.watch import watch
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import open_arrow

FETCHES = 16  # parts on their way from a URL at a time


def run_blocks(job: Job, what: str, options: Sequence[str] = (), blocks: range | None = None) -> None:
    """Score every unfinished block, of all or of `blocks`, on a Beam runner. `options` are Beam's own; the default runs
    in this process.

    Raises the InputError that a worker raised, if it did.
    """
    missing = [block for block in blocks or range(job.n_blocks) if not job.finished(block)]
    if job.remote:
        elsewhere = job.done_elsewhere()
        missing = fetch(job, [block for block in missing if job.name(job.receipt(block)) in elsewhere]) + [
            block for block in missing if job.name(job.receipt(block)) not in elsewhere
        ]
    if missing:
        _run(job, what, sorted(missing), options)
    if job.remote and (damaged := fetch(job, missing)):
        problem = f"{job.name(job.receipt(damaged[0]))} and its parts do not fit, {len(damaged)} such in all"
        raise InputError(f"{without_secrets(job.remote)}: {problem}", remedy="run again, it computes them anew")


def fetch(job: Job, blocks: Sequence[int]) -> list[int]:
    """Bring parts here from the URL, many at a time. Those that were not as they were written are deleted there, and
    returned: to be computed again."""

    def whole(block: int) -> bool:
        with suppress(OSError):
            if job.fetched(block).finished(block):
                return True
        job.drop(job.receipt(block))
        return False

    with ThreadPoolExecutor(FETCHES) as threads:
        return [block for block, good in zip(blocks, threads.map(whole, blocks), strict=True) if not good]


def _run(job: Job, what: str, todo: list[int], options: Sequence[str]) -> None:
    pipeline_options = PipelineOptions(arguments(options))
    share(job)
    with watch(job, what, len(todo)), plain_errors(), beam.Pipeline(options=pipeline_options) as pipeline:
        graph(pipeline, job, todo, processes_here(pipeline_options))


def joined(job: Job, table: str, blocks: range | None = None) -> Iterator[pa.RecordBatch]:
    """The parts of one table in image order, memory-mapped."""
    for block in blocks or range(job.n_blocks):
        yield open_arrow(job.part(block, table)).get_batch(0)

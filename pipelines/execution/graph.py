"""The Beam pipeline of a job: an element is a block of images and a group of captions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import apache_beam as beam

from capgrade.pipelines.execution.job import Job
from capgrade.pipelines.execution.workers import MergeBlock, ScoreBlock

SHARES = 256  # Dask hands what comes of one element of Create to one worker, reshuffled or not


def graph(pipeline: beam.Pipeline, job: Job, todo: Sequence[int], workers: int = 1) -> None:
    """The pipeline, of a size that depends neither on images nor on captions: runners take some megabytes.

    `todo` are rising block numbers; `workers` is how many processes share a machine's cores.
    """
    scored = (
        pipeline
        | "Runs" >> beam.Create(_runs(todo))
        | "Blocks" >> beam.FlatMap(_elements, groups=len(job.groups))
        | "Spread" >> beam.Reshuffle()
        | "Score" >> beam.ParDo(ScoreBlock(job, workers))
    )
    if len(job.groups) > 1:
        _ = scored | "ByBlock" >> beam.GroupByKey() | "Merge" >> beam.ParDo(MergeBlock(job))


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Rising numbers as runs, each from its first to behind its last; as many as `SHARES` and the gaps ask for."""
    size = -(-len(numbers) // SHARES)
    starts = [k for k, n in enumerate(numbers) if k % size == 0 or n != numbers[k - 1] + 1]
    return [(numbers[a], numbers[b - 1] + 1) for a, b in pairwise([*starts, len(numbers)])]


def _elements(run: tuple[int, int], groups: int) -> Iterator[tuple[int, int]]:
    return ((block, group) for block in range(*run) for group in range(groups))

"""What Beam's workers do: score a block of images, merge its groups of captions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam
from apache_beam.utils.shared import Shared

from capgrade.pipelines.execution.job import Job
from capgrade.pipelines.execution.scoring import Scorer, merge
from capgrade.pipelines.execution.shared import as_worker


class ScoreBlock(beam.DoFn):
    """(block, group) -> its parts on disk; yields the same. Threads of a process share the opened measures."""

    def __init__(self, job: Job, workers: int) -> None:
        self.job, self.workers, self.shared = job, workers, Shared()

    def setup(self) -> None:
        self.scorer = self.shared.acquire(lambda: Scorer(as_worker(self.job), self.workers))

    def process(self, element: tuple[int, int]) -> Iterator[tuple[int, int]]:
        self.scorer.score(*element)
        yield element


class MergeBlock(beam.DoFn):
    """(block, its groups) -> the block's parts on disk; those of the groups go."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def setup(self) -> None:
        self.job = as_worker(self.job)

    def process(self, element: tuple[int, Iterable[int]]) -> None:
        merge(self.job, *element)

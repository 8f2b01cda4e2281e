"""What Beam's workers do: score a block of images, merge its groups of captions."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import apache_beam as beam
import numba

from capgrade.pipelines.execution.job import Job
from capgrade.pipelines.execution.shared import as_worker
from capgrade.pipelines.execution.tables import Batches, Mergeable, Opened
from capgrade.pipelines.measures import FITTED, Fitted
from capgrade.schemas.errors import InputError

# One kernel at a time in a process: each is parallel already, and numba's threads are shared.
_KERNEL = threading.Lock()


class ScoreBlock(beam.DoFn):
    """(block, group) -> its parts on disk; yields the same."""

    def __init__(self, job: Job, workers: int) -> None:
        self.job, self.workers = job, workers

    def setup(self) -> None:
        self.job = as_worker(self.job)
        fit, device = self.job.work / "fit", self.job.device
        fitted: dict[str, Fitted] = {name: FITTED[kind].load(fit / name) for name, kind in self.job.kinds.items()}
        if device != "cpu":
            from capgrade.pipelines.measures.on_device import on_device  # torch only where it is needed

            fitted = {name: on_device(one, device) for name, one in fitted.items()}
        self.opened = Opened(fitted, self.job.work)

    def process(self, element: tuple[int, int]) -> Iterator[tuple[int, int]]:
        (block, group), job = element, self.job
        images, together = job.images(block), len(job.groups) == 1
        if not job.done(block) and (together or not job.done(block, group)):  # a runner may hand it out twice
            with _KERNEL:
                numba.set_num_threads(self._threads())
                if together:
                    batches = job.tables.whole(images, self.opened)
                else:
                    batches = cast(Mergeable, job.tables).partial(images, self.opened, *job.groups[group])
            job.write(batches, block, None if together else group)
        yield element

    def _threads(self) -> int:
        """This machine's, shared by the workers on it; numba counts them a thread."""
        return max(1, numba.config.NUMBA_NUM_THREADS // self.workers)


class MergeBlock(beam.DoFn):
    """(block, its groups) -> the block's parts on disk; those of the groups go. Any number of times, and by several
    workers at once: the block's receipt says that the groups' parts are no longer needed."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def setup(self) -> None:
        self.job = as_worker(self.job)

    def process(self, element: tuple[int, Iterable[int]]) -> None:
        (block, groups), job = element, self.job
        found = None if job.done(block) else self._read(block, sorted(set(groups)))
        if found is not None:
            with _KERNEL:
                batches = cast(Mergeable, job.tables).merged(job.images(block), job.work, found)
            job.write(batches, block)
        job.drop(job.groups_folder(block))

    def _read(self, block: int, groups: Sequence[int]) -> list[Batches] | None:
        """The groups' parts; None when another worker has merged them meanwhile."""
        job, found = self.job, []
        for group in groups:
            try:
                found.append(job.read(block, group))
            except OSError as error:
                if job.done(block):
                    return None
                job.drop(job.receipt(block, group))  # so that it is computed again
                problem = f"{job.name(job.receipt(block, group))} and its parts do not fit"
                where = job.remote or str(job.work)
                raise InputError(f"{where}: {problem}", remedy="run again, it computes them anew") from error
        return found

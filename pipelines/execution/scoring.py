"""Scoring blocks of a job, in whatever runs them: a worker of Beam, a task of another framework, this process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import cast

import numba

from capgrade.pipelines.execution.exchange import without_secrets
from capgrade.pipelines.execution.job import Job
from capgrade.pipelines.execution.tables import Batches, Mergeable, Opened
from capgrade.pipelines.execution.watch import watch
from capgrade.pipelines.measures import FITTED, Fitted
from capgrade.schemas.errors import InputError
from capgrade.schemas.threads import start

# One kernel at a time in a process: each is parallel already, and numba's threads are shared.
KERNEL = threading.Lock()


class Scorer:
    """A job with its fitted measures opened; `workers` share the cores of this machine."""

    def __init__(self, job: Job, workers: int = 1) -> None:
        self.job, self.workers = job, workers
        fit, device = job.work / "fit", job.device
        fitted: dict[str, Fitted] = {name: FITTED[kind].load(fit / name) for name, kind in job.kinds.items()}
        if device != "cpu":
            from capgrade.pipelines.measures.on_device import on_device  # torch only where it is needed

            fitted = {name: on_device(one, device) for name, one in fitted.items()}
        self.opened = Opened(fitted, job.work)

    def score(self, block: int, group: int = 0) -> None:
        """Write the parts of a block, or of one of its groups of captions, unless they are there: a runner may hand it
        out twice."""
        together = len(self.job.groups) == 1
        if not self.job.done(block) and (together or not self.job.done(block, group)):
            self.job.write(self.tables(block, group), block, None if together else group)

    def tables(self, block: int, group: int = 0) -> Batches:
        """A block's tables, or what a group of captions adds to them."""
        job, images = self.job, self.job.images(block)
        with KERNEL:
            start()
            numba.set_num_threads(self._threads())
            if len(job.groups) == 1:
                return job.tables.whole(images, self.opened)
            return cast(Mergeable, job.tables).partial(images, self.opened, *job.groups[group])

    def _threads(self) -> int:
        """This machine's, shared by the workers on it; numba counts them a thread."""
        return max(1, numba.config.NUMBA_NUM_THREADS // self.workers)


def score_here(job: Job, what: str, blocks: Iterable[int]) -> None:
    """Score the unfinished of some blocks in this process, without Beam."""
    missing = [block for block in blocks if not job.finished(block)]
    if missing:
        scorer = Scorer(job)
        with watch(job, what, len(missing)):
            for block in missing:
                for group in range(len(job.groups)):
                    scorer.score(block, group)
                if len(job.groups) > 1:
                    merge(job, block, range(len(job.groups)))


def merge(job: Job, block: int, groups: Iterable[int]) -> None:
    """Write a block's parts from those of its groups, which go. Any number of times, and by several workers at once:
    the block's receipt says that the groups' parts are no longer needed."""
    found = None if job.done(block) else _read(job, block, sorted(set(groups)))
    if found is not None:
        with KERNEL:
            batches = cast(Mergeable, job.tables).merged(job.images(block), job.work, found)
        job.write(batches, block)
    job.drop(job.groups_folder(block))


def _read(job: Job, block: int, groups: Sequence[int]) -> list[Batches] | None:
    """The groups' parts; None when another worker has merged them meanwhile."""
    found: list[Batches] = []
    for group in groups:
        try:
            found.append(job.read(block, group))
        except OSError as error:
            if job.done(block):
                return None
            job.drop(job.receipt(block, group))  # so that it is computed again
            problem = f"{job.name(job.receipt(block, group))} and its parts do not fit"
            where = without_secrets(job.remote or str(job.work))
            raise InputError(f"{where}: {problem}", remedy="run again, it computes them anew") from error
    return found

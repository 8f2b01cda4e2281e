"""The run under `relevance` and `shards`: blocks of images, each made by a worker, joined in image order.

Blocks are made one after the other in this process, or wherever a runner of Beam hands them out. A worker writes one
part file a table, so nothing large passes between workers, and a run that was stopped goes on with the parts that are
missing. The bytes do not depend on the runner, on the number of workers, or on interruptions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from capgrade.pipelines.execution.job import Job
from capgrade.pipelines.execution.worker import Worker, share
from capgrade.schemas.errors import InputError
from capgrade.schemas.progress import progress

FETCHES = 16  # parts on their way from a URL at a time


def run_blocks(job: Job, what: str, options: Sequence[str] = (), blocks: range | None = None) -> None:
    """Make the unfinished of all blocks, or of `blocks`: on a Beam runner if there are `options`, which are Beam's own,
    else in this process.

    Raises the InputError that a worker raised, if it did.
    """
    todo = [block for block in blocks or range(job.n_blocks) if not job.finished(block)]
    elsewhere = job.done_elsewhere()
    damaged = fetch(job, [block for block in todo if block in elsewhere])
    todo = sorted([*damaged, *(block for block in todo if block not in elsewhere)])
    if todo:
        share(job)
        with watch(job, what, len(todo)):
            _run(job, todo, options)
    if job.remote and (damaged := fetch(job, todo)):
        problem = f"{job.name(job.receipt(damaged[0]))} and its parts do not fit, {len(damaged)} such in all"
        raise InputError(f"{job.remote}: {problem}", remedy="run again, it computes them anew")


def fetch(job: Job, blocks: Sequence[int]) -> list[int]:
    """Bring parts here from the URL, many at a time. Returns the blocks to be computed again."""
    with ThreadPoolExecutor(FETCHES) as threads:
        return [block for block, whole in zip(blocks, threads.map(job.fetch, blocks), strict=True) if not whole]


def _run(job: Job, todo: Sequence[int], options: Sequence[str]) -> None:
    if options:
        from capgrade.pipelines.execution.runners import run_on_beam  # Beam only where it is needed

        run_on_beam(job, todo, options)
        return
    worker = Worker(job)
    for block in todo:
        worker.make(block)


@contextmanager
def watch(job: Job, what: str, total: int) -> Iterator[None]:
    """A progress bar that counts receipts: it works for any runner."""
    stop, shown = threading.Event(), job.receipts()
    with progress(what, total, "blocks") as advance:

        def count() -> None:
            nonlocal shown
            while not stop.wait(10 if job.url else 0.3):
                new = max(0, job.receipts() - shown)
                advance(new)
                shown += new

        thread = threading.Thread(target=count, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

"""The progress bar of a run, from the receipts that its workers have written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from capgrade.pipelines.execution.job import Job
from capgrade.schemas.errors import InputError
from capgrade.schemas.progress import progress


@contextmanager
def watch(job: Job, what: str, total: int) -> Iterator[None]:
    """A progress bar that counts receipts: it works for any runner."""
    stop = threading.Event()
    before = sum(1 for _ in (job.work / "parts").glob("*-.json"))
    with progress(what, total, "blocks") as advance:

        def count() -> None:
            shown = 0
            while not stop.wait(10 if job.remote else 0.3):
                here = sum(1 for _ in (job.work / "parts").glob("*-.json"))
                done = max(here, _elsewhere(job)) - before
                if done > shown:
                    advance(done - shown)
                    shown = done

        thread = threading.Thread(target=count, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def _elsewhere(job: Job) -> int:
    try:
        return len(job.done_elsewhere())
    except InputError:  # a store that does not answer now: workers say so where it matters
        return 0

"""Beam's runners: the pipeline of a job, the options, and what Beam says and does where it has no interface to ask: its
texts, its workers' processes, its log.

Written for Beam 2.77. tests/pipelines/execution/test_beam_workers.py fails where another version says it otherwise.
"""

import logging
import os
import re
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from types import FrameType

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.utils.shared import Shared

from capgrade.pipelines.execution.job import Job, Worker
from capgrade.pipelines.execution.runner_checks import check_runner, dask_watched
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import output_of

SHARES = 256  # Dask hands what comes of one element of Create to one worker, reshuffled or not
ENDED = re.compile(r"Worker subprocess exited with return code (-?\d+)")  # raised in the thread that waits for it
UNWINDS = 5.0  # seconds in which Beam, after an error of a worker's own, raises it and ends all workers
RAISED = re.compile(r"^capgrade\.schemas\.errors\.InputError: (.+?)(?: \[while running .+\])?$", re.MULTILINE)
GONE = "grpc.RpcError"  # raised in the threads of Beam's server that read from a worker which is gone
WORKER = b"sdk_worker_main"  # in the command line of a worker
# FnApiRunner is what DirectRunner ends up with; named, it does not first look for a downloaded one. Dask's is known by
# its full name alone.
RUNNERS = {
    "--runner=DirectRunner": "--runner=FnApiRunner",
    "--runner=DaskRunner": "--runner=apache_beam.runners.dask.dask_runner.DaskRunner",
}


def run_on_beam(job: Job, todo: Sequence[int], options: Sequence[str]) -> None:
    """Make these blocks, rising numbers, on the runner that Beam's options name.

    Raises the InputError that a worker raised, if it did, one where a worker process was killed, and one for a runner
    that is not there.
    """
    given = PipelineOptions(arguments(options))
    check_runner(given)
    with (
        workers_watched(output_of(job.work)) as lose, dask_watched(given, lose), said_once(), plain_errors(),
        beam.Pipeline(options=given) as pipeline,
    ):  # fmt: skip
        graph(pipeline, job, todo, processes_here(given))


def graph(pipeline: beam.Pipeline, job: Job, todo: Sequence[int], workers: int = 1) -> None:
    """The pipeline, of a size that depends neither on images nor on captions: runners take some megabytes.

    `workers` is how many processes share a machine's cores.
    """
    _ = (
        pipeline
        | "Shares" >> beam.Create(shares(todo))
        | "Blocks" >> beam.FlatMap(lambda share: range(*share))
        | "Spread" >> beam.Reshuffle()
        | "Make" >> beam.ParDo(MakeBlock(job, workers))
    )


def shares(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Rising numbers as runs, each from its first to behind its last; as many as `SHARES` and the gaps ask for."""
    size = -(-len(numbers) // SHARES)
    starts = [k for k, n in enumerate(numbers) if k % size == 0 or n != numbers[k - 1] + 1]
    return [(numbers[a], numbers[b - 1] + 1) for a, b in pairwise([*starts, len(numbers)])]


class Opening(beam.DoFn):
    """One of `workers` processes on its machine, whose threads share what one of them has opened."""

    def __init__(self, workers: int = 1) -> None:
        self.workers, self.shared = workers, Shared()

    def worker(self, job: Job) -> Worker:
        """Opened. Kept here too: `Shared` keeps what was asked for last alone."""
        self.opened: Worker = self.shared.acquire(lambda: Worker(job, self.workers), tag=job.url)
        return self.opened


class MakeBlock(Opening):
    """A block -> its parts on disk; yields the same."""

    def __init__(self, job: Job, workers: int = 1) -> None:
        super().__init__(workers)
        self.job = job

    def process(self, block: int) -> Iterator[int]:
        self.worker(self.job).make(block)
        yield block


def arguments(options: Sequence[str]) -> list[str]:
    """Beam's options: the runner by the name that serves, and one element a partition of Dask, as each is much work."""
    if "--runner" in options[:-1]:  # its value follows as a word of its own
        at = list(options).index("--runner")
        options = [*options[:at], f"--runner={options[at + 1]}", *options[at + 2 :]]
    runner = next((option for option in options if option.startswith("--runner=")), "--runner=DirectRunner")
    others = [option for option in options if option != runner]
    if runner == "--runner=DaskRunner" and not any("partition" in option.partition("=")[0] for option in others):
        others.append("--dask_partition_size=1")
    return [RUNNERS.get(runner, runner), *others]


def processes_here(options: PipelineOptions) -> int:
    """How many worker processes share this machine's cores, as the direct runner's options say. Threads of one process
    take turns with all cores; what other runners start on a machine their options do not say."""
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode != "multi_processing":
        return 1
    return direct.direct_num_workers or os.cpu_count() or 1


@contextmanager
def plain_errors() -> Iterator[None]:
    """Beam adds its words to what a worker raises; from another process it has a traceback as text. Hand users the
    InputError inside."""
    try:
        yield
    except Exception as error:
        if raised := RAISED.findall("".join(traceback.format_exception_only(error))):
            raise InputError(raised[-1]) from None
        raise


@contextmanager
def workers_watched(out: Path) -> Iterator[Callable[[str, str], None]]:
    """InputError when one of Beam's worker processes ended before its work: Beam would wait for its answer for ever.
    Ctrl-C ends them all. Yields what another thread calls, with problem and remedy, for an InputError of that."""
    main = threading.main_thread()
    if threading.current_thread() is not main:
        yield lambda *_: None
        return

    killed = False
    told_by_others: list[tuple[str, str]] = []
    lost, left = threading.Event(), threading.Event()

    def told(found: threading.ExceptHookArgs) -> None:
        nonlocal killed
        status = ended(found.exc_value)
        if status is None and f"{found.exc_type.__module__}.{found.exc_type.__name__}" != GONE:
            hook(found)
            return
        killed |= status is not None and not 0 <= status < 128
        lost.set()

    def interrupt() -> None:
        """Stop the main thread, again until it has left: a signal may find it where it wakes nobody, or what it raises
        be passed over."""
        lost.wait()
        while not left.wait(UNWINDS):
            signal.pthread_kill(main.ident or 0, signal.SIGUSR1)

    def stop(*_: object) -> None:
        if left.is_set():
            return
        end = "was killed, perhaps because memory ran out" if killed else "ended before its work was done"
        _end_workers(os.getpid())
        for problem, remedy in told_by_others:
            raise InputError(problem, file=out, remedy=remedy)
        remedy = "run again, it goes on; fewer workers need less memory"
        raise InputError(f"a worker process {end}", file=out, remedy=remedy)

    def lose(problem: str, remedy: str) -> None:
        told_by_others.append((problem, remedy))
        lost.set()

    def stop_all(number: int, frame: FrameType | None) -> None:
        _end_workers(os.getpid())
        signal.default_int_handler(number, frame)

    watcher = threading.Thread(target=interrupt, daemon=True)
    hook, handler = threading.excepthook, signal.signal(signal.SIGUSR1, stop)
    interrupted = signal.getsignal(signal.SIGINT)
    if interrupted is signal.default_int_handler:
        signal.signal(signal.SIGINT, stop_all)
    threading.excepthook = told
    watcher.start()
    try:
        yield lose
    finally:
        left.set()
        if not lost.is_set():  # else the ends of the other workers are still to be told, after the one error
            threading.excepthook = hook
        lost.set()
        watcher.join()
        signal.signal(signal.SIGUSR1, handler)
        if interrupted is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupted)


def ended(error: BaseException | None) -> int | None:
    """The exit status of a worker whose end this error tells; None for any other error."""
    code = ENDED.search(str(error))
    return int(code[1]) if code else None


def _end_workers(process: int) -> None:
    """Kill the workers that a process has started: those that are not connected yet do not hear that all is over, and
    Beam waits for them. Only where there is /proc."""
    for listing in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # threads and processes end meanwhile
            for child in map(int, listing.read_text(encoding="ascii").split()):
                _end_workers(child)
                if WORKER in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(child, signal.SIGKILL)


@contextmanager
def said_once() -> Iterator[None]:
    """Beam logs what a worker raises with three tracebacks before it is raised here."""
    log = logging.getLogger("apache_beam")
    level = log.level
    if not os.environ.get("CAPGRADE_DEBUG"):
        log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)

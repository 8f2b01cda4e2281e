"""Beam's runners: the pipeline of a job, Beam's options, and what a worker raises."""

import os
import re
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from textwrap import shorten

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.utils.shared import Shared

from capgrade.pipelines.execution.worker import Job, Worker
from capgrade.schemas.errors import InputError

# How many elements the blocks are dealt out from. Dask works off all that comes of one element of
# Create in one worker, reshuffled or not.
SHARES = 256
_SHOWN = 400  # characters of what Beam says
RAISED = re.compile(
    r"^capgrade\.schemas\.errors\.InputError: (.+?)(?: \[while running .+\])?$", re.MULTILINE
)
# FnApiRunner is what DirectRunner ends up with, after it has looked for a runner to download.
# Dask's runner is known by its full name alone.
RUNNERS = {
    "--runner=DirectRunner": "--runner=FnApiRunner",
    "--runner=DaskRunner": "--runner=apache_beam.runners.dask.dask_runner.DaskRunner",
}


@dataclass(frozen=True)
class BeamRunner:
    """Workers are those of the runner that Beam's `options` name: the words after `--`."""

    options: Sequence[str]

    def __call__(self, job: Job, todo: Sequence[int]) -> None:
        """Make these blocks, rising numbers. InputError that a worker raised, and for whatever Beam
        itself raises, in one line."""
        with _plain_errors():
            options = PipelineOptions(arguments(self.options))
            with beam.Pipeline(options=options) as pipeline:
                graph(pipeline, job, todo, local_processes(options))


def graph(pipeline: beam.Pipeline, job: Job, todo: Sequence[int], workers: int = 1) -> None:
    """The pipeline that makes blocks; `workers` is how many processes share a machine's cores.

    Its size depends neither on images nor on captions, as runners take some megabytes at most.
    """
    _ = (
        pipeline
        | "Shares" >> beam.Create(shares(todo))
        | "Blocks" >> beam.FlatMap(lambda share: range(*share))
        | "Spread" >> beam.Reshuffle()
        | "Job" >> beam.Map(lambda block: (job, block))
        | "Make" >> beam.ParDo(MakeBlock(workers))
    )


def shares(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Rising numbers as about `SHARES` runs without gaps, each as (first, behind the last)."""
    size = -(-len(numbers) // SHARES)
    starts = [k for k, n in enumerate(numbers) if k % size == 0 or n != numbers[k - 1] + 1]
    return [(numbers[a], numbers[b - 1] + 1) for a, b in pairwise([*starts, len(numbers)])]


class MakeBlock(beam.DoFn):
    """A job and a block -> its part in the folder of the run. Gives the job with the first block.

    A process's threads share a `Worker`; `workers` is how many processes share the cores of the
    machine.
    """

    def __init__(self, workers: int = 1) -> None:
        self.workers, self.shared = workers, Shared()

    def process(self, element: tuple[Job, int]) -> Iterator[tuple[int, Job | None]]:
        job, block = element
        # Kept as an attribute, as `Shared` lets go of all but the last that was asked for.
        self.worker: Worker = self.shared.acquire(lambda: Worker(job, self.workers), tag=job.url)
        self.worker.make(block)
        yield 0, None if block else job


def arguments(options: Sequence[str]) -> list[str]:
    """Beam's options, with the runner's name as Beam takes it.

    Partitions of Dask get one element each, as each element is much work.
    """
    if "--runner" in options[:-1]:  # its value follows as a word of its own
        at = list(options).index("--runner")
        options = [*options[:at], f"--runner={options[at + 1]}", *options[at + 2 :]]
    runner = next(
        (option for option in options if option.startswith("--runner=")), "--runner=DirectRunner"
    )
    others = [option for option in options if option != runner]
    if runner == "--runner=DaskRunner" and not any(
        "partition" in option.partition("=")[0] for option in others
    ):
        others.append("--dask_partition_size=1")
    return [RUNNERS.get(runner, runner), *others]


def local_processes(options: PipelineOptions) -> int:
    """How many worker processes share this machine's cores, by the direct runner's options.

    Threads of one process take turns with all cores. Other runners' options do not say.
    """
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode != "multi_processing":
        return 1
    return direct.direct_num_workers or os.cpu_count() or 1


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Raise the InputError of a worker as it was, and all else that Beam raises as one, in its own
    words on one line.

    Beam adds words to the former, and from another process it comes as the text of a traceback.
    """
    try:
        yield
    except Exception as error:
        text = "".join(traceback.format_exception_only(error))
        if raised := RAISED.findall(text):
            raise InputError(raised[-1]) from None
        words = shorten(" ".join(text.split()), _SHOWN, placeholder=" ...")
        remedy = "check the runner and its options, which follow `--`; finished blocks stay"
        raise InputError(f"Apache Beam: {words}", remedy=remedy) from error

"""The Beam pipeline under `relevance` and `shards`: blocks of images, scored by fitted measures, written as parts.

An element is a block of images and a group of captions, all of them unless there are too many for a worker. A worker
opens the fitted measures by memory map, scores the block and writes one part file a table, so nothing large passes
between workers, and a run that was stopped goes on with the parts that are missing. Groups of one block are merged,
and the parts joined in image order: the bytes do not depend on the runner, on the number of workers, on groups, or on
interruptions.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, cast

import apache_beam as beam
import numba
import numpy as np
import pyarrow as pa
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions

from pipelines.measures import FITTED, Fitted, Measure
from pipelines.measures.base import CHUNK
from pipelines.remote import Remote
from schemas.captions import Captions
from schemas.devices import device_of
from schemas.errors import InputError
from schemas.files import digest, open_arrow, write_arrow, write_json
from schemas.progress import progress

# FnApiRunner is what DirectRunner ends up with; named, it does not first look for a downloaded one. Dask's is known by
# its full name alone.
RUNNERS = {
    "--runner=DirectRunner": "--runner=FnApiRunner",
    "--runner=DaskRunner": "--runner=apache_beam.runners.dask.dask_runner.DaskRunner",
}
# One kernel at a time in a process: each is parallel already, and numba's threads are shared.
_KERNEL = threading.Lock()
SHARED = ("fit", "keys")  # folders of the work folder that workers read


Batches = dict[str, pa.RecordBatch]


@dataclass(frozen=True)
class Opened:
    """What a worker has opened: the fitted measures, and the folder with whatever else the stage saved for it."""

    fitted: Mapping[str, Fitted]
    folder: Path


class Tables(Protocol):
    """What a stage makes of a block of images: record batches by table name. Sent to workers, so small."""

    def whole(self, images: np.ndarray, opened: Opened) -> Batches:
        """Of all captions."""
        ...


class Mergeable(Tables, Protocol):
    """Tables that can be made of groups of captions."""

    def partial(self, images: np.ndarray, opened: Opened, start: int, stop: int) -> Batches:
        """Of captions start..stop: what `merged` needs of them."""
        ...

    def merged(self, images: np.ndarray, folder: Path, parts: Sequence[Batches]) -> Batches:
        """`whole`, of the partial tables of all captions."""
        ...


@dataclass(frozen=True)
class Job:
    """Blocks of images to score: where the fitted measures and the parts are, and what to make of a block."""

    work: Path
    kinds: dict[str, str]  # measure -> class of its fitted form
    tables: Tables
    n_images: int
    block_images: int
    n_captions: int
    group_captions: int | None = None  # None: all together
    device: str = "cpu"
    remote: str | None = None  # URL that workers on other machines exchange files by; None: they see `work`

    @property
    def n_blocks(self) -> int:
        return -(-self.n_images // self.block_images)

    @property
    def groups(self) -> list[tuple[int, int]]:
        """Start and stop of each group of captions, in whole chunks."""
        size = self.n_captions if self.group_captions is None else -(-self.group_captions // CHUNK) * CHUNK
        return [(at, min(at + size, self.n_captions)) for at in range(0, self.n_captions, size)]

    def images(self, block: int) -> np.ndarray:
        return np.arange(block * self.block_images, min((block + 1) * self.block_images, self.n_images))

    def part(self, block: int, table: str, group: int | None = None) -> Path:
        name = f"{block:06d}" if group is None else f"{block:06d}.{group:04d}"
        return self.work / "parts" / f"{name}-{table}.arrow"

    def receipt(self, block: int, group: int | None = None) -> Path:
        """Written after a block's parts, with their digests: a block without a whole one is computed again."""
        return self.part(block, "", group).with_suffix(".json")

    def finished(self, block: int, group: int | None = None) -> bool:
        try:
            parts = json.loads(self.receipt(block, group).read_text(encoding="utf-8"))
            return all(digest(self.part(block, table, group)) == sha for table, sha in parts.items())
        except (OSError, ValueError, AttributeError):
            return False

    def write(self, batches: Batches, block: int, group: int | None = None) -> None:
        receipt = {}
        for table, batch in batches.items():
            part = self.part(block, table, group)
            write_arrow(part, batch.schema, [batch])
            receipt[table] = digest(part)
        write_json(self.receipt(block, group), receipt)
        if self.remote:
            files = [*(self.part(block, table, group) for table in batches), self.receipt(block, group)]
            Remote(self.remote).put(self.work, [self.name(file) for file in files])
            for file in files:
                file.unlink()

    def read(self, block: int, group: int) -> Batches:
        if self.remote:
            self.fetch(block, group)
        tables = json.loads(self.receipt(block, group).read_text(encoding="utf-8"))
        return {table: open_arrow(self.part(block, table, group)).get_batch(0) for table in tables}

    def fetch(self, block: int, group: int | None = None) -> None:
        """Bring a block's parts here. InputError when they are not what the worker wrote."""
        remote = Remote(cast(str, self.remote))
        remote.get(self.name(self.receipt(block, group)), self.work)
        for table in json.loads(self.receipt(block, group).read_text(encoding="utf-8")):
            remote.get(self.name(self.part(block, table, group)), self.work)
        if not self.finished(block, group):
            problem = f"{self.name(self.receipt(block, group))} and its parts do not fit"
            raise InputError(f"{self.remote}: {problem}", remedy="delete them there and run again")

    def name(self, file: Path) -> str:
        return file.relative_to(self.work).as_posix()

    def done_elsewhere(self) -> set[str]:
        """Names of the receipts at the URL."""
        return {name for name in Remote(self.remote).names("parts") if name.endswith(".json")} if self.remote else set()


class ScoreBlock(beam.DoFn):
    """(block, group) -> its parts on disk; yields the same."""

    def __init__(self, job: Job, threads: int) -> None:
        self.job, self.threads = job, threads

    def setup(self) -> None:
        numba.set_num_threads(min(self.threads, numba.get_num_threads()))
        self.job, self.elsewhere = _placed(self.job), self.job.done_elsewhere()
        fit, device = self.job.work / "fit", self.job.device
        fitted: dict[str, Fitted] = {name: FITTED[kind].load(fit / name) for name, kind in self.job.kinds.items()}
        if device != "cpu":
            from pipelines.measures.on_device import on_device  # torch only where it is needed

            fitted = {name: on_device(one, device) for name, one in fitted.items()}
        self.opened = Opened(fitted, self.job.work)

    def process(self, element: tuple[int, int]) -> Iterator[tuple[int, int]]:
        (block, group), job = element, self.job
        images = job.images(block)
        if len(job.groups) == 1:
            with _KERNEL:
                batches = job.tables.whole(images, self.opened)
            job.write(batches, block)
        elif not self._done(block, group):
            with _KERNEL:
                batches = cast(Mergeable, job.tables).partial(images, self.opened, *job.groups[group])
            job.write(batches, block, group)
        yield element

    def _done(self, block: int, group: int) -> bool:
        """A group needs no second time: it or its block is here, or at the URL."""
        job = self.job
        names = {job.name(job.receipt(block)), job.name(job.receipt(block, group))}
        return job.finished(block) or job.finished(block, group) or bool(names & self.elsewhere)


class MergeBlock(beam.DoFn):
    """(block, its groups) -> the block's parts on disk; those of the groups go."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def setup(self) -> None:
        self.job = _placed(self.job)

    def process(self, element: tuple[int, Iterable[int]]) -> None:
        (block, groups), job = element, self.job
        if not job.finished(block):  # a runner may hand it out twice
            found = [job.read(block, group) for group in sorted(groups)]
            with _KERNEL:
                batches = cast(Mergeable, job.tables).merged(job.images(block), job.work, found)
            job.write(batches, block)
        files = list((job.work / "parts").glob(f"{block:06d}.*"))
        if job.remote:
            Remote(job.remote).delete(job.name(file) for file in files)
        for path in files:
            path.unlink()


def _placed(job: Job) -> Job:
    """The job as a worker sees it: with a local copy of what is at the URL, if there is one."""
    if job.remote is None:
        return job
    work = Remote(job.remote).mirror(SHARED)
    (work / "parts").mkdir(exist_ok=True)
    return replace(job, work=work)


def place(device: str, url: str | None, work: Path) -> tuple[str, str | None]:
    """The device, and the folder of this run at the URL. InputError, before anything is computed, when there is no such
    device or no way to such a URL."""
    device_of(device)
    exchange = None if url is None else f"{url.rstrip('/')}/{(work / 'key').read_text(encoding='utf-8')[:16]}"
    if exchange:
        Remote(exchange)
    return device, exchange


def forget(job: Job) -> None:
    """Delete what a finished run left at the URL."""
    if job.remote:
        Remote(job.remote).clear()


def fit_measures(measures: dict[str, Measure], captions: Captions, work: Path) -> dict[str, str]:
    """Fit the measures and save them for the workers; the class of each fitted form."""
    kinds = {}
    for name, measure in measures.items():
        fitted = measure.fit(captions)
        fitted.save(work / "fit" / name)  # type: ignore[attr-defined]
        kinds[name] = type(fitted).__name__
    return kinds


def run_blocks(job: Job, what: str, options: Sequence[str] = ()) -> None:
    """Score every unfinished block on a Beam runner. `options` are Beam's own; the default runs in this process.

    Raises the InputError that a worker raised, if it did.
    """
    elsewhere = job.done_elsewhere()
    missing = [block for block in range(job.n_blocks) if not job.finished(block)]
    todo = [block for block in missing if job.name(job.receipt(block)) not in elsewhere]
    if todo:
        _run(job, what, todo, options)
    for block in missing if job.remote else ():
        job.fetch(block)


def _run(job: Job, what: str, todo: list[int], options: Sequence[str]) -> None:
    pipeline_options = PipelineOptions(_arguments(options))
    workers = max(1, pipeline_options.view_as(DirectOptions).direct_num_workers or os.cpu_count() or 1)
    threads = max(1, numba.get_num_threads() // workers)
    if job.remote:
        shared = [job.name(file) for folder in SHARED for file in (job.work / folder).rglob("*") if file.is_file()]
        Remote(job.remote).put(job.work, shared)
    with _watch(job, what, len(todo)), _plain_errors(), beam.Pipeline(options=pipeline_options) as pipeline:
        scored = (
            pipeline
            | "Blocks" >> beam.Create([(block, group) for block in todo for group in range(len(job.groups))])
            | "Spread" >> beam.Reshuffle()
            | "Score" >> beam.ParDo(ScoreBlock(job, threads))
        )
        if len(job.groups) > 1:
            _ = scored | "ByBlock" >> beam.GroupByKey() | "Merge" >> beam.ParDo(MergeBlock(job))


def _arguments(options: Sequence[str]) -> list[str]:
    """Beam's options: the runner by the name that serves, and one element a partition of Dask, as each is much work."""
    if "--runner" in options[:-1]:  # its value follows as a word of its own
        at = list(options).index("--runner")
        options = [*options[:at], f"--runner={options[at + 1]}", *options[at + 2 :]]
    runner = next((option for option in options if option.startswith("--runner=")), "--runner=DirectRunner")
    others = [option for option in options if option != runner]
    if runner == "--runner=DaskRunner" and not any(option.startswith("--dask_partition") for option in others):
        others.append("--dask_partition_size=1")
    return [RUNNERS.get(runner, runner), *others]


def joined(job: Job, table: str, blocks: Iterator[int] | range | None = None) -> Iterator[pa.RecordBatch]:
    """The parts of one table in image order, memory-mapped."""
    for block in blocks if blocks is not None else range(job.n_blocks):
        yield open_arrow(job.part(block, table)).get_batch(0)


@contextmanager
def _watch(job: Job, what: str, total: int) -> Iterator[None]:
    """A progress bar that counts receipts: it works for any runner."""
    stop = threading.Event()
    before = job.n_blocks - total
    with progress(what, total) as advance:

        def count() -> None:
            shown = 0
            while not stop.wait(10 if job.remote else 0.3):
                here = (path.name for path in (job.work / "parts").glob("??????-.json"))
                done = sum(1 for _ in here) + sum(name.count(".") == 1 for name in job.done_elsewhere()) - before
                advance(done - shown)
                shown = done

        thread = threading.Thread(target=count, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Beam wraps what a worker raises; hand users the InputError inside."""
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, InputError):
                raise cause from None
            if cause.args and isinstance(cause.args[0], InputError):
                raise cause.args[0] from None
            cause = cause.__cause__
        raise

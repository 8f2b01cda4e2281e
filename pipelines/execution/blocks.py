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
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Protocol, cast

import apache_beam as beam
import numba
import numpy as np
import pyarrow as pa
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions

from capgrade.pipelines.execution.exchange import Remote
from capgrade.pipelines.measures import FITTED, Fitted, Measure
from capgrade.pipelines.measures.base import CHUNK
from capgrade.schemas.captions import Captions
from capgrade.schemas.devices import device_of
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digest, open_arrow, write_arrow, write_json
from capgrade.schemas.progress import progress

# FnApiRunner is what DirectRunner ends up with; named, it does not first look for a downloaded one. Dask's is known by
# its full name alone.
RUNNERS = {
    "--runner=DirectRunner": "--runner=FnApiRunner",
    "--runner=DaskRunner": "--runner=apache_beam.runners.dask.dask_runner.DaskRunner",
}
# One kernel at a time in a process: each is parallel already, and numba's threads are shared.
_KERNEL = threading.Lock()
SHARED = ("fit", "keys")  # folders of the work folder that workers read
IDS = "image_ids"  # in `keys`
FETCHES = 16  # parts on their way from a URL at a time


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
        name = f"{block:06d}" if group is None else f"{block:06d}/{group:04d}"
        return self.work / "parts" / f"{name}-{table}.arrow"

    def groups_folder(self, block: int) -> Path:
        """Where the parts of a block's groups are until they are merged."""
        return self.work / "parts" / f"{block:06d}"

    def receipt(self, block: int, group: int | None = None) -> Path:
        """Written after a block's parts, with their digests: a block without a whole one is computed again."""
        return self.part(block, "", group).with_suffix(".json")

    def finished(self, block: int, group: int | None = None) -> bool:
        """Its receipt and its parts are here, and they fit."""
        try:
            parts = self.digests(block, group)
            return all(digest(self.part(block, table, group)) == sha for table, sha in parts.items())
        except OSError:
            return False

    def digests(self, block: int, group: int | None = None) -> dict[str, str]:
        """Table -> SHA-256, of a receipt; OSError for one that is not there or not whole."""
        try:
            found = json.loads(self.receipt(block, group).read_text(encoding="utf-8"))
            return {str(table): str(sha) for table, sha in found.items()}
        except (ValueError, AttributeError) as error:
            raise OSError("not a receipt") from error

    def done(self, block: int, group: int | None = None) -> bool:
        """It needs no second time: finished here, or its receipt, which is written last, is at the URL."""
        if self.remote:
            return Remote(self.remote).has(self.name(self.receipt(block, group)))
        return self.finished(block, group)

    def write(self, batches: Batches, block: int, group: int | None = None) -> None:
        if self.remote:  # by way of a folder of its own: another worker may be at the same block
            with tempfile.TemporaryDirectory(prefix="capgrade-") as folder:
                there = replace(self, work=Path(folder), remote=None)
                there.write(batches, block, group)
                files = [*(there.part(block, table, group) for table in batches), there.receipt(block, group)]
                Remote(self.remote).put(there.work, [there.name(file) for file in files])
            return
        receipt = {}
        for table, batch in batches.items():
            part = self.part(block, table, group)
            write_arrow(part, batch.schema, [batch])
            receipt[table] = digest(part)
        write_json(self.receipt(block, group), receipt)

    def read(self, block: int, group: int) -> Batches:
        """A group's tables. OSError when they are not there, or not as they were written."""
        if self.remote:
            with tempfile.TemporaryDirectory(prefix="capgrade-") as folder:
                return replace(self, work=Path(folder)).fetched(block, group)._read(block, group)
        return self._read(block, group)

    def _read(self, block: int, group: int) -> Batches:
        if not self.finished(block, group):
            raise OSError("not as it was written")
        return {t: open_arrow(self.part(block, t, group)).get_batch(0) for t in self.digests(block, group)}

    def fetched(self, block: int, group: int | None = None) -> Job:
        """Itself, with a block's parts brought here from the URL. OSError when they are not there."""
        remote = Remote(cast(str, self.remote))
        remote.get(self.name(self.receipt(block, group)), self.work)
        for table in self.digests(block, group):
            remote.get(self.name(self.part(block, table, group)), self.work)
        return self

    def drop(self, file: Path) -> None:
        """Delete a file or folder of parts, here or at the URL, if it is there."""
        if self.remote:
            Remote(self.remote).delete(self.name(file))
        elif file.is_dir():
            shutil.rmtree(file, ignore_errors=True)
        else:
            file.unlink(missing_ok=True)

    def name(self, file: Path) -> str:
        return file.relative_to(self.work).as_posix()

    def done_elsewhere(self) -> set[str]:
        """Names of the blocks' receipts at the URL."""
        names = Remote(self.remote).names("parts", depth=1) if self.remote else set()
        return {name for name in names if name.endswith(".json")}


class ScoreBlock(beam.DoFn):
    """(block, group) -> its parts on disk; yields the same."""

    def __init__(self, job: Job, workers: int) -> None:
        self.job, self.workers = job, workers

    def setup(self) -> None:
        self.job = _placed(self.job)
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
        self.job = _placed(self.job)

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


def save_ids(image_ids: Sequence[str], work: Path) -> None:
    """For `ids_of`: a million ids are more than a runner takes in a pipeline."""
    batch = pa.record_batch({IDS: pa.array(image_ids, pa.string())})
    write_arrow(work / "keys" / f"{IDS}.arrow", batch.schema, [batch])


def ids_of(images: np.ndarray, folder: Path) -> list[str]:
    """Ids of these image numbers, from what `save_ids` wrote below the folder."""
    column = open_arrow(folder / "keys" / f"{IDS}.arrow").get_batch(0)[IDS]
    return column.take(pa.array(images)).to_pylist()


def fit_measures(measures: dict[str, Measure], captions: Captions, work: Path) -> dict[str, str]:
    """Fit the measures and save them for the workers; the class of each fitted form."""
    kinds = {}
    for name, measure in measures.items():
        fitted = measure.fit(captions)
        fitted.save(work / "fit" / name)  # type: ignore[attr-defined]
        kinds[name] = type(fitted).__name__
    return kinds


def run_blocks(job: Job, what: str, options: Sequence[str] = (), blocks: range | None = None) -> None:
    """Score every unfinished block, of all or of `blocks`, on a Beam runner. `options` are Beam's own; the default runs
    in this process.

    Raises the InputError that a worker raised, if it did.
    """
    missing = [block for block in (range(job.n_blocks) if blocks is None else blocks) if not job.finished(block)]
    if job.remote:
        elsewhere = job.done_elsewhere()
        missing = fetch(job, [block for block in missing if job.name(job.receipt(block)) in elsewhere]) + [
            block for block in missing if job.name(job.receipt(block)) not in elsewhere
        ]
    if missing:
        _run(job, what, sorted(missing), options)
    if job.remote and (damaged := fetch(job, missing)):
        problem = f"{job.name(job.receipt(damaged[0]))} and its parts do not fit, {len(damaged)} such in all"
        raise InputError(f"{job.remote}: {problem}", remedy="run again, it computes them anew")


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
    pipeline_options = PipelineOptions(_arguments(options))
    workers = max(1, pipeline_options.view_as(DirectOptions).direct_num_workers or os.cpu_count() or 1)
    if job.remote:
        shared = [job.name(file) for folder in SHARED for file in (job.work / folder).rglob("*") if file.is_file()]
        Remote(job.remote).put(job.work, shared)
    with _watch(job, what, len(todo)), _plain_errors(), beam.Pipeline(options=pipeline_options) as pipeline:
        graph(pipeline, job, todo, workers)


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
    """Rising numbers as runs, each from its first to behind its last."""
    starts = [k for k, n in enumerate(numbers) if not k or n != numbers[k - 1] + 1]
    return [(numbers[a], numbers[b - 1] + 1) for a, b in pairwise([*starts, len(numbers)])]


def _elements(run: tuple[int, int], groups: int) -> Iterator[tuple[int, int]]:
    return ((block, group) for block in range(*run) for group in range(groups))


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
    before = len(list((job.work / "parts").glob("??????-.json")))
    with progress(what, total) as advance:

        def count() -> None:
            shown = 0
            while not stop.wait(10 if job.remote else 0.3):
                here = sum(1 for _ in (job.work / "parts").glob("??????-.json"))
                done = max(here, len(job.done_elsewhere())) - before
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

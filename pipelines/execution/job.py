"""The run under `relevance` and `shards`: blocks of images, each made by a worker, joined in image order.

Blocks are made one after the other in this process, or wherever a runner of Beam or somebody's own pipeline hands them
out. A worker writes one part file a table, then a receipt with their digests. So nothing large passes between workers,
and a run that was stopped goes on with the blocks that are missing. What every worker reads, the fitted measures and
the ids, is in the work folder or copied from the URL, once per machine. The bytes do not depend on the runner, on the
number of workers, or on interruptions.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa

from capgrade.kernels import start_threads
from capgrade.measures import FITTED, Fitted, Measure, choose, read_by
from capgrade.pipelines.execution.remote import TEMPORARY, Remote, fetch_folder
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.devices import require_device
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    MANIFEST,
    RUN_FILE,
    digest,
    entry_of,
    manifest_of,
    open_arrow,
    output_of,
    whole,
    write_arrow,
    write_json,
    write_manifest,
    write_text,
    writing,
)
from capgrade.schemas.inputs import require_unchanged
from capgrade.schemas.output import PARTS
from capgrade.schemas.params import MeasuresParams, RelevanceParams, ShardsParams
from capgrade.schemas.progress import progress
from capgrade.schemas.say import tell

Batches = dict[str, pa.RecordBatch]  # by table name
# What a stage makes of images, by fitted measures and what it saved in the work folder. Sent to workers, so small.
Tables = Callable[[np.ndarray, Mapping[str, Fitted], Path], Batches]
FORMAT = 1  # of parts: to be raised when a measure, the sampler or a table gives other values of the same parameters
NEUTRAL = {"target_mb"}  # parameters that parts do not depend on
KERNEL = threading.Lock()  # one at a time in a process: each is parallel already, and numba's threads are shared
SHARED = ("fit", "keys")  # folders of the work folder that workers read
IDS = "image_ids"  # in `keys`
RUN = "run"  # in the work folder: the name of the run's folder at the URL
FETCHES = 16  # parts on their way from a URL at a time


@dataclass(frozen=True)
class Source:
    """What a stage scores, and what its manifests say of it: the same for one run and for all its parts."""

    captions: Captions
    chosen: Mapping[str, Measure]
    params: RelevanceParams | ShardsParams
    measures: MeasuresParams
    made_with: Mapping[str, Any]
    files: Mapping[str, str]  # digests of what the measures read

    @staticmethod
    def of(
        stage: str, captions_dir: Path, params: RelevanceParams | ShardsParams, measures: MeasuresParams, **rule: Any
    ) -> Source:
        """Of the stage's parameters, and of its rule where there is one. InputError for unknown measures, or a split
        that is not there."""
        chosen = choose(params.measures, measures)
        captions = read_captions(captions_dir, params.split)
        used = {stage: params.model_dump(exclude={"exchange"}), "measures": measures.used(params.measures), **rule}
        return Source(captions, chosen, params, measures, used, read_by(params.measures, measures))

    @property
    def inputs(self) -> dict[str, str]:
        return {"captions": self.captions.digest, "split": self.captions.split, **self.files}

    @property
    def made_of(self) -> dict[str, Any]:
        """What parts depend on."""
        blocks = {
            name: {key: value for key, value in block.items() if key not in NEUTRAL}
            if isinstance(block, dict)
            else block
            for name, block in self.made_with.items()
        }
        return {"format": FORMAT, **blocks, "inputs": self.inputs}

    @property
    def facts(self) -> dict[str, Any]:
        """What the metadata of every table say of the captions."""
        captions = self.captions
        return {"captions": captions.digest, "split": captions.split, "tokenizer": captions.tokenizer}

    @property
    def n_blocks(self) -> int:
        return count_blocks(self.captions.n_images, self.params.block_images)

    def job(self, work: Path, tables: Callable[[], Tables]) -> Job:
        """For workers, who find the fitted measures and the ids in the work folder. `tables` is called when all are
        fitted: before, imported ones do not know their range."""
        require_device(self.params.device)
        url, kinds = run_url(self.params.exchange, work), {}
        for name, measure in self.chosen.items():
            fitted = measure.fit(self.captions)
            fitted.save(work / "fit" / name)  # type: ignore[attr-defined]
            kinds[name] = type(fitted).__name__
        ids = pa.record_batch({IDS: pa.array(self.captions.image_ids, pa.large_string())})  # runners take no million
        write_arrow(work / "keys" / f"{IDS}.arrow", ids.schema, [ids])
        return Job(
            work=work, kinds=kinds, tables=tables(), n_images=self.captions.n_images,
            block_images=self.params.block_images, device=self.params.device, url=url,
        )  # fmt: skip

    def finish(self, out: Path, kind: str, rows: dict[str, int], **facts: Any) -> dict[str, Any]:
        """The manifest, unless a file that was read has changed meanwhile."""
        require_unchanged(self.files, read_by(self.params.measures, self.measures))
        facts["n_captions"] = self.captions.n_captions
        return write_manifest(out, kind, params=self.made_with, inputs=self.inputs, rows=rows, **facts)


@dataclass(frozen=True, kw_only=True)
class Job:
    """Blocks of images to score: where the fitted measures and the parts are, and what to make of a block."""

    work: Path
    kinds: dict[str, str]  # measure -> class of its fitted form
    tables: Tables
    n_images: int
    block_images: int
    device: str = "cpu"
    url: str | None = None  # of a folder that workers on other machines exchange files by; None: they see `work`

    @property
    def n_blocks(self) -> int:
        return count_blocks(self.n_images, self.block_images)

    @property
    def remote(self) -> Remote | None:
        return Remote(self.url) if self.url else None

    def images(self, block: int) -> np.ndarray:
        """Image numbers of a block, int64."""
        return np.arange(block * self.block_images, min((block + 1) * self.block_images, self.n_images))

    def part(self, block: int, table: str) -> Path:
        """The file of one of a block's tables."""
        return self.work / PARTS / f"{block:06d}-{table}.arrow"

    def receipt(self, block: int) -> Path:
        """A manifest of a block's parts, written after them: a block without a whole one is computed again."""
        return self.work / PARTS / f"{block:06d}-.json"

    def load_fitted(self) -> dict[str, Fitted]:
        """The measures as they were fitted, their arrays mapped."""
        return {name: FITTED[kind].load(self.work / "fit" / name) for name, kind in self.kinds.items()}

    def name(self, file: Path) -> str:
        """A file of the work folder as the URL names it."""
        return file.relative_to(self.work).as_posix()

    def finished(self, block: int) -> bool:
        """Its receipt and its parts are here, and they fit."""
        return whole(self.work, self.receipt(block)) is not None

    def done(self, block: int) -> bool:
        """It needs no second time: finished here, or its receipt, which is written last, is at the URL."""
        return self.remote.has(self.name(self.receipt(block))) if self.remote else self.finished(block)

    def write(self, batches: Batches, block: int) -> None:
        """Write a block's tables, then its receipt, here or to the URL."""
        found = {}
        for table, batch in batches.items():
            file = self.part(block, table)
            found[self.name(file)] = self.put(file, partial(write_arrow, schema=batch.schema, batches=[batch]))
        self.put(self.receipt(block), lambda file: write_json(file, manifest_of("parts", found)))

    def put(self, file: Path, write: Callable[[Path], object]) -> dict[str, Any]:
        """Write a file of the work folder, here or to the URL; its size and digest."""
        if self.remote:
            return self.remote.write(self.name(file), write)
        write(file)
        return entry_of(file)

    def fetch(self, block: int) -> bool:
        """Bring a block's parts here from the URL. False where they are not as they were written: their receipt is
        deleted there, so that they are computed again."""
        assert self.remote is not None
        receipt = self.name(self.receipt(block))
        with suppress(OSError):
            self.remote.get_listed(receipt, self.work)
            return True
        self.remote.delete(receipt)
        return False

    def done_elsewhere(self) -> set[int]:
        names = self.remote.names(PARTS, depth=1) if self.remote else set()
        return {int(Path(name).name.removesuffix("-.json")) for name in names if name.endswith("-.json")}

    def receipts(self) -> int:
        """How many are here or at the URL; a store that does not answer now has none: workers say so where it
        matters."""
        try:
            return max(sum(1 for _ in (self.work / PARTS).glob("*-.json")), len(self.done_elsewhere()))
        except InputError:
            return 0

    def joined(self, table: str, blocks: range | None = None) -> Iterator[pa.RecordBatch]:
        """The parts of one table in image order, memory-mapped."""
        for block in blocks or range(self.n_blocks):
            yield open_arrow(self.part(block, table)).get_batch(0)

    def share(self) -> None:
        """Copy what workers read to the URL, if there is one, and last a manifest: where that is, all is."""
        if self.remote and not self.remote.has(MANIFEST):
            files = [file for folder in SHARED for file in (self.work / folder).rglob("*") if file.is_file()]
            found = {self.name(file): entry_of(file) for file in sorted(files)}
            self.remote.put(self.work, found)
            self.put(self.work / MANIFEST, lambda file: write_json(file, manifest_of("parts", found)))

    def forget(self) -> None:
        """Delete what a finished run left at the URL, and its copies on this machine."""
        if self.remote:
            self.remote.delete("")
            shutil.rmtree(self._copy(), ignore_errors=True)

    def here(self) -> Job:
        """The job with a local copy of what is at the URL, if there is one: one worker of a machine fetches it, the
        others wait, and find it there."""
        if self.url is None:
            return self
        copy = self._copy()
        with writing(copy, TEMPORARY):
            copy.mkdir(mode=0o700, exist_ok=True)
        if copy.lstat().st_uid != os.getuid():
            raise InputError("belongs to another user", file=copy, remedy="set TMPDIR to a folder of your own")
        fetch_folder(self.url, copy, "delete the folder and run again", TEMPORARY, last=PARTS)
        return replace(self, work=copy)

    def _copy(self) -> Path:
        name = hashlib.sha256(str(self.url).encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"capgrade-{os.getuid()}-{name}"


class Worker:
    """A job with its fitted measures opened; `workers` share the cores of this machine."""

    def __init__(self, job: Job, workers: int = 1) -> None:
        self.job, self.workers = job.here(), workers
        self.fitted = self.job.load_fitted()
        if job.device != "cpu":
            from capgrade.measures.on_device import on_device  # torch only where it is needed

            self.fitted = {name: on_device(one, job.device) for name, one in self.fitted.items()}

    def make(self, block: int) -> None:
        """Write the parts of a block unless they are there: a runner may hand it out twice."""
        if not self.job.done(block):
            self.job.write(self.tables(block), block)

    def tables(self, block: int) -> Batches:
        with KERNEL:
            start_threads()
            numba.set_num_threads(max(1, numba.config.NUMBA_NUM_THREADS // self.workers))  # a thread each
            return self.job.tables(self.job.images(block), self.fitted, self.job.work)


def count_blocks(n_images: int, block_images: int) -> int:
    return -(-n_images // block_images)


def run_blocks(job: Job, what: str, options: Sequence[str] = (), blocks: range | None = None) -> None:
    """Make the unfinished of all blocks, or of `blocks`: on a Beam runner if there are `options`, which are Beam's own,
    else in this process.

    Raises the InputError that a worker raised, if it did.
    """
    wanted = blocks or range(job.n_blocks)
    todo = [block for block in wanted if not job.finished(block)]
    elsewhere = job.done_elsewhere()
    damaged = fetch(job, [block for block in todo if block in elsewhere])
    todo = sorted([*damaged, *(block for block in todo if block not in elsewhere)])
    if kept := len(wanted) - len(todo):
        tell(f"{output_of(job.work)}: goes on, {kept:,} of {len(wanted):,} blocks are done")
    if todo:
        job.share()
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


def ids_of(images: np.ndarray, folder: Path) -> list[str]:
    """Ids of these image numbers, from what the job saved in the work folder."""
    column = open_arrow(folder / "keys" / f"{IDS}.arrow").get_batch(0)[IDS]
    return column.take(pa.array(images)).to_pylist()


def run_url(url: str | None, work: Path) -> str | None:
    """The folder of this run at the URL, and of no other: equal runs may go on at once, and each deletes its own. One
    that was stopped has the same again. InputError, before anything is computed, when there is no way to it."""
    if url is None:
        return None
    if not (work / RUN).is_file():
        write_text(work / RUN, run_name(digest(work / RUN_FILE), uuid.uuid4().hex))
    folder = f"{url.rstrip('/')}/{(work / RUN).read_text(encoding='utf-8')}"
    Remote(folder)
    return folder


def run_name(key: str, run: str) -> str:
    """Of a run's folder at a URL: by the digest of what is run, and by what tells this run from equal ones."""
    return f"{key[:16]}-{run[:8]}"

"""The run under `relevance` and `shards`: blocks of images, each made by a worker into a part
file.

Blocks are made one after the other in this process, or wherever a runner of Beam or somebody's own
pipeline hands them out. A part that exists is whole, so a run that was stopped goes on with those
that are missing. What every worker reads, the fitted measures and the ids, stands in the folder of
the run beside the parts. That is the work folder of the output, or one at a URL. The bytes do not
depend on the runner, on the number of workers, or on interruptions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa

from capgrade.devices import require_device
from capgrade.kernels import limited_threads
from capgrade.measures import FITTED, Fitted, Measure, choose, read_by
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.execution.folder import Folder
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import RUN_FILE, open_arrow, output_of, package_version, write_arrow, write_manifest
from capgrade.schemas.inputs import require_unchanged
from capgrade.schemas.output import PARTS, run_key
from capgrade.schemas.params import RelevanceParams, ShardsParams
from capgrade.schemas.progress import progress
from capgrade.schemas.say import tell

# What a stage makes of images, by fitted measures and what it saved in the work folder. Small: it is sent to workers.
Table = Callable[[np.ndarray, Mapping[str, Fitted], Path], pa.RecordBatch]
FORMAT = 2  # of parts: to be raised when a measure, the sampler or a table gives other values of the same parameters
NEUTRAL = {"target_mb"}  # parameters that parts do not depend on
KERNEL = threading.Lock()  # one at a time in a process: each is parallel already, and numba's threads are shared
SHARED = ("fit", "keys")  # folders of a run that workers read
IDS = "image_ids"  # in `keys`
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

    def job(self, work: Path, table: Callable[[], Table]) -> Job:
        """For workers, who find the fitted measures and the ids in the folder of the run. `table`
        is called when all are fitted: before, imported ones do not know their range."""
        require_device(self.params.device)
        url, kinds = run_url(self.params.exchange, work), {}
        for name, measure in self.chosen.items():
            fitted = measure.fit(self.captions)
            fitted.save(work / "fit" / name)  # type: ignore[attr-defined]
            kinds[name] = type(fitted).__name__
        ids = pa.record_batch({IDS: pa.array(self.captions.image_ids, pa.large_string())})  # runners take no million
        write_arrow(work / "keys" / f"{IDS}.arrow", ids.schema, [ids])
        return Job(
            url=url, kinds=kinds, table=table(), n_images=self.captions.n_images,
            block_images=self.params.block_images, device=self.params.device,
        )  # fmt: skip

    def finish(self, out: Path, kind: str, rows: dict[str, int], **facts: Any) -> dict[str, Any]:
        """The manifest, unless a file that was read has changed meanwhile."""
        require_unchanged(self.files, read_by(self.params.measures, self.measures))
        facts["n_captions"] = self.captions.n_captions
        return write_manifest(out, kind, params=self.made_with, inputs=self.inputs, rows=rows, **facts)


@dataclass(frozen=True, kw_only=True)
class Job:
    """Blocks of images to score: where the fitted measures and the parts are, and what to make of a block."""

    url: str  # of the folder of the run
    kinds: dict[str, str]  # measure -> class of its fitted form
    table: Table
    n_images: int
    block_images: int
    device: str = "cpu"

    @property
    def n_blocks(self) -> int:
        return count_blocks(self.n_images, self.block_images)

    def images(self, block: int) -> np.ndarray:
        """Image numbers of a block, int64."""
        return np.arange(block * self.block_images, min((block + 1) * self.block_images, self.n_images))

    def part(self, block: int) -> str:
        """The name of a block's file in the folder of the run."""
        return f"{PARTS}/{block:06d}.arrow"


class Worker:
    """A job with its fitted measures opened; `workers` share the cores of this machine."""

    def __init__(self, job: Job, workers: int = 1) -> None:
        self.job, self.workers, self.folder = job, workers, Folder(job.url)
        self.local = self.folder.local_copy(SHARED)
        fit = self.local / "fit"
        self.fitted: dict[str, Fitted] = {name: FITTED[kind].load(fit / name) for name, kind in job.kinds.items()}
        if job.device != "cpu":
            from capgrade.measures.on_device import on_device  # torch only where it is needed

            self.fitted = {name: on_device(one, job.device) for name, one in self.fitted.items()}

    def make(self, block: int) -> None:
        """Write the part of a block unless it is there: a runner may hand it out twice."""
        name = self.job.part(block)
        if not self.folder.exists(name):
            batch = self.table(block)
            self.folder.write(name, lambda file: write_arrow(file, batch.schema, [batch]))

    def table(self, block: int) -> pa.RecordBatch:
        threads = max(1, numba.config.NUMBA_NUM_THREADS // self.workers)  # this machine's, not the starter's
        with KERNEL, limited_threads(threads):
            return self.job.table(self.job.images(block), self.fitted, self.local)


def count_blocks(n_images: int, block_images: int) -> int:
    return -(-n_images // block_images)


def run_blocks(job: Job, work: Path, what: str, options: Sequence[str] = (), blocks: range | None = None) -> list[Path]:
    """Make the parts of all blocks, or of `blocks`, that are not there: on a Beam runner if there
    are `options`, which are Beam's own, else in this process.

    Returns the local files of the parts, in order. Raises the InputError that a worker raised, if
    it did.
    """
    folder, wanted = Folder(job.url), blocks or range(job.n_blocks)
    there = folder.names(PARTS)
    todo = [block for block in wanted if job.part(block) not in there]
    if kept := len(wanted) - len(todo):
        tell(f"{output_of(work)}: goes on, {kept:,} of {len(wanted):,} blocks are done")
    if todo:
        share(work, folder)
        with watch(folder, what, len(todo)):
            _run(job, todo, options)
    return fetch_parts(folder, [job.part(block) for block in wanted], work)


def _run(job: Job, todo: Sequence[int], options: Sequence[str]) -> None:
    if options:
        from capgrade.pipelines.execution.runners import run_on_beam  # Beam only where it is needed

        run_on_beam(job, todo, options)
        return
    worker = Worker(job)
    for block in todo:
        worker.make(block)


def share(work: Path, folder: Folder) -> None:
    """Put what workers read into the folder of the run, where that is not the work folder itself."""
    if folder.local != work.resolve():
        for path in sorted(path for name in SHARED for path in (work / name).rglob("*") if path.is_file()):
            folder.put(path, path.relative_to(work).as_posix())


def fetch_parts(folder: Folder, names: Sequence[str], work: Path) -> list[Path]:
    """The local files of parts: those at a URL are copied into the work folder, many at a time."""
    files = [(folder.local or work) / name for name in names]
    missing = [(name, file) for name, file in zip(names, files, strict=True) if not file.is_file()]
    if missing and folder.local:
        problem = f"{len(missing)} of {len(names)} parts are not here, though workers have ended"
        remedy = "let workers see --out under this path, or give a URL that they reach as `exchange`"
        raise InputError(problem, file=folder.local, remedy=remedy)
    with ThreadPoolExecutor(FETCHES) as threads:
        list(threads.map(lambda one: folder.get(*one), missing))
    return files


@contextmanager
def watch(folder: Folder, what: str, total: int) -> Iterator[None]:
    """A progress bar that counts parts: it works for any runner."""
    stop, shown = threading.Event(), len(folder.names(PARTS))
    with progress(what, total, "blocks") as advance:

        def count() -> None:
            nonlocal shown
            while not stop.wait(0.5 if folder.local else 10):
                with suppress(InputError):  # where a store does not answer, workers say so
                    now = len(folder.names(PARTS))
                    advance(now - shown)
                    shown = now

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


def run_url(exchange: str | None, work: Path) -> str:
    """Where parts go: the work folder, or a folder below the URL that a run into the same output
    finds again. InputError, before anything is computed, when there is no way to it."""
    if exchange is None:
        return str(work.resolve())
    key = [str(work.resolve()), (work / RUN_FILE).read_text(encoding="utf-8")]
    return Folder(f"{exchange.rstrip('/')}/{run_name(key)}").url


def run_name(made_of: Any) -> str:
    """Of a folder at a URL, by what its files depend on. Another version may read fitted measures
    differently."""
    return run_key([made_of, package_version()])[:16]

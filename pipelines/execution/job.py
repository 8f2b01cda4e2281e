"""A run of `relevance` or `shards`: blocks of images, each made by a worker into a part file.

A stage opens its run (`open_run`), fits and saves the measures (`save_job`), has workers make the
parts that are missing (`run_blocks`), in this process or where a runner of Beam starts them, and
writes a manifest (`finish_run`). Parts and saved measures stand in the folder of the run, which is
the work folder or one at a URL. A part that exists is whole, so a stopped run goes on. Bytes depend
neither on the runner, nor on workers, nor on stops.
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
from capgrade.measures import FITTED, Fitted, Measure, choose, file_digests
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.execution.folder import Folder
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    RUN_FILE,
    open_arrow,
    output_of,
    package_version,
    write_arrow,
    write_manifest,
)
from capgrade.schemas.inputs import require_unchanged
from capgrade.schemas.output import PARTS, run_key
from capgrade.schemas.params import RelevanceParams, ShardsParams
from capgrade.schemas.progress import progress
from capgrade.schemas.say import tell

# A stage's part of one block: from image numbers, their ids, the fitted measures, and the local
# folder of the run, where the stage may have saved more. Small, as it is sent to every worker.
TableMaker = Callable[[np.ndarray, list[str], Mapping[str, Fitted], Path], pa.RecordBatch]
FORMAT = 2  # of parts: raise it when the same parameters give other values
NEUTRAL = {"target_mb"}  # parameters that parts do not depend on
# Blocks of one process are made one after the other: the kernels of one block use all its cores.
_ONE_BLOCK = threading.Lock()
SHARED = ("fit", "keys")  # folders of a run that workers read
_IDS = ("keys", "image_ids.arrow")  # where the ids of images stand
FETCHES = 16  # parts that are copied from a URL at the same time


def open_run(
    stage: str,
    captions_dir: Path,
    params: RelevanceParams | ShardsParams,
    measures: MeasuresParams,
    **rule: Any,
) -> ScoringRun:
    """Read the captions of a split, and gather what a run of `stage` depends on.

    `rule` is what its parts depend on beside parameters and inputs. InputError for unknown
    measures, and for a split, a device or a way to `exchange` that is not there.
    """
    chosen = choose(params.measures, measures)
    require_device(params.device)
    if params.exchange:
        Folder(params.exchange)
    own = params.model_dump(exclude={"exchange"})
    made_with = {stage: own, "measures": measures.used(params.measures), **rule}
    captions = read_captions(captions_dir, params.split)
    return ScoringRun(stage, captions, chosen, params, made_with, file_digests(chosen.values()))


@dataclass(frozen=True)
class ScoringRun:
    """The captions that a run of `relevance` or `shards` scores, and what its parts depend on."""

    stage: str
    captions: Captions
    chosen: Mapping[str, Measure]
    params: RelevanceParams | ShardsParams
    made_with: Mapping[str, Any]  # parameters, as a manifest has them
    files: Mapping[str, str]  # digests of what the measures read

    @property
    def inputs(self) -> dict[str, str]:
        """Digests of captions and of what the measures read, as a manifest has them."""
        return {"captions": self.captions.digest, "split": self.captions.split, **self.files}

    @property
    def made_of(self) -> dict[str, Any]:
        """All that parts depend on."""
        own = self.made_with[self.stage]
        of_parts = {key: value for key, value in own.items() if key not in NEUTRAL}
        return {
            "format": FORMAT,
            **self.made_with,
            self.stage: of_parts,
            "inputs": self.inputs,
        }

    @property
    def facts(self) -> dict[str, str]:
        """What the metadata of every table say of the captions."""
        captions = self.captions
        return {
            "captions": captions.digest,
            "split": captions.split,
            "tokenizer": captions.tokenizer,
        }

    @property
    def n_blocks(self) -> int:
        return count_blocks(self.captions.n_images, self.params.block_images)

    def save_job(
        self, work: Path, make_table: Callable[[], TableMaker], url: str | None = None
    ) -> Job:
        """Fit the measures; save them, and the ids of images, in `work`, where workers find them.

        `make_table` is called when all are fitted: an imported measure knows its range only then.
        `url` is of the folder of the run, where that is not what `run_url` says.
        """
        kinds = {}
        for name, measure in self.chosen.items():
            fitted = measure.fit(self.captions)
            fitted.save(work / "fit" / name)  # type: ignore[attr-defined]
            kinds[name] = type(fitted).__name__
        # A file, as Beam's runners take no million ids in what they send to workers.
        ids = pa.array(self.captions.image_ids, pa.large_string())
        batch = pa.record_batch({"image_ids": ids})
        write_arrow(work.joinpath(*_IDS), batch.schema, [batch])
        return Job(
            url=url or run_url(self.params.exchange, work),
            kinds=kinds,
            table=make_table(),
            n_images=self.captions.n_images,
            block_images=self.params.block_images,
            device=self.params.device,
        )

    def finish_run(
        self, work: Path, kind: str, rows: dict[str, int], **facts: Any
    ) -> dict[str, Any]:
        """Write the manifest, and return it.

        InputError where a file that a measure reads has changed meanwhile.
        """
        now = file_digests(self.chosen.values())
        require_unchanged(self.files, now)
        facts["n_captions"] = self.captions.n_captions
        return write_manifest(
            work, kind, params=self.made_with, inputs=self.inputs, rows=rows, **facts
        )


@dataclass(frozen=True, kw_only=True)
class Job:
    """Blocks of images to score, as it is sent to workers."""

    url: str  # of the folder of the run
    kinds: dict[str, str]  # measure -> class of its fitted form
    table: TableMaker
    n_images: int
    block_images: int
    device: str = "cpu"

    @property
    def n_blocks(self) -> int:
        return count_blocks(self.n_images, self.block_images)

    def part(self, block: int) -> str:
        """The name of a block's file in the folder of the run."""
        return f"{PARTS}/{block:06d}.arrow"


def run_blocks(
    job: Job, work: Path, what: str, options: Sequence[str] = (), blocks: range | None = None
) -> list[Path]:
    """Make the parts of all blocks, or of `blocks`, that are not there.

    With `options`, which are Beam's own, workers are Beam's; else one works in this process.
    Returns the files of the parts in `work`, in order; a folder of the run at a URL is deleted when
    they are here. Raises the InputError that a worker raised.
    """
    wanted = blocks or range(job.n_blocks)
    folder, files = Folder(job.url), [work / job.part(block) for block in wanted]
    apart, done = folder.local != work.resolve(), folder.names(PARTS)
    done |= {job.part(block) for block, file in zip(wanted, files, strict=True) if file.is_file()}
    todo = [block for block in wanted if job.part(block) not in done]
    if kept := len(wanted) - len(todo):
        tell(f"{output_of(work)}: goes on, {kept:,} of {len(wanted):,} blocks are done")
    if todo:
        if apart:
            share(work, folder)
        with _progress_of_parts(folder, what, len(todo)):
            if options:
                from capgrade.pipelines.execution.runners import run_on_beam  # imports Beam

                run_on_beam(job, todo, options)
            else:
                worker = Worker(job)
                for block in todo:
                    worker.make(block)
    missing = [file for file in files if not file.is_file()]
    if missing and not apart:
        problem = f"{len(missing)} of {len(files)} parts are not here, though workers have ended"
        remedy = (
            "let workers see --out under this path, or give a URL that they reach as `exchange`"
        )
        raise InputError(problem, file=folder.local, remedy=remedy)
    with ThreadPoolExecutor(FETCHES) as threads:
        list(threads.map(lambda file: folder.get(f"{PARTS}/{file.name}", file), missing))
    if apart:
        folder.delete_all()
    return files


def share(work: Path, folder: Folder) -> None:
    """Put what workers read into the folder of the run."""
    files = [path for name in SHARED for path in (work / name).rglob("*") if path.is_file()]
    for path in sorted(files):
        folder.put(path, path.relative_to(work).as_posix())


class Worker:
    """A job with its fitted measures opened; `workers` of them share the cores of this machine."""

    def __init__(self, job: Job, workers: int = 1) -> None:
        self.job, self.workers, self.folder = job, workers, Folder(job.url)
        self.local = self.folder.local_copy(SHARED)
        self.ids = open_arrow(self.local.joinpath(*_IDS)).get_batch(0)["image_ids"]
        fit = self.local / "fit"
        self.fitted: dict[str, Fitted] = {
            name: FITTED[kind].load(fit / name) for name, kind in job.kinds.items()
        }
        if job.device != "cpu":
            from capgrade.measures.on_device import on_device  # imports torch

            self.fitted = {name: on_device(one, job.device) for name, one in self.fitted.items()}

    def make(self, block: int) -> None:
        """Write the part of a block unless it is there: a runner may hand it out twice."""
        name = self.job.part(block)
        if not self.folder.exists(name):
            batch = self.table(block)
            self.folder.write(name, lambda file: write_arrow(file, batch.schema, [batch]))

    def table(self, block: int) -> pa.RecordBatch:
        first = block * self.job.block_images
        images = np.arange(first, min(first + self.job.block_images, self.job.n_images))
        ids = self.ids.slice(first, len(images)).to_pylist()
        # Of the worker's machine, which need not be the one that started the run.
        threads = max(1, numba.config.NUMBA_NUM_THREADS // self.workers)
        with _ONE_BLOCK, limited_threads(threads):
            return self.job.table(images, ids, self.fitted, self.local)


@contextmanager
def _progress_of_parts(folder: Folder, what: str, total: int) -> Iterator[None]:
    """A progress bar that counts the parts that are there, so that it serves any runner."""
    stop, shown = threading.Event(), len(folder.names(PARTS))
    with progress(what, total, "blocks") as advance:

        def count() -> None:
            nonlocal shown
            while not stop.wait(0.5 if folder.local else 10):
                with suppress(InputError):  # workers say where a store does not answer
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


def count_blocks(n_images: int, block_images: int) -> int:
    return -(-n_images // block_images)


def run_url(exchange: str | None, work: Path) -> str:
    """Where the folder of a run is: `work`, or a folder below the URL `exchange`.

    A later run into the same output finds the same URL.
    """
    if exchange is None:
        return str(work.resolve())
    key = [str(work.resolve()), (work / RUN_FILE).read_text(encoding="utf-8")]
    return f"{exchange.rstrip('/')}/{run_name(key)}"


def run_name(made_of: Any) -> str:
    """The name of a run's folder at a URL, from what its files depend on.

    The package's version is part of it, as another one may read saved measures differently.
    """
    return run_key([made_of, package_version()])[:16]

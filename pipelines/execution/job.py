"""A run of `relevance` or `shards`: blocks of images, each made by a worker into a part file.

A stage opens its run (`open_run`), fits and saves the measures (`fit_measures`), has workers make
the parts that are missing (`run_blocks`), in this process or where a runner starts them, and writes
a manifest (`StageRun.finish`). Parts and saved measures stand in the folder of the run, which is
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

import pyarrow as pa

from capgrade.devices import require_device
from capgrade.measures import Measure, choose, file_digests, parts_of
from capgrade.measures.catalogue import packages_of
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.execution.folder import Folder
from capgrade.pipelines.execution.worker import IDS, SHARED, Job, TableMaker, Worker
from capgrade.pipelines.stages.relevance import RelevanceParams
from capgrade.pipelines.stages.shards import ShardsParams
from capgrade.schemas.arrow import ArrowFile, write_arrow
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import output_of, package_version
from capgrade.schemas.output import PARTS, run_key
from capgrade.schemas.progress import Advance, counted_work, progress
from capgrade.schemas.run import StageRun
from capgrade.schemas.say import if_silent, tell
from capgrade.schemas.stage import Stage

FETCHES = 16  # parts that are copied from a URL at the same time
Runner = Callable[[Job, Sequence[int]], None]  # has workers make these blocks of a job


def open_run(
    stage: Stage[Any],
    captions_dir: Path,
    params: RelevanceParams | ShardsParams,
    measures: MeasuresParams,
    **rule: Any,
) -> ScoringRun:
    """Read the captions of a split, and gather what a run of `stage` depends on.

    `rule` is what its result depends on beside parameters and inputs. InputError for unknown
    measures, and for a split, a device or a way to `exchange` that is not there.
    """
    chosen = choose(params.measures, measures)
    require_device(params.device)
    if params.exchange:
        Folder(params.exchange)
    captions = read_captions(captions_dir, params.split)
    files = file_digests(chosen.values())
    run = StageRun(
        stage=stage,
        params=params,
        inputs={"captions": captions.digest, "split": captions.split, **files},
        measures=measures,
        rule=rule,
        # Parts are of so many images, and a GPU's values differ in their last bits.
        of_parts={"block_images": params.block_images, "device": params.device},
        packages=packages_of(parts_of(params.measures, measures)),
    )
    return ScoringRun(
        run=run,
        captions=captions,
        chosen=chosen,
        params=params,
        files=files,
        facts={
            "captions": captions.digest,
            "split": captions.split,
            "tokenizer": captions.tokenizer,
        },
        n_blocks=-(-captions.n_images // params.block_images),
        partial=frozenset(
            m for m, measure in enumerate(chosen.values()) if measure.partial(captions)
        ),
    )


@dataclass(frozen=True, kw_only=True)
class ScoringRun:
    """A run of `relevance` or `shards`, and the captions that it scores."""

    run: StageRun[Any]
    captions: Captions
    chosen: Mapping[str, Measure]
    params: RelevanceParams | ShardsParams
    files: Mapping[str, str]  # digests of what the measures read
    facts: Mapping[str, str]  # what the metadata of every table say of the captions
    n_blocks: int
    partial: frozenset[int]  # numbers of the measures that score some pairs alone

    def fit_measures(self, work: Path) -> dict[str, str]:
        """Fit the measures, and save them in `work`, where workers find them.

        Returns the class of each fitted form, by the measure's name.
        """
        kinds = {}
        for name, measure in self.chosen.items():
            with if_silent(f"preparing {self.captions.n_captions:,} captions for {name}"):
                fitted = measure.fit(self.captions)
            fitted.save(work / "fit" / name)  # type: ignore[attr-defined]
            kinds[name] = fitted.kind()  # type: ignore[attr-defined]
        return kinds

    def job(
        self, work: Path, kinds: dict[str, str], table: TableMaker, url: str | None = None
    ) -> Job:
        """What is sent to workers; in `work` also the ids of images, a million of which are too
        much to be sent. `url` is of the folder of the run, where `params.exchange` does not say."""
        ids = pa.array(self.captions.image_ids, pa.large_string())
        batch = pa.record_batch({"image_ids": ids})
        write_arrow(work.joinpath(*IDS), batch.schema, [batch])
        if url is None:
            # With the path of the output, so that two outputs at once have two folders.
            url = where = str(work.resolve())
            if self.params.exchange is not None:
                url = run_url(self.params.exchange, [where, self.run.made_of])
        return Job(
            url=url,
            kinds=kinds,
            table=table,
            n_images=self.captions.n_images,
            block_images=self.params.block_images,
            n_blocks=self.n_blocks,
            device=self.params.device,
        )


def run_blocks(
    job: Job, work: Path, what: str, runner: Runner | None = None, blocks: range | None = None
) -> list[Path]:
    """Make the parts of all blocks, or of `blocks`, that are not there.

    Workers are those of the `runner`; without one, this process is the worker. Returns the files of
    the parts in `work`, in order; a folder of the run at a URL is deleted when they are here.
    Raises the InputError that a worker raised.
    """
    wanted = blocks or range(job.n_blocks)
    files = [work / job.part(block) for block in wanted]
    folder = Folder(job.url)
    apart = folder.local != work.resolve()
    done = folder.names(PARTS) if apart else set()
    todo = [
        block
        for block, file in zip(wanted, files, strict=True)
        if not _is_whole(file) and job.part(block) not in done
    ]
    if kept := len(wanted) - len(todo):
        tell(f"{output_of(work)}: goes on, {kept:,} of {len(wanted):,} blocks are done")
    if todo:
        if apart:
            put_shared(work, folder)
        with progress(what, sum(map(job.size, todo)), "images") as advance:
            if runner:
                with _count_parts(job, folder, todo, advance):
                    runner(job, todo)
            else:
                worker = Worker(job)
                for block in todo:
                    with counted_work(job.size(block), advance):
                        worker.make(block)
    missing = sum(not file.is_file() for file in files)
    if missing and not apart:
        problem = f"{missing} of {len(files)} parts are not here, though workers have ended"
        remedy = (
            "let workers see --out under this path, or give a URL that they reach as `exchange`"
        )
        raise InputError(problem, file=folder.local, remedy=remedy)
    fetch_parts(job, work, wanted)
    if apart:
        folder.delete_all()
    return files


def fetch_parts(job: Job, work: Path, blocks: range) -> list[Path]:
    """Copy the parts of blocks that are not in `work` from the folder of the run. Returns their
    files in `work`, in order."""
    folder, names = Folder(job.url), [job.part(block) for block in blocks]
    missing = [name for name in names if not (work / name).is_file()]
    with ThreadPoolExecutor(FETCHES) as threads:
        list(threads.map(lambda name: folder.get(name, work / name), missing))
    return [work / name for name in names]


def _is_whole(part: Path) -> bool:
    """Whether a part is there. One that somebody has damaged is deleted, and made again."""
    try:
        ArrowFile(part)
    except InputError:
        part.unlink(missing_ok=True)
        return False
    return True


def put_shared(work: Path, folder: Folder) -> None:
    """Put what workers read into the folder of the run."""
    files = [path for name in SHARED for path in (work / name).rglob("*") if path.is_file()]
    for path in sorted(files):
        folder.put(path, path.relative_to(work).as_posix())


@contextmanager
def _count_parts(job: Job, folder: Folder, todo: Sequence[int], advance: Advance) -> Iterator[None]:
    """Count the images of the parts that appear in the folder of the run, whatever makes them."""
    stop, waiting = threading.Event(), set(todo)

    def count() -> None:
        while not stop.wait(0.5 if folder.local else 10):
            with suppress(InputError):  # workers say where a store does not answer
                names = set(folder.names(PARTS))
                done = {block for block in waiting if job.part(block) in names}
                advance(sum(map(job.size, done)))
                waiting.difference_update(done)

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def run_url(exchange: str, made_of: Any) -> str:
    """The URL of a run's folder below `exchange`, from what its files depend on.

    The package's version is part of it, as another one may read saved measures differently.
    """
    name = run_key([made_of, package_version()])[:16]
    return f"{exchange.rstrip('/')}/{name}"

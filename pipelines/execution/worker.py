"""The worker: makes the part files of a block of images, with fitted measures that it opens by memory map.

Whatever hands out blocks calls it: a loop in this process, a runner of Beam, somebody's own pipeline. What every worker
reads, the fitted measures and the ids, is in the work folder or copied from the URL, once per machine.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numba
import numpy as np
import pyarrow as pa
from filelock import FileLock

from capgrade.kernels import start_threads
from capgrade.measures import FITTED, Fitted, Measure
from capgrade.pipelines.execution.job import Job
from capgrade.pipelines.execution.remote import Remote, whole_json, with_digest
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import KEY, digest, open_arrow, read_json, write_arrow, write_json, write_text

Batches = dict[str, pa.RecordBatch]  # by table name
KERNEL = threading.Lock()  # one at a time in a process: each is parallel already, and numba's threads are shared
SHARED = ("fit", "keys")  # folders of the work folder that workers read
LIST = "shared.json"  # their files at the URL: name -> SHA-256
IDS = "image_ids"  # in `keys`
RUN = "run"  # in the work folder: the name of the run's folder at the URL
FETCHED = "fetched"  # in a machine's copy, when all is there


class Tables(Protocol):
    """What a stage makes of a block of images. Sent to workers, so small."""

    def make(self, images: np.ndarray, fitted: Mapping[str, Fitted], folder: Path) -> Batches:
        """Record batches by table name, from the fitted measures and what else the stage saved in the work folder."""
        ...


class Worker:
    """A job with its fitted measures opened; `workers` share the cores of this machine."""

    def __init__(self, job: Job, workers: int = 1) -> None:
        self.job, self.workers = _with_copy(job), workers
        folder = self.job.work / "fit"
        self.fitted: dict[str, Fitted] = {name: FITTED[kind].load(folder / name) for name, kind in job.kinds.items()}
        if job.device != "cpu":
            from capgrade.measures.on_device import on_device  # torch only where it is needed

            self.fitted = {name: on_device(one, job.device) for name, one in self.fitted.items()}

    def make(self, block: int) -> None:
        """Write the parts of a block unless they are there: a runner may hand it out twice."""
        if not self.job.done(block):
            self.job.write(self.tables(block), block)

    def tables(self, block: int) -> Batches:
        """A block's tables."""
        with KERNEL:
            start_threads()
            numba.set_num_threads(self._threads())
            return self.job.tables.make(self.job.images(block), self.fitted, self.job.work)

    def _threads(self) -> int:
        """This machine's, shared by the workers on it; numba counts them a thread."""
        return max(1, numba.config.NUMBA_NUM_THREADS // self.workers)


def fit_measures(measures: Mapping[str, Measure], captions: Captions, work: Path) -> dict[str, str]:
    """Fit the measures and save them for the workers; the class of each fitted form."""
    kinds = {}
    for name, measure in measures.items():
        fitted = measure.fit(captions)
        fitted.save(work / "fit" / name)  # type: ignore[attr-defined]
        kinds[name] = type(fitted).__name__
    return kinds


def save_ids(image_ids: Sequence[str], work: Path) -> None:
    """For `ids_of`: a million ids are more than a runner takes in a pipeline."""
    batch = pa.record_batch({IDS: pa.array(image_ids, pa.large_string())})
    write_arrow(work / "keys" / f"{IDS}.arrow", batch.schema, [batch])


def ids_of(images: np.ndarray, folder: Path) -> list[str]:
    """Ids of these image numbers, from what `save_ids` wrote below the folder."""
    column = open_arrow(folder / "keys" / f"{IDS}.arrow").get_batch(0)[IDS]
    return column.take(pa.array(images)).to_pylist()


def run_url(url: str | None, work: Path) -> str | None:
    """The folder of this run at the URL, and of no other: equal runs may go on at once, and each deletes its own. One
    that was stopped has the same again. InputError, before anything is computed, when there is no way to it."""
    if url is None:
        return None
    if not (work / RUN).is_file():
        write_text(work / RUN, run_name((work / KEY).read_text(encoding="utf-8"), uuid.uuid4().hex))
    folder = f"{url.rstrip('/')}/{(work / RUN).read_text(encoding='utf-8')}"
    Remote(folder)
    return folder


def run_name(key: str, run: str) -> str:
    """Of a run's folder at a URL: by the digest of what is run, its code included, and by what tells this run from
    equal ones."""
    return f"{key[:16]}-{run[:8]}"


def share(job: Job) -> None:
    """Copy what workers read to the URL, if there is one, and last a list of digests: where that is, all is."""
    if job.remote and not job.remote.has(LIST):
        files = [file for folder in SHARED for file in (job.work / folder).rglob("*") if file.is_file()]
        found = {job.name(file): digest(file) for file in sorted(files)}
        write_json(job.work / LIST, found)
        job.remote.put(job.work, [*found, LIST])


def forget(job: Job) -> None:
    """Delete what a finished run left at the URL, and its copies on this machine."""
    if job.remote:
        job.remote.delete("")
        shutil.rmtree(_copy_of(job.remote), ignore_errors=True)


def _with_copy(job: Job) -> Job:
    """The job with a local copy of what is at the URL, if there is one: one worker of a machine fetches it, the others
    wait, and find it there."""
    if job.remote is None:
        return job
    copy = _copy_of(job.remote)
    copy.mkdir(mode=0o700, exist_ok=True)
    if copy.lstat().st_uid != os.getuid():
        raise InputError("belongs to another user", file=copy, remedy="set TMPDIR to a folder of your own")
    with FileLock(copy / ".lock"):
        if not (copy / FETCHED).is_file():
            _fetch(job.remote, copy)
            (copy / "parts").mkdir(exist_ok=True)
            (copy / FETCHED).touch()
    return replace(job, work=copy)


def _fetch(remote: Remote, folder: Path) -> None:
    try:
        remote.get(LIST, folder, whole_json)
        for name, sha in read_json(folder / LIST).items():
            remote.get(name, folder, with_digest(sha))
    except OSError as error:
        problem = f"the fitted measures are not there, or not as they were written ({error})"
        raise InputError(f"{remote}: {problem}", remedy="delete the folder and run again") from error


def _copy_of(remote: Remote) -> Path:
    name = hashlib.sha256(remote.url.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"capgrade-{os.getuid()}-{name}"

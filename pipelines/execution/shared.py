"""What every worker of a run reads: the fitted measures and the ids, in the work folder or copied from the URL."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from filelock import FileLock

from capgrade.pipelines.execution.exchange import Remote, whole_json, with_digest
from capgrade.pipelines.execution.job import Job
from capgrade.pipelines.measures import Measure
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import KEY, digest, open_arrow, read_json, write_arrow, write_json, write_text

SHARED = ("fit", "keys")  # folders of the work folder that workers read
LIST = "shared.json"  # their files at the URL: name -> SHA-256
IDS = "image_ids"  # in `keys`
RUN = "run"  # in the work folder: the name of the run's folder at the URL
FETCHED = "fetched"  # in a machine's copy, when all is there


def fit_measures(measures: dict[str, Measure], captions: Captions, work: Path) -> dict[str, str]:
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
    if job.remote and not (remote := Remote(job.remote)).has(LIST):
        files = [file for folder in SHARED for file in (job.work / folder).rglob("*") if file.is_file()]
        found = {job.name(file): digest(file) for file in sorted(files)}
        write_json(job.work / LIST, found)
        remote.put(job.work, [*found, LIST])


def as_worker(job: Job) -> Job:
    """The job as a worker sees it: with a local copy of what is at the URL, if there is one."""
    if job.remote is None:
        return job
    work = _mirror(Remote(job.remote))
    (work / "parts").mkdir(exist_ok=True)
    return replace(job, work=work)


def forget(job: Job) -> None:
    """Delete what a finished run left at the URL, and its copies on this machine."""
    if job.remote:
        Remote(job.remote).delete("")
        shutil.rmtree(_copy(job.remote), ignore_errors=True)


def _mirror(remote: Remote) -> Path:
    """A local copy of what is shared, one per machine: one worker fetches it, the others wait, and find it there."""
    copy = _copy(remote.url)
    copy.mkdir(mode=0o700, exist_ok=True)
    if copy.lstat().st_uid != os.getuid():
        raise InputError("belongs to another user", file=copy, remedy="set TMPDIR to a folder of your own")
    with FileLock(copy / ".lock"):
        if not (copy / FETCHED).is_file():
            _fetch(remote, copy)
            (copy / FETCHED).touch()
    return copy


def _fetch(remote: Remote, folder: Path) -> None:
    try:
        remote.get(LIST, folder, whole_json)
        for name, sha in read_json(folder / LIST).items():
            remote.get(name, folder, with_digest(sha))
    except OSError as error:
        problem = f"the fitted measures are not there, or not as they were written ({error})"
        raise InputError(f"{remote}: {problem}", remedy="delete the folder and run again") from error


def _copy(url: str) -> Path:
    name = hashlib.sha256(url.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"capgrade-{os.getuid()}-{name}"

"""What every worker of a run reads: the fitted measures and the ids, in the work folder or copied from the URL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from capgrade.pipelines.execution.exchange import Remote
from capgrade.pipelines.execution.job import Job
from capgrade.pipelines.measures import Measure
from capgrade.schemas.captions import Captions
from capgrade.schemas.files import open_arrow, write_arrow

SHARED = ("fit", "keys")  # folders of the work folder that workers read
IDS = "image_ids"  # in `keys`


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
    batch = pa.record_batch({IDS: pa.array(image_ids, pa.string())})
    write_arrow(work / "keys" / f"{IDS}.arrow", batch.schema, [batch])


def ids_of(images: np.ndarray, folder: Path) -> list[str]:
    """Ids of these image numbers, from what `save_ids` wrote below the folder."""
    column = open_arrow(folder / "keys" / f"{IDS}.arrow").get_batch(0)[IDS]
    return column.take(pa.array(images)).to_pylist()


def run_url(url: str | None, work: Path) -> str | None:
    """The folder of this run at the URL; InputError, before anything is computed, when there is no way to it."""
    if url is None:
        return None
    folder = f"{url.rstrip('/')}/{(work / 'key').read_text(encoding='utf-8')[:16]}"
    Remote(folder)
    return folder


def share(job: Job) -> None:
    """Copy what workers read to the URL, if there is one."""
    if job.remote:
        files = [job.name(file) for folder in SHARED for file in (job.work / folder).rglob("*") if file.is_file()]
        Remote(job.remote).put(job.work, files)


def as_worker(job: Job) -> Job:
    """The job as a worker sees it: with a local copy of what is at the URL, if there is one."""
    if job.remote is None:
        return job
    work = Remote(job.remote).mirror(SHARED)
    (work / "parts").mkdir(exist_ok=True)
    return replace(job, work=work)


def forget(job: Job) -> None:
    """Delete what a finished run left at the URL."""
    if job.remote:
        Remote(job.remote).clear()

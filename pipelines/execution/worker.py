"""What is sent to workers, and a worker: it makes the parts of blocks of images."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numba
import numpy as np
import pyarrow as pa

from capgrade.kernels import limited_threads
from capgrade.measures.base import Fitted, state_of
from capgrade.pipelines.execution.folder import Folder
from capgrade.schemas.arrow import ArrowFile, write_arrow
from capgrade.schemas.output import PARTS

# A stage's part of one block: from image numbers, their ids, the fitted measures, and the local
# folder of the run, where the stage may have saved more. Small, as it is sent to every worker.
TableMaker = Callable[[np.ndarray, list[str], Mapping[str, Fitted], Path], pa.RecordBatch]
# Blocks of one process are made one after the other: the kernels of one block use all its cores.
_ONE_BLOCK = threading.Lock()
SHARED = ("fit", "keys")  # folders of a run that workers read
IDS = ("keys", "image_ids.arrow")  # where the ids of images stand


@dataclass(frozen=True, kw_only=True)
class Job:
    """Blocks of images to score, as it is sent to workers."""

    url: str  # of the folder of the run
    kinds: dict[str, str]  # measure -> class of its fitted form
    table: TableMaker
    n_images: int
    block_images: int
    n_blocks: int
    device: str = "cpu"

    def size(self, block: int) -> int:
        """How many images a block has."""
        return min(self.block_images, self.n_images - block * self.block_images)

    def part(self, block: int) -> str:
        """The name of a block's file in the folder of the run."""
        return f"{PARTS}/{block:06d}.arrow"


class Worker:
    """A job with its fitted measures opened; `workers` of them share the cores of this machine."""

    def __init__(self, job: Job, workers: int = 1) -> None:
        self.job, self.workers, self.folder = job, workers, Folder(job.url)
        self.local = self.folder.local_copy(SHARED)
        self.ids = ArrowFile(self.local.joinpath(*IDS)).get_batch(0)["image_ids"]
        fit = self.local / "fit"
        self.fitted: dict[str, Fitted] = {
            name: state_of(kind).load(fit / name) for name, kind in job.kinds.items()
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

"""The table of a block of images under `shards`: the captions that each of them keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from capgrade.pipelines.execution.shared import ids_of
from capgrade.pipelines.execution.tables import Batches, Opened
from capgrade.pipelines.measures.base import CHUNK
from capgrade.pipelines.sampling.plan import Kept, Plan, Samples, image_seeds
from capgrade.schemas.ties import Ties

TABLE, STATE = "pairs", "state"


@dataclass(frozen=True)
class Sampled:
    """One table: the kept captions of each image as lists."""

    measures: tuple[str, ...]
    plan: Plan
    schema: pa.Schema

    samples: ClassVar[type[Samples]] = Samples

    def whole(self, images: np.ndarray, opened: Opened) -> Batches:
        samples, captions = self._samples(images, opened.folder)
        self._offer(samples, captions, images, opened, 0, len(captions))
        return self.table(images, opened.folder, samples.kept(len(captions)))

    def partial(self, images: np.ndarray, opened: Opened, start: int, stop: int) -> Batches:
        samples, captions = self._samples(images, opened.folder)
        self._offer(samples, captions, images, opened, start, stop)
        return {STATE: _packed(samples.state)}

    def merged(self, images: np.ndarray, folder: Path, parts: Sequence[Batches]) -> Batches:
        samples, captions = self._samples(images, folder)
        for part in parts:
            samples.merge(_unpacked(part[STATE], samples.state))
        return self.table(images, folder, samples.kept(len(captions)))

    def _samples(self, images: np.ndarray, folder: Path) -> tuple[Samples, np.ndarray]:
        """Empty samples of these images, and the keys of all captions."""
        arrays = {path.stem: np.load(path, mmap_mode="c") for path in (folder / "keys").glob("*.npy")}
        ptr, refs = arrays["ref_ptr"], arrays["refs"]
        own = [refs[ptr[i] : ptr[i + 1]] for i in images]
        samples = self.samples(self.plan, arrays["images"][images], own, len(self.measures))
        return samples, np.asarray(arrays["captions"])

    def ties(self, folder: Path) -> Ties:
        """Of all images and captions."""
        keys = folder / "keys"
        images, captions = (np.load(keys / f"{name}.npy", mmap_mode="c") for name in ("images", "captions"))
        return Ties(image_seeds(self.plan.seed, images), np.asarray(captions))

    def _offer(
        self, samples: Samples, captions: np.ndarray, images: np.ndarray, opened: Opened, start: int, stop: int
    ) -> None:
        values = np.empty((len(self.measures), len(images), CHUNK), np.float32)
        chunks = [
            opened.fitted[name].chunks(images, start, stop, out)
            for name, out in zip(self.measures, values, strict=True)
        ]
        for at, _ in zip(range(start, stop, CHUNK), zip(*chunks, strict=True), strict=True):
            keys = captions[at : min(at + CHUNK, stop)]
            samples.offer(at, keys, np.ascontiguousarray(values[:, :, : len(keys)]))

    def table(self, images: np.ndarray, folder: Path, kept: Kept) -> Batches:
        lists = [(kept.ptr, flat) for flat in (kept.caption, kept.reasons, kept.weight, *kept.values)]
        columns = [pa.array(ids_of(images, folder), pa.string()), pa.array(images, pa.int32())]
        for (ptr, flat), field in zip(lists, list(self.schema)[2:], strict=True):
            values = pa.array(flat, field.type.value_type)
            columns.append(pa.ListArray.from_arrays(pa.array(ptr, pa.int32()), values, field.type))
        return {TABLE: pa.record_batch(columns, schema=self.schema)}


def _packed(state: dict[str, np.ndarray]) -> pa.RecordBatch:
    """Samples between workers: one row, a list a table of the state."""
    columns = {
        name: pa.array([values.ravel()], pa.large_list(pa.from_numpy_dtype(values.dtype)))
        for name, values in state.items()
    }
    return pa.RecordBatch.from_pydict(columns)


def _unpacked(batch: pa.RecordBatch, like: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: batch[name].flatten().to_numpy().reshape(values.shape) for name, values in like.items()}

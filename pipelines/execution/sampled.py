"""What `shards` makes of a block of images: the captions that each of them keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from capgrade.pipelines.execution.worker import Batches, Opened, ids_of
from capgrade.pipelines.measures.base import CHUNK
from capgrade.pipelines.measures.tops import find_tops
from capgrade.pipelines.sampling.among import SomeSamples
from capgrade.pipelines.sampling.plan import Kept, Plan, Samples, image_seeds
from capgrade.schemas.ties import Ties

TABLE = "pairs"
SCORED = "scored"  # the table that counts pairs: a column a measure, a row
S = TypeVar("S", bound=Samples)


@dataclass(frozen=True)
class Sampled:
    """Of the values of all pairs: the kept captions of each image as lists, and how many pairs of each measure were
    scored."""

    measures: tuple[str, ...]
    plan: Plan
    schema: pa.Schema

    def make(self, images: np.ndarray, opened: Opened) -> Batches:
        samples, keys = self._samples(Samples, images, opened.folder)
        values = np.empty((len(self.measures), len(images), CHUNK), np.float32)
        chunks = [
            opened.fitted[name].chunks(images, 0, len(keys), out)
            for name, out in zip(self.measures, values, strict=True)
        ]
        for at, _ in zip(range(0, len(keys), CHUNK), zip(*chunks, strict=True), strict=True):
            some = keys[at : at + CHUNK]
            samples.offer(at, some, np.ascontiguousarray(values[:, :, : len(some)]))
        return self._tables(images, opened.folder, samples.kept(len(keys)), [len(images) * len(keys)] * len(values))

    def _samples(self, kind: type[S], images: np.ndarray, folder: Path) -> tuple[S, np.ndarray]:
        """Empty samples of these images, and the keys of all captions."""
        arrays = {path.stem: np.load(path, mmap_mode="c") for path in (folder / "keys").glob("*.npy")}
        ptr, refs = arrays["ref_ptr"], arrays["refs"]
        own = [refs[ptr[i] : ptr[i + 1]] for i in images]
        return kind(self.plan, arrays["images"][images], own, len(self.measures)), np.asarray(arrays["captions"])

    def _tables(self, images: np.ndarray, folder: Path, kept: Kept, scored: Sequence[int]) -> Batches:
        columns = [pa.array(ids_of(images, folder), pa.string()), pa.array(images, pa.int32())]
        lists = (kept.caption, kept.reasons, kept.weight, *kept.values)
        for flat, field in zip(lists, list(self.schema)[2:], strict=True):
            values = pa.array(flat, field.type.value_type)
            columns.append(pa.ListArray.from_arrays(pa.array(kept.ptr, pa.int32()), values, field.type))
        counts = {name: [count] for name, count in zip(self.measures, scored, strict=True)}
        return {TABLE: pa.record_batch(columns, schema=self.schema), SCORED: pa.RecordBatch.from_pydict(counts)}


class Nearest(Sampled):
    """`Sampled` where `plan.among` is a share: tops exactly, then the pairs of what was drawn."""

    def make(self, images: np.ndarray, opened: Opened) -> Batches:
        samples, keys = self._samples(SomeSamples, images, opened.folder)
        ties = Ties(image_seeds(self.plan.seed, np.load(opened.folder / "keys" / "images.npy")), keys)
        fitted = [opened.fitted[name] for name in self.measures]
        tops = [find_tops(measure, images, self.plan.top, ties) for measure in fitted]
        listed = samples.listed(keys, np.stack([one.rows for one in tops]))
        values, image = np.empty((len(fitted), len(listed.rows)), np.float32), np.repeat(images, np.diff(listed.ptr))
        for m, measure in enumerate(fitted):
            values[m] = measure.pairs(image, listed.rows)
        samples.offer_listed(keys, listed, values)
        scored = [int(one.pairs.sum()) + len(listed.rows) for one in tops]
        return self._tables(images, opened.folder, samples.kept_of(keys), scored)

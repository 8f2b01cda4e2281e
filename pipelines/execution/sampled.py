"""What `shards` makes of a block of images: the captions that each of them keeps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from capgrade.pipelines.execution.worker import Batches, Opened, ids_of
from capgrade.pipelines.sampling.plan import Plan
from capgrade.pipelines.sampling.sampler import Sampler

TABLE = "pairs"
SCORED = "scored"  # the table that counts pairs: a column a measure, a row


@dataclass(frozen=True)
class Sampled:
    """The kept captions of each image as lists, and how many pairs of each measure were scored."""

    measures: tuple[str, ...]
    plan: Plan
    schema: pa.Schema

    def make(self, images: np.ndarray, opened: Opened) -> Batches:
        arrays = {path.stem: np.load(path, mmap_mode="c") for path in (opened.folder / "keys").glob("*.npy")}
        keys = np.asarray(arrays["images"]), np.asarray(arrays["captions"])
        fitted = [opened.fitted[name] for name in self.measures]
        kept, scored = Sampler(self.plan, fitted, *keys, arrays["ref_ptr"], arrays["refs"]).sample(images)
        columns = [pa.array(ids_of(images, opened.folder), pa.string()), pa.array(images, pa.int32())]
        lists = (kept.caption, kept.reasons, kept.weight, *kept.values)
        for flat, field in zip(lists, list(self.schema)[2:], strict=True):
            values = pa.array(flat, field.type.value_type)
            columns.append(pa.ListArray.from_arrays(pa.array(kept.ptr, pa.int32()), values, field.type))
        counts = {name: [int(count)] for name, count in zip(self.measures, scored, strict=True)}
        return {TABLE: pa.record_batch(columns, schema=self.schema), SCORED: pa.RecordBatch.from_pydict(counts)}

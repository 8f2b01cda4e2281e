"""The table of a block of images under `shards` with windows of a share of the captions: tops exactly, then the pairs
of what was drawn."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from capgrade.pipelines.execution.sampled import Sampled
from capgrade.pipelines.execution.tables import Batches, Opened
from capgrade.pipelines.measures.tops import find_tops
from capgrade.pipelines.sampling.among import SomeSamples

SCORED = "scored"  # the table that counts pairs: a column a measure, a row


class Nearest(Sampled):
    """`Sampled` where `plan.among` is a share; and how many pairs of each measure were scored."""

    samples = SomeSamples

    def whole(self, images: np.ndarray, opened: Opened) -> Batches:
        samples, keys = self._samples(images, opened.folder)
        assert isinstance(samples, SomeSamples)
        ties = self.ties(opened.folder)
        fitted = [opened.fitted[name] for name in self.measures]
        tops = [find_tops(measure, images, self.plan.top, ties) for measure in fitted]
        listed = samples.listed(keys, np.stack([one.rows for one in tops]))
        values, image = np.empty((len(fitted), len(listed.rows)), np.float32), np.repeat(images, np.diff(listed.ptr))
        for m, measure in enumerate(fitted):
            values[m] = measure.pairs(image, listed.rows)
        samples.offer_listed(keys, listed, values)
        scored = {name: int(one.pairs.sum()) + len(listed.rows) for name, one in zip(self.measures, tops, strict=True)}
        table = self.table(images, opened.folder, samples.kept_of(keys))
        return {**table, SCORED: pa.RecordBatch.from_pydict({name: [count] for name, count in scored.items()})}

"""Stage `relevance`: the dense relevance matrix of each measure, for an evaluation split."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.kernels import njit
from capgrade.measures import Fitted
from capgrade.measures.own_pairs import FILE, write_own_pairs
from capgrade.pipelines.execution.job import Batches, Source, ids_of, run_blocks
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import with_metadata, write_arrow, write_text
from capgrade.schemas.output import PARTS, output_folder
from capgrade.schemas.params import MeasuresParams, RelevanceParams
from capgrade.schemas.relevance import relevance_batch, relevance_schema
from capgrade.schemas.space import require_space, size_of

BINS = 100


@dataclass(frozen=True)
class DenseTables:
    """One table per measure, one column per caption."""

    schemas: dict[str, pa.Schema]

    def __call__(self, images: np.ndarray, fitted: Mapping[str, Fitted], folder: Path) -> Batches:
        ids = ids_of(images, folder)
        return {name: relevance_batch(ids, fitted[name].score(images), schema) for name, schema in self.schemas.items()}


def relevance(
    captions_dir: Path,
    out: Path,
    params: RelevanceParams,
    measures: MeasuresParams,
    beam_options: Sequence[str] = (),
) -> dict[str, Any]:
    """Compute the relevance of every caption of a split to every image and write one Arrow file per measure.

    Row i of `<measure>.arrow` is image i, a fixed-size list over the captions, both in the order of the captions
    table. Beside it `distribution-<measure>.csv` has the distribution on own and on other pairs, and
    `own-pairs.parquet` the own pairs of all measures, also without the caption among its references.
    Returns the manifest. Raises InputError for unknown measures, a split that is not there, or captions a
    measure cannot be fitted on.
    """
    source = Source.of("relevance", captions_dir, params, measures)
    captions, chosen = source.captions, source.chosen
    schemas = {
        name: relevance_schema(
            captions.n_captions,
            params.dtype,
            {**source.facts, "measure": name, "params": source.made_with["measures"][name]},
        )
        for name in chosen
    }
    with output_folder(out, "relevance", source.made_of) as folder:
        matrices = captions.n_images * captions.n_captions * np.dtype(params.dtype).itemsize * len(chosen)
        require_space(out, matrices, parts=matrices, done=size_of(folder / PARTS))
        job = source.job(folder, lambda: DenseTables(schemas))
        most = float(np.finfo(params.dtype).max)
        if large := [name for name, measure in chosen.items() if max(-measure.low, measure.high) > most]:
            problem = f"{large[0]}: values above {most:g}, which {params.dtype} cannot hold"
            raise InputError(problem, remedy="set relevance.dtype=float32")
        run_blocks(job, f"relevance of {captions.n_captions:,} captions to {captions.n_images:,} images", beam_options)
        rows, own = {}, {}
        for name, measure in chosen.items():
            counts = Distribution(measure.low, measure.high, captions.owner)
            rows[f"{name}.arrow"] = write_arrow(folder / f"{name}.arrow", schemas[name], counts.watch(job.joined(name)))
            rows[f"distribution-{name}.csv"] = counts.write(folder / f"distribution-{name}.csv")
            own[name] = counts.own
        facts = with_metadata(pa.schema([]), {"kind": "own pairs", **source.facts})
        rows[FILE] = write_own_pairs(folder, captions, job.load_fitted(), own, facts)
        manifest = source.finish(folder, "relevance", rows)
    job.forget()
    return manifest


@njit(cache=True)
def _count(values, owner, first, low, high, counts):
    """Add a block's values float32 [images, captions], images numbered from `first`, to counts int64 [2, bins]."""
    bins = counts.shape[1]
    scale = bins / (high - low)
    for i in range(values.shape[0]):
        for c in range(values.shape[1]):
            k = min(max(int((values[i, c] - low) * scale), 0), bins - 1)
            counts[0 if owner[c] == first + i else 1, k] += 1


class Distribution:
    """Histogram of a measure on own and on other pairs, filled as its batches pass by on their way to disk."""

    def __init__(self, low: float, high: float, owner: np.ndarray) -> None:
        self.low, self.high, self.owner = low, high, owner
        self.counts = np.zeros((2, BINS), np.int64)
        self.own = np.empty(len(owner), np.float32)  # each caption with its own image
        self.images = 0

    def watch(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values = batch["relevance"].flatten().to_numpy().reshape(batch.num_rows, -1).astype(np.float32, copy=False)
            _count(values, self.owner, self.images, self.low, self.high, self.counts)
            here = np.flatnonzero((self.owner >= self.images) & (self.owner < self.images + batch.num_rows))
            self.own[here] = values[self.owner[here] - self.images, here]
            self.images += batch.num_rows
            yield batch

    def write(self, path: Path) -> int:
        """One row per bin: its bounds, and the share of own and of other pairs in it. Returns the rows."""
        edges = np.linspace(self.low, self.high, BINS + 1)
        shares = self.counts / np.maximum(self.counts.sum(axis=1, keepdims=True), 1)
        lines = [f"{a:.6g},{b:.6g},{x:.9g},{y:.9g}" for a, b, x, y in zip(edges, edges[1:], *shares, strict=False)]
        write_text(path, "\n".join(["low,high,own,other", *lines]) + "\n")
        return BINS

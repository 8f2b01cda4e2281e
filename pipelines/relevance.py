"""Stage `relevance`: the dense relevance matrix of each measure, for an evaluation split."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.kernels import njit
from capgrade.measures import Fitted
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.execution.job import Runner, open_run, run_blocks
from capgrade.pipelines.stages.relevance import RELEVANCE, RelevanceParams
from capgrade.schemas.arrow import ArrowFile, with_metadata, write_arrow
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_text
from capgrade.schemas.output import PARTS, require_space, size_of
from capgrade.schemas.own_pairs import FILE, write_own_pairs
from capgrade.schemas.pairs import LEFT_OUT
from capgrade.schemas.progress import part_of_work
from capgrade.schemas.relevance import relevance_batch, relevance_schema

_BINS = 100


def relevance(
    captions: Path,
    out: Path,
    params: RelevanceParams,
    measures: MeasuresParams,
    runner: Runner | None = None,
) -> dict[str, Any]:
    """Compute the relevance of every caption of a split to every image, one Arrow file a measure.

    Row i of `<measure>.arrow` is image i, a fixed-size list over the captions, both in the order of
    the captions table. `distribution-<measure>.csv` has the values' distribution on own and on
    other pairs, `own-pairs.parquet` the own pairs by all measures. Returns the manifest. Raises
    InputError for unknown measures, a split that is not there, or captions a measure cannot be
    fitted on.
    """
    scoring = open_run(RELEVANCE, captions, params, measures)
    table, chosen, run = scoring.captions, scoring.chosen, scoring.run
    schemas = {
        name: relevance_schema(
            table.n_captions,
            params.dtype,
            {**scoring.facts, "measure": name, "params": run.made_with["measures"][name]},
        )
        for name in chosen
    }
    with run.folder(out) as folder:
        pairs = table.n_images * table.n_captions
        matrices = pairs * np.dtype(params.dtype).itemsize * len(chosen)
        require_space(out, matrices, parts=matrices, done=size_of(folder / PARTS))
        left_out = tuple(name for name, measure in chosen.items() if measure.leaves_out)
        tables = DenseTables(schemas, left_out)
        kinds = scoring.fit_measures(folder)
        most = float(np.finfo(params.dtype).max)
        # Checked when measures are fitted, as an imported one knows its range only then.
        for name, measure in chosen.items():
            if max(-measure.low, measure.high) > most:
                problem = f"{name}: values above {most:g}, which {params.dtype} cannot hold"
                raise InputError(problem, remedy="set relevance.dtype=float32")
        job = scoring.job(folder, kinds, tables)
        what = f"relevance of {table.n_captions:,} captions to {table.n_images:,} images"
        parts = run_blocks(job, folder, what, runner)
        rows, own = {}, {}
        for name, measure in chosen.items():
            file, shape = f"{name}.arrow", f"distribution-{name}.csv"
            rows[file] = write_arrow(folder / file, schemas[name], tables.joined(name, parts))
            distribution = _Distribution(measure.low, measure.high, table.owner)
            for batch in tables.joined(name, parts):
                distribution.add(batch)
            rows[shape] = distribution.write(folder / shape)
            own[name] = distribution.own
        facts = with_metadata(pa.schema([]), {"kind": "own pairs", **scoring.facts})
        without = {name: tables.own_left_out(name, parts, table) for name in left_out}
        rows[FILE] = write_own_pairs(folder, table, own, without, facts)
        return run.finish(folder, rows, n_captions=table.n_captions)


@dataclass(frozen=True)
class DenseTables:
    """Makes the part of a block: a row an image, with its id and its relevance by each measure.

    For each measure of `left_out` it also has a list: the values of the image's own captions, each
    without itself among the references.
    """

    schemas: dict[str, pa.Schema]
    left_out: tuple[str, ...] = ()

    def __call__(
        self, images: np.ndarray, ids: list[str], fitted: Mapping[str, Fitted], folder: Path
    ) -> pa.RecordBatch:
        columns = dict[str, pa.Array]()
        for name, schema in self.schemas.items():
            with part_of_work(1, len(self.schemas)):
                batch = relevance_batch(ids, fitted[name].score(images), schema)
            columns |= {"image_id": batch["image_id"], name: batch["relevance"]}
        for name in self.left_out:
            sizes = np.diff(fitted[name].ref_ptr)[images]  # type: ignore[attr-defined]
            starts = pa.array(np.append(0, np.cumsum(sizes)), pa.int32())
            own = pa.array(fitted[name].own_left_out(images), pa.float32())
            columns[name + LEFT_OUT] = pa.ListArray.from_arrays(starts, own)
        return pa.RecordBatch.from_pydict(columns)

    def joined(self, name: str, parts: Iterable[Path]) -> Iterator[pa.RecordBatch]:
        """The batches of one measure's table, from the parts."""
        for part in parts:
            batch = ArrowFile(part).get_batch(0)
            yield pa.record_batch([batch["image_id"], batch[name]], schema=self.schemas[name])

    def own_left_out(self, name: str, parts: Iterable[Path], captions: Captions) -> np.ndarray:
        """float32 [n_captions]: the value of each caption without itself, from the parts."""
        column = name + LEFT_OUT
        values = [ArrowFile(part).get_batch(0)[column].flatten().to_numpy() for part in parts]
        found = np.empty(captions.n_captions, np.float32)
        found[captions.refs] = np.concatenate(values)  # parts have them image after image
        return found


class _Distribution:
    """Histogram of a measure on own and on other pairs, and the values of own pairs."""

    def __init__(self, low: float, high: float, owner: np.ndarray) -> None:
        self.low, self.high, self.owner = low, high, owner
        self.counts = np.zeros((2, _BINS), np.int64)
        self.own = np.empty(len(owner), np.float32)  # each caption with its own image
        self.images = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the values of the next images, rows of `relevance_schema`."""
        flat = batch["relevance"].flatten().to_numpy()
        values = flat.reshape(batch.num_rows, -1).astype(np.float32, copy=False)
        _count(values, self.owner, self.images, self.low, self.high, self.counts)
        image = self.owner - self.images  # of each caption, in the batch
        own = np.flatnonzero((image >= 0) & (image < batch.num_rows))
        self.own[own] = values[image[own], own]
        self.images += batch.num_rows

    def write(self, path: Path) -> int:
        """Write a row per bin: its bounds, and the share of own and of other pairs in it.

        Returns the number of rows.
        """
        edges = np.linspace(self.low, self.high, _BINS + 1)
        shares = self.counts / np.maximum(self.counts.sum(axis=1, keepdims=True), 1)
        bins = zip(edges[:-1], edges[1:], *shares, strict=True)
        lines = [f"{a:.6g},{b:.6g},{x:.9g},{y:.9g}" for a, b, x, y in bins]
        write_text(path, "\n".join(["low,high,own,other", *lines]) + "\n")
        return _BINS


@njit(cache=True)
def _count(values, owner, first, low, high, counts):
    """Count a block's values, float32 [images, captions], in own and other pairs' int64 [2, bins].

    Its images are numbered from `first` on.
    """
    bins = counts.shape[1]
    scale = bins / (high - low)
    for i in range(values.shape[0]):
        for c in range(values.shape[1]):
            k = min(max(int((values[i, c] - low) * scale), 0), bins - 1)
            counts[0 if owner[c] == first + i else 1, k] += 1

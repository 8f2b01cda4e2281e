"""Stage `shards`: each training image with a sampled subset of captions, and how likely each was to be kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.pipelines.execution.blocks import joined, run_blocks
from capgrade.pipelines.execution.job import Job
from capgrade.pipelines.execution.shared import fit_measures, forget, ids_of, run_url, save_ids
from capgrade.pipelines.execution.tables import Batches, Opened
from capgrade.pipelines.execution.work import work_folder
from capgrade.pipelines.measures import choose
from capgrade.pipelines.measures.base import CHUNK
from capgrade.pipelines.measures.reads import read_by
from capgrade.pipelines.sampling.plan import Kept, Plan, Samples, id_keys, reason_names
from capgrade.schemas.captions import read_captions
from capgrade.schemas.devices import device_of
from capgrade.schemas.files import write_arrow, write_manifest
from capgrade.schemas.inputs import require_unchanged
from capgrade.schemas.params import MeasuresParams, ShardsParams
from capgrade.schemas.shards import shard_name, shard_schema

TABLE, STATE = "pairs", "state"


@dataclass(frozen=True)
class _Sampled:
    """One table: the kept captions of each image as lists."""

    measures: tuple[str, ...]
    plan: Plan
    schema: pa.Schema

    def whole(self, images: np.ndarray, opened: Opened) -> Batches:
        samples, captions = self._samples(images, opened.folder)
        self._offer(samples, captions, images, opened, 0, len(captions))
        return self._table(images, opened.folder, samples.kept(len(captions)))

    def partial(self, images: np.ndarray, opened: Opened, start: int, stop: int) -> Batches:
        samples, captions = self._samples(images, opened.folder)
        self._offer(samples, captions, images, opened, start, stop)
        return {STATE: _packed(samples.state)}

    def merged(self, images: np.ndarray, folder: Path, parts: Sequence[Batches]) -> Batches:
        samples, captions = self._samples(images, folder)
        for part in parts:
            samples.merge(_unpacked(part[STATE], samples.state))
        return self._table(images, folder, samples.kept(len(captions)))

    def _samples(self, images: np.ndarray, folder: Path) -> tuple[Samples, np.ndarray]:
        """Empty samples of these images, and the keys of all captions."""
        arrays = {path.stem: np.load(path, mmap_mode="c") for path in (folder / "keys").glob("*.npy")}
        ptr, refs = arrays["ref_ptr"], arrays["refs"]
        own = [refs[ptr[i] : ptr[i + 1]] for i in images]
        samples = Samples(self.plan, arrays["images"][images], own, len(self.measures))
        return samples, np.asarray(arrays["captions"])

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

    def _table(self, images: np.ndarray, folder: Path, kept: Kept) -> Batches:
        columns = [
            pa.array(ids_of(images, folder), pa.string()),
            pa.array(images, pa.int32()),
            *(
                pa.ListArray.from_arrays(
                    pa.array(kept.ptr, pa.int32()), pa.array(flat, field.type.value_type), field.type
                )
                for flat, field in zip(
                    [kept.caption, kept.reasons, kept.weight, *kept.values], list(self.schema)[2:], strict=True
                )
            ),
        ]
        return {TABLE: pa.record_batch(columns, schema=self.schema)}


def _packed(state: dict[str, np.ndarray]) -> pa.RecordBatch:
    """Samples between workers: one row, one list per table of the state."""
    columns = {
        name: pa.array([values.ravel()], pa.list_(pa.from_numpy_dtype(values.dtype))) for name, values in state.items()
    }
    return pa.RecordBatch.from_pydict(columns)


def _unpacked(batch: pa.RecordBatch, like: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: batch[name].flatten().to_numpy().reshape(values.shape) for name, values in like.items()}


def shards(
    captions_dir: Path,
    out: Path,
    params: ShardsParams,
    measures: MeasuresParams,
    beam_options: Sequence[str] = (),
) -> dict[str, Any]:
    """Score every caption against every image of a split, keep a sampled subset per image, and write Arrow shards.

    An image keeps its own captions, the most relevant by each measure, a stratified sample over the windows of each
    measure's range and a uniform sample; the dense matrix is never stored. Returns the manifest. Raises InputError
    as `relevance` does.
    """
    reasons = reason_names(params.measures)
    chosen = choose(params.measures, measures)
    captions = read_captions(captions_dir, params.split)
    how = {"group_captions", "exchange"}  # of no effect on what is written
    made_with = {"shards": params.model_dump(exclude=how), "measures": measures.used(params.measures)}
    files = read_by(params.measures, measures)
    inputs = {"captions": captions.digest, "split": captions.split, **files}
    with work_folder(out, "shards", [made_with, inputs, params.group_captions]) as work:
        device_of(params.device)
        remote = run_url(params.exchange, work)
        kinds = fit_measures(chosen, captions, work)
        save_ids(captions.image_ids, work)
        keys = {"images": id_keys(captions.image_ids), "captions": id_keys(captions.caption_ids)}
        for name, array in {**keys, "ref_ptr": captions.ref_ptr, "refs": captions.refs}.items():
            np.save(work / "keys" / f"{name}.npy", array)
        plan = Plan(
            tuple(m.low for m in chosen.values()), tuple(m.high for m in chosen.values()), params.top,
            params.windows.width, params.windows.stride, params.windows.per_window, params.uniform, params.seed,
        )  # fmt: skip
        metadata = {
            "captions": captions.digest,
            "split": captions.split,
            "inputs": files,
            "tokenizer": captions.tokenizer,
            "n_captions": captions.n_captions,
            "reasons": reasons,
            "params": made_with,
        }
        schema = shard_schema(params.measures, metadata)
        job = Job(
            work=work, kinds=kinds, tables=_Sampled(tuple(params.measures), plan, schema),
            n_images=captions.n_images, block_images=params.block_images, n_captions=captions.n_captions,
            group_captions=params.group_captions, device=params.device, remote=remote,
        )  # fmt: skip
        run_blocks(job, f"sampling from {captions.n_images} x {captions.n_captions} pairs", beam_options)
        groups = list(_by_size(job, params.target_mb * 2**20))
        rows = {}
        for k, blocks in enumerate(groups):
            name = shard_name(k, len(groups))
            rows[name] = write_arrow(out / name, schema, joined(job, TABLE, iter(blocks)))
        pairs = sum(len(batch["captions"].flatten()) for batch in joined(job, TABLE))
    require_unchanged(files, read_by(params.measures, measures))
    manifest = write_manifest(out, "shards", params=made_with, inputs=inputs, rows=rows, pairs=pairs)
    forget(job)
    return manifest


def _by_size(job: Job, target: int) -> Iterator[list[int]]:
    """Runs of consecutive blocks whose parts add up to about `target` bytes."""
    run: list[int] = []
    size = 0
    for block in range(job.n_blocks):
        run.append(block)
        size += job.part(block, TABLE).stat().st_size
        if size >= target:
            yield run
            run, size = [], 0
    if run:
        yield run

"""Stage `shards`: each training image with a sampled subset of captions, and how likely each was to be kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.pipelines.execution.blocks import joined, run_blocks
from capgrade.pipelines.execution.job import Job
from capgrade.pipelines.execution.parts import KIND, Part, block_name, part_files
from capgrade.pipelines.execution.shared import fit_measures, forget, ids_of, run_url, save_ids
from capgrade.pipelines.execution.tables import Batches, Opened
from capgrade.pipelines.execution.work import work_folder
from capgrade.pipelines.measures import Measure, choose
from capgrade.pipelines.measures.base import CHUNK
from capgrade.pipelines.measures.reads import read_by
from capgrade.pipelines.sampling.plan import Kept, Plan, Samples, id_keys, reason_names
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.devices import device_of
from capgrade.schemas.files import open_arrow, write_arrow, write_manifest
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
    """Samples between workers: one row, a list a table of the state."""
    columns = {
        name: pa.array([values.ravel()], pa.list_(pa.from_numpy_dtype(values.dtype))) for name, values in state.items()
    }
    return pa.RecordBatch.from_pydict(columns)


def _unpacked(batch: pa.RecordBatch, like: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: batch[name].flatten().to_numpy().reshape(values.shape) for name, values in like.items()}


@dataclass(frozen=True)
class _Made:
    """What is the same for all parts of a run: what it is made of, and what a folder's manifest says of that."""

    captions: Captions
    params: ShardsParams
    measures: MeasuresParams
    files: dict[str, str]

    @staticmethod
    def of(captions_dir: Path, params: ShardsParams, measures: MeasuresParams) -> _Made:
        captions = read_captions(captions_dir, params.split)
        return _Made(captions, params, measures, read_by(params.measures, measures))

    @property
    def made_with(self) -> dict[str, Any]:
        how = {"group_captions", "exchange"}  # of no effect on what is written
        used = self.measures.used(self.params.measures)
        return {"shards": self.params.model_dump(exclude=how), "measures": used}

    @property
    def inputs(self) -> dict[str, str]:
        return {"captions": self.captions.digest, "split": self.captions.split, **self.files}

    @property
    def key(self) -> list[Any]:
        return [self.made_with, self.inputs, self.params.group_captions]

    @property
    def schema(self) -> pa.Schema:
        metadata = {
            "captions": self.captions.digest,
            "split": self.captions.split,
            "inputs": self.files,
            "tokenizer": self.captions.tokenizer,
            "n_captions": self.captions.n_captions,
            "reasons": reason_names(self.params.measures),
            "params": self.made_with,
        }
        return shard_schema(self.params.measures, metadata)

    def job(self, chosen: Mapping[str, Measure], work: Path) -> Job:
        """What workers need, with the fitted measures and keys in the work folder."""
        params, captions = self.params, self.captions
        device_of(params.device)
        remote = run_url(params.exchange, work)
        kinds = fit_measures(dict(chosen), captions, work)
        save_ids(captions.image_ids, work)
        keys = {"images": id_keys(captions.image_ids), "captions": id_keys(captions.caption_ids)}
        for name, array in {**keys, "ref_ptr": captions.ref_ptr, "refs": captions.refs}.items():
            np.save(work / "keys" / f"{name}.npy", array)
        plan = Plan(
            tuple(m.low for m in chosen.values()), tuple(m.high for m in chosen.values()), params.top,
            params.windows.width, params.windows.stride, params.windows.per_window, params.uniform, params.seed,
        )  # fmt: skip
        return Job(
            work=work, kinds=kinds, tables=_Sampled(tuple(params.measures), plan, self.schema),
            n_images=captions.n_images, block_images=params.block_images, n_captions=captions.n_captions,
            group_captions=params.group_captions, device=params.device, remote=remote,
        )  # fmt: skip

    def require_unchanged(self) -> None:
        require_unchanged(self.files, read_by(self.params.measures, self.measures))


def shards(
    captions_dir: Path,
    out: Path,
    params: ShardsParams,
    measures: MeasuresParams,
    beam_options: Sequence[str] = (),
) -> dict[str, Any]:
    """Score every caption against every image of a split, keep a sampled subset an image, and write Arrow shards.

    An image keeps its own captions, the most relevant by each measure, a stratified sample over the windows of each
    measure's range and a uniform sample; the dense matrix is never stored. Returns the manifest. Raises InputError
    as `relevance` does.
    """
    reason_names(params.measures)
    chosen = choose(params.measures, measures)
    made = _Made.of(captions_dir, params, measures)
    with work_folder(out, "shards", made.key) as work:
        job = made.job(chosen, work)
        run_blocks(job, f"sampling from {job.n_images} x {job.n_captions} pairs", beam_options)
        rows, pairs = _write(out, made, [job.part(block, TABLE) for block in range(job.n_blocks)])
    made.require_unchanged()
    manifest = write_manifest(out, "shards", params=made.made_with, inputs=made.inputs, rows=rows, pairs=pairs)
    forget(job)
    return manifest


def shards_part(
    captions_dir: Path,
    out: Path,
    params: ShardsParams,
    measures: MeasuresParams,
    part: Part,
    beam_options: Sequence[str] = (),
) -> dict[str, Any]:
    """A share of the images' blocks, into a folder of its own beside `out`, for `join_shards`.

    Parts may be made in any order, at once, on machines that see the same folders; one that was stopped goes on.
    Returns the part's manifest. Raises InputError as `shards`.
    """
    reason_names(params.measures)
    chosen = choose(params.measures, measures)
    made = _Made.of(captions_dir, params, measures)
    folder, rows, pairs = part.folder(out), {}, 0
    blocks = part.blocks(-(-made.captions.n_images // params.block_images))
    with work_folder(folder, KIND, [*made.key, part.number, part.of]) as work:
        job = made.job(chosen, work)
        run_blocks(job, f"part {part.number}/{part.of}: {len(blocks)} of {job.n_blocks} blocks", beam_options, blocks)
        for block, batch in zip(blocks, joined(job, TABLE, iter(blocks)), strict=True):
            rows[block_name(block)] = write_arrow(folder / block_name(block), made.schema, [batch])
            pairs += len(batch["captions"].flatten())
    made.require_unchanged()
    manifest = write_manifest(folder, KIND, params=made.made_with, inputs=made.inputs, rows=rows, pairs=pairs)
    forget(job)
    return manifest


def join_shards(captions_dir: Path, out: Path, params: ShardsParams, measures: MeasuresParams) -> dict[str, Any]:
    """The shards that `shards` would write, of the parts beside `out`; the parts stay.

    Returns the manifest. Raises InputError when a part is missing or unfinished, or was made of something else.
    """
    reason_names(params.measures)
    choose(params.measures, measures)
    made = _Made.of(captions_dir, params, measures)
    files = part_files(out, json.loads(json.dumps(made.made_with)), made.inputs)
    with work_folder(out, "shards", [*made.key, "join"]):
        rows, pairs = _write(out, made, files)
    return write_manifest(out, "shards", params=made.made_with, inputs=made.inputs, rows=rows, pairs=pairs)


def _write(out: Path, made: _Made, parts: Sequence[Path]) -> tuple[dict[str, int], int]:
    """Shards of the parts of all blocks: the rows of each, and pairs."""
    groups = list(_by_size(parts, made.params.target_mb * 2**20))
    rows, pairs = {}, 0
    for k, group in enumerate(groups):
        name = shard_name(k, len(groups))
        rows[name] = write_arrow(out / name, made.schema, (open_arrow(path).get_batch(0) for path in group))
        pairs += sum(len(open_arrow(path).get_batch(0)["captions"].flatten()) for path in group)
    return rows, pairs


def _by_size(parts: Sequence[Path], target: int) -> Iterator[list[Path]]:
    """Runs of consecutive parts that add up to about `target` bytes."""
    run: list[Path] = []
    size = 0
    for part in parts:
        run.append(part)
        size += part.stat().st_size
        if size >= target:
            yield run
            run, size = [], 0
    if run:
        yield run

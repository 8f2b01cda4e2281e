"""Stage `shards`: each training image with a sampled subset of captions, and how likely each was to be kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.measures import Fitted, Measure, choose, read_by
from capgrade.pipelines.execution.job import Job
from capgrade.pipelines.execution.parts import KIND, Part, block_name, part_files
from capgrade.pipelines.execution.run import run_blocks
from capgrade.pipelines.execution.work import work_folder
from capgrade.pipelines.execution.worker import Batches, fit_measures, forget, ids_of, run_url, save_ids
from capgrade.pipelines.sampling.keys import RULE
from capgrade.pipelines.sampling.plan import Plan, id_keys, reason_names
from capgrade.pipelines.sampling.sampler import Sampler
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.devices import require_device
from capgrade.schemas.files import open_arrow, write_arrow, write_manifest
from capgrade.schemas.inputs import require_unchanged
from capgrade.schemas.params import MeasuresParams, ShardsParams
from capgrade.schemas.shards import shard_name, shard_schema
from capgrade.schemas.space import require_space, size_of

TABLE = "pairs"
SCORED = "scored"  # the table that counts pairs: a column a measure, a row


@dataclass(frozen=True)
class Sampled:
    """The kept captions of each image as lists, and how many pairs of each measure were scored."""

    measures: tuple[str, ...]
    plan: Plan
    schema: pa.Schema

    def make(self, images: np.ndarray, fitted: Mapping[str, Fitted], folder: Path) -> Batches:
        arrays = {path.stem: np.load(path, mmap_mode="c") for path in (folder / "keys").glob("*.npy")}
        keys = np.asarray(arrays["images"]), np.asarray(arrays["captions"])
        measures = [fitted[name] for name in self.measures]
        kept, scored = Sampler(self.plan, measures, *keys, arrays["ref_ptr"], arrays["refs"]).sample(images)
        columns = [pa.array(ids_of(images, folder), pa.string()), pa.array(images, pa.int32())]
        lists = (kept.caption, kept.reasons, kept.weight, *kept.values)
        for flat, field in zip(lists, list(self.schema)[2:], strict=True):
            values = pa.array(flat, field.type.value_type)
            columns.append(pa.ListArray.from_arrays(pa.array(kept.ptr, pa.int32()), values, field.type))
        counts = {name: [int(count)] for name, count in zip(self.measures, scored, strict=True)}
        return {TABLE: pa.record_batch(columns, schema=self.schema), SCORED: pa.RecordBatch.from_pydict(counts)}


def plan_of(measures: Iterable[Measure], params: ShardsParams) -> Plan:
    """What to keep of each image, by fitted measures' ranges."""
    low, high = zip(*((measure.low, measure.high) for measure in measures), strict=True)
    windows = params.windows
    among = 1.0 if windows.among == "all" else windows.among
    return Plan(
        low, high, params.top, windows.width, windows.stride, windows.per_window, params.uniform, params.seed, among
    )


@dataclass(frozen=True)
class Source:
    """What shards are made of, and what their manifests say of it: the same for one run and for all its parts."""

    captions: Captions
    chosen: Mapping[str, Measure]
    params: ShardsParams
    measures: MeasuresParams
    files: Mapping[str, str]

    @staticmethod
    def of(captions_dir: Path, params: ShardsParams, measures: MeasuresParams) -> Source:
        reason_names(params.measures)
        chosen = choose(params.measures, measures)
        captions = read_captions(captions_dir, params.split)
        return Source(captions, chosen, params, measures, read_by(params.measures, measures))

    @property
    def made_with(self) -> dict[str, Any]:
        used = self.measures.used(self.params.measures)
        shards = self.params.model_dump(exclude={"exchange"})
        return {"shards": shards, "measures": used, "sampler": RULE}

    @property
    def inputs(self) -> dict[str, str]:
        return {"captions": self.captions.digest, "split": self.captions.split, **self.files}

    @property
    def key(self) -> list[Any]:
        return [self.made_with, self.inputs]

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

    def size(self, images: int) -> int:
        """About how many bytes the sampled captions of so many images take: own, top and uniform ones, and a quarter
        of what windows could hold, as most are empty."""
        captions, params = self.captions, self.params
        windows = params.windows.per_window / params.windows.stride / 4
        pairs = captions.n_captions / captions.n_images + params.uniform
        pairs += (params.top + windows) * len(params.measures)
        lists = [field.type.value_type for field in self.schema if pa.types.is_list(field.type)]
        return int(images * min(pairs, captions.n_captions) * sum(item.bit_width // 8 for item in lists))

    @property
    def n_blocks(self) -> int:
        return -(-self.captions.n_images // self.params.block_images)

    def job(self, work: Path) -> Job:
        """For workers, who find the fitted measures and the keys in the work folder."""
        params, captions = self.params, self.captions
        require_device(params.device)
        url = run_url(params.exchange, work)
        kinds = fit_measures(self.chosen, captions, work)
        save_ids(captions.image_ids, work)
        chunks = captions.table["caption_id"].chunks  # all ids at once would be a Python object each
        caption_keys = np.concatenate([id_keys(chunk.to_pylist()) for chunk in chunks])
        keys = {"images": id_keys(captions.image_ids), "captions": caption_keys}
        for name, array in {**keys, "ref_ptr": captions.ref_ptr, "refs": captions.refs}.items():
            np.save(work / "keys" / f"{name}.npy", array)
        return Job(
            work=work, kinds=kinds, tables=self.tables,
            n_images=captions.n_images, block_images=params.block_images, device=params.device, url=url,
        )  # fmt: skip

    @property
    def tables(self) -> Sampled:
        return Sampled(tuple(self.params.measures), plan_of(self.chosen.values(), self.params), self.schema)

    def scored(self, job: Job, blocks: range) -> dict[str, int]:
        """By measure, how many pairs these blocks had values of."""
        counts = [batch.to_pylist()[0] for batch in job.joined(SCORED, blocks)]
        return {name: sum(count[name] for count in counts) for name in self.params.measures}

    def finish(
        self, folder: Path, kind: str, rows: dict[str, int], pairs: int, scored: dict[str, int]
    ) -> dict[str, Any]:
        """The manifest, unless a file that was read has changed meanwhile."""
        require_unchanged(dict(self.files), read_by(self.params.measures, self.measures))
        return write_manifest(
            folder, kind, params=self.made_with, inputs=self.inputs, rows=rows, pairs=pairs, scored=scored,
            n_captions=self.captions.n_captions,
        )  # fmt: skip


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
    source = Source.of(captions_dir, params, measures)
    return _made(source, out, "shards", range(source.n_blocks), source.key, beam_options, write_shards)


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
    Returns the part's manifest. Raises InputError as `shards`, and for more parts than blocks.
    """
    source = Source.of(captions_dir, params, measures)
    blocks, key = part.blocks(source.n_blocks), [*source.key, part.number, part.of]
    return _made(source, part.folder(out), KIND, blocks, key, beam_options, write_blocks)


def _made(
    source: Source, folder: Path, kind: str, blocks: range, key: Any, options: Sequence[str],
    write: Callable[[Path, Source, Sequence[Path]], tuple[dict[str, int], int]],
) -> dict[str, Any]:  # fmt: skip
    """Make these blocks, and of them what `write` writes. Returns the manifest."""
    with work_folder(folder, kind, key) as work:
        images = min(len(blocks) * source.params.block_images, source.captions.n_images)
        require_space(folder, source.size(images), parts=source.size(images), done=size_of(work / "parts"))
        job = source.job(work)
        run_blocks(job, f"sampling from {images:,} x {source.captions.n_captions:,} pairs", options, blocks)
        rows, pairs = write(folder, source, [job.part(block, TABLE) for block in blocks])
        scored = source.scored(job, blocks)
    manifest = source.finish(folder, kind, rows, pairs, scored)
    forget(job)
    return manifest


def join_shards(captions_dir: Path, out: Path, params: ShardsParams, measures: MeasuresParams) -> dict[str, Any]:
    """The shards that `shards` would write, of the parts beside `out`; the parts stay.

    Returns the manifest. Raises InputError when a part is missing or unfinished, or was made of something else.
    """
    source = Source.of(captions_dir, params, measures)
    files, scored = part_files(out, source.made_with, source.inputs)
    with work_folder(out, "shards", [*source.key, "join"]):
        require_space(out, sum(path.stat().st_size for path in files))
        rows, pairs = write_shards(out, source, files)
    return source.finish(out, "shards", rows, pairs, scored)


def write_shards(out: Path, source: Source, parts: Sequence[Path]) -> tuple[dict[str, int], int]:
    """Shards of the parts of all blocks: the rows of each, and pairs."""
    groups = list(_by_size(parts, source.params.target_mb * 2**20))
    rows, pairs = {}, 0
    for k, group in enumerate(groups):
        name = shard_name(k, len(groups))
        rows[name] = write_arrow(out / name, source.schema, (open_arrow(path).get_batch(0) for path in group))
        pairs += sum(_pairs(open_arrow(path).get_batch(0)) for path in group)
    return rows, pairs


def write_blocks(out: Path, source: Source, parts: Sequence[Path]) -> tuple[dict[str, int], int]:
    """A file for each block, to be joined later: the rows of each, and pairs."""
    batches = {block_name(part): open_arrow(part).get_batch(0) for part in parts}
    rows = {name: write_arrow(out / name, source.schema, [batch]) for name, batch in batches.items()}
    return rows, sum(map(_pairs, batches.values()))


def _pairs(batch: pa.RecordBatch) -> int:
    return len(batch["captions"].flatten())


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

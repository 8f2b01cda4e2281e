"""Stage `shards`: for each training image a sample of captions, each with its probability.

It may be made in parts: each has a share of the images' blocks and a folder beside the output, and
`join_shards` makes shards of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.bits import id_keys
from capgrade.measures import Fitted, Measure
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.execution.folder import Folder
from capgrade.pipelines.execution.job import (
    Job,
    Source,
    finish,
    read_source,
    run_blocks,
    save_job,
)
from capgrade.pipelines.sampling.keys import RULE
from capgrade.pipelines.sampling.plan import Plan, reason_names
from capgrade.pipelines.sampling.sampler import Sampler
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import by_size, in_order, open_arrow, read_manifest, write_arrow
from capgrade.schemas.output import PARTS, output_folder
from capgrade.schemas.own_pairs import LEFT_OUT
from capgrade.schemas.params import ShardsParams
from capgrade.schemas.shards import shard_name, shard_schema
from capgrade.schemas.space import require_space, size_of

PART = "shards_part"  # the kind of a part's folder


def shards(
    captions_dir: Path,
    out: Path,
    params: ShardsParams,
    measures: MeasuresParams,
    beam_options: Sequence[str] = (),
    part: ShardsPart | None = None,
) -> dict[str, Any]:
    """Score every caption with every image of a split, and write the captions each image keeps.

    It keeps its own captions, the most relevant by each measure, a stratified sample over the
    windows of each measure's range, and a uniform sample. With `part`, only that share of the
    images' blocks is made, into a folder beside `out` for `join_shards`: in any order, at the same
    time, on machines that see the same folders. Returns the manifest. Raises InputError as
    `relevance` does, and for more parts than blocks.
    """
    source = source_of(captions_dir, params, measures)
    schema = schema_of(source)
    kind, blocks, target_mb = "shards", range(source.n_blocks), params.target_mb
    if part is not None:
        # A part has a file for each block, and `join_shards` makes files of the right size.
        kind, target_mb = PART, 0
        out, blocks = part.folder(out), part.blocks(source.n_blocks)
    captions = source.captions
    images = min(len(blocks) * params.block_images, captions.n_images)
    size = _size(schema, params, captions, images)
    with output_folder(out, kind, source.made_of) as folder:
        require_space(out, size, parts=size, done=size_of(folder / PARTS))
        job = job_of(source, params, folder)
        what = f"sampling from {images:,} x {captions.n_captions:,} pairs"
        files = run_blocks(job, folder, what, beam_options, blocks)
        rows, pairs = write_shards(folder, schema, files, target_mb)
        manifest = finish(source, folder, kind, rows, pairs=pairs)
    if params.exchange:
        Folder(job.url).delete_all()
    return manifest


def source_of(captions_dir: Path, params: ShardsParams, measures: MeasuresParams) -> Source:
    """What shards are made of. InputError as `read_source`, for too many measures, and where no
    sample gives every pair a chance."""
    reason_names(params.measures)
    source = read_source("shards", captions_dir, params, measures, sampler=RULE)
    if not params.uniform and len(partial_measures(source)) == len(params.measures):
        problem = f"no sample of all pairs: {', '.join(params.measures)} have no windows"
        raise InputError(problem, remedy="set shards.uniform above 0, or name a further measure")
    return source


def partial_measures(source: Source) -> frozenset[int]:
    """The numbers of the measures that score some pairs alone."""
    n = source.captions.n_captions
    chosen = enumerate(source.chosen.values())
    return frozenset(m for m, measure in chosen if measure.partial(n))


def schema_of(source: Source) -> pa.Schema:
    """The schema of every shard and part."""
    names = source.params.measures
    metadata = {
        **source.facts,
        "inputs": source.files,
        "n_captions": source.captions.n_captions,
        "params": source.made_with,
        "reasons": reason_names(names, partial_measures(source)),
    }
    left_out = [name for name in names if source.chosen[name].leaves_out]
    return shard_schema(names, metadata, left_out)


def _size(schema: pa.Schema, params: ShardsParams, captions: Captions, images: int) -> int:
    """About how many bytes the sampled captions of so many images take.

    They are own, top and uniform ones, and a quarter of what windows could hold: most are empty.
    """
    windows = params.windows.per_window / params.windows.stride / 4
    pairs = captions.n_captions / captions.n_images + params.uniform
    pairs += (params.top + windows) * len(params.measures)
    lists = [field.type.value_type for field in schema if pa.types.is_list(field.type)]
    item_bytes = sum(item.bit_width // 8 for item in lists)
    return int(images * min(pairs, captions.n_captions) * item_bytes)


def job_of(source: Source, params: ShardsParams, work: Path) -> Job:
    """What workers make, and in `work` what they need for it.

    Beside what `save_job` puts there, these are the sampler's hashes of ids, and which captions are
    each image's own.
    """
    captions, schema = source.captions, schema_of(source)

    def make_table() -> SampledTables:
        plan = plan_of(source.chosen.values(), params, partial_measures(source))
        return SampledTables(params.measures, plan, schema)

    job = save_job(source, work, make_table)
    # Chunk by chunk, so that not all ids are Python objects at the same time.
    chunks = captions.table["caption_id"].chunks
    arrays = {
        "images": id_keys(captions.image_ids),
        "captions": np.concatenate([id_keys(chunk.to_pylist()) for chunk in chunks]),
        "ref_ptr": captions.ref_ptr,
        "refs": captions.refs,
    }
    for name, array in arrays.items():
        np.save(work / "keys" / f"{name}.npy", array)
    return job


def plan_of(
    measures: Iterable[Measure], params: ShardsParams, partial: frozenset[int] = frozenset()
) -> Plan:
    """What to keep of each image, by fitted measures' ranges; `partial` as of `Plan`."""
    low, high = zip(*((measure.low, measure.high) for measure in measures), strict=True)
    windows = params.windows
    return Plan(
        low,
        high,
        params.top,
        windows.width,
        windows.stride,
        windows.per_window,
        params.uniform,
        params.seed,
        1.0 if windows.among == "all" else windows.among,
        partial,
    )


@dataclass(frozen=True)
class SampledTables:
    """Makes the part of a block: rows of `shard_schema`, by the sampler."""

    measures: tuple[str, ...]
    plan: Plan
    schema: pa.Schema

    def __call__(
        self,
        images: np.ndarray,
        ids: list[str],
        fitted: Mapping[str, Fitted],
        folder: Path,
    ) -> pa.RecordBatch:
        saved = {
            path.stem: np.load(path, mmap_mode="c") for path in (folder / "keys").glob("*.npy")
        }
        keys = np.asarray(saved["images"]), np.asarray(saved["captions"])
        measures = [fitted[name] for name in self.measures]
        kept = Sampler(self.plan, measures, *keys, saved["ref_ptr"], saved["refs"]).sample(images)
        columns = [pa.array(ids, pa.string()), pa.array(images, pa.int32())]
        for name, flat in zip(
            ["captions", "reasons", "weight", *self.measures],
            [kept.caption, kept.reasons, kept.weight, *kept.values],
            strict=True,
        ):
            columns.append(self._lists(name, kept.ptr, flat))
        own = np.append(0, np.cumsum(np.diff(saved["ref_ptr"])[images]))
        for name in self.measures:
            if name + LEFT_OUT in self.schema.names:
                flat = fitted[name].own_left_out(images)
                columns.append(self._lists(name + LEFT_OUT, own, flat))
        return pa.record_batch(columns, schema=self.schema)

    def _lists(self, column: str, ptr: np.ndarray, flat: np.ndarray) -> pa.Array:
        """A NaN is null: a value that is not known."""
        kind = self.schema.field(column).type
        values = pa.array(flat, kind.value_type, from_pandas=True)
        return pa.ListArray.from_arrays(pa.array(ptr, pa.int32()), values, kind)


def write_shards(
    out: Path, schema: pa.Schema, parts: Sequence[Path], target_mb: int
) -> tuple[dict[str, int], int]:
    """Write shards from the parts of all blocks. Returns the rows of each, and all pairs."""
    groups = list(by_size(parts, lambda part: part.stat().st_size, target_mb * 2**20))
    rows, pairs = {}, 0
    for k, group in enumerate(groups):
        name = shard_name(k, len(groups))
        rows[name] = write_arrow(
            out / name, schema, (open_arrow(path).get_batch(0) for path in group)
        )
        pairs += sum(len(open_arrow(path).get_batch(0)["captions"].flatten()) for path in group)
    return rows, pairs


def join_shards(
    captions_dir: Path, out: Path, params: ShardsParams, measures: MeasuresParams
) -> dict[str, Any]:
    """Write the shards that `shards` would write, from the parts beside `out`; the parts stay.

    Returns the manifest. InputError when a part is missing, unfinished, or of something else.
    """
    source = source_of(captions_dir, params, measures)
    files = part_files(out, source)
    with output_folder(out, "shards") as folder:
        require_space(out, sum(path.stat().st_size for path in files))
        rows, pairs = write_shards(folder, schema_of(source), files, params.target_mb)
        return finish(source, folder, "shards", rows, pairs=pairs)


def part_files(out: Path, source: Source) -> list[Path]:
    """The files of all blocks in order.

    InputError when parts are missing or unfinished, were made with other parameters or of other
    inputs, or do not belong together.
    """
    again = "make it with `capgrade shards --part`, the same options and --out"
    found = (
        re.fullmatch(r"[1-9]\d*-of-([1-9]\d*)", path.name, re.ASCII)
        for path in parts_folder(out).glob("*")
    )
    counts = {name[1] for name in found if name}
    if not counts:
        raise InputError("no parts to join", file=parts_folder(out), remedy=again)
    if len(counts) > 1:
        problem = (
            f"parts of several divisions: {', '.join(sorted(f'N/{count}' for count in counts))}"
        )
        raise InputError(
            problem, file=parts_folder(out), remedy="delete the folders of those that do not belong"
        )
    # as manifests hold it
    count, made_with = (
        int(counts.pop()),
        json.loads(json.dumps(source.made_with)),
    )
    files = []
    for number in range(1, count + 1):
        folder = ShardsPart(number, count).folder(out)
        if not folder.is_dir():
            raise InputError(f"part {number}/{count} is missing", file=folder, remedy=again)
        manifest = read_manifest(folder, PART)
        if (manifest["params"], manifest["inputs"]) != (made_with, source.inputs):
            problem = f"part {number}/{count} was made with other parameters, or of other captions"
            raise InputError(problem, file=folder, remedy=again)
        files += [folder / name for name in in_order(manifest["files"])]
    return files


@dataclass(frozen=True)
class ShardsPart:
    """Part `number`, from 1, of `count`: a share of the images' blocks."""

    number: int
    count: int

    @staticmethod
    def parse(text: str) -> ShardsPart:
        """From 3/8. InputError for anything that is no part."""
        found = re.fullmatch(r"(\d+)/(\d+)", text, re.ASCII)
        part = ShardsPart(int(found[1]), int(found[2])) if found else ShardsPart(0, 0)
        if not 1 <= part.number <= part.count:
            remedy = "give its number and how many there are: 1/8 to 8/8"
            raise InputError(f"no part '{text}'", remedy=remedy)
        return part

    def blocks(self, n_blocks: int) -> range:
        """Its blocks, which follow each other; parts have as many or one more than others.

        InputError when some would have none.
        """
        if self.count > n_blocks:
            problem = f"{self.count} parts of {n_blocks} blocks of images"
            raise InputError(problem, remedy="make fewer parts, or lower shards.block_images")
        ends = [number * n_blocks // self.count for number in (self.number - 1, self.number)]
        return range(*ends)

    def folder(self, out: Path) -> Path:
        """OUT.parts/3-of-8."""
        return parts_folder(out) / f"{self.number}-of-{self.count}"


def parts_folder(out: Path) -> Path:
    """Beside the output, for all its parts."""
    return Path(f"{out.resolve()}.parts")

"""Stage `shards`: for each training image a sample of captions, each with its probability.

It may be made in parts: each has a share of the images' blocks and a folder beside the output, and
the shards are made of them in the end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.kernels import id_keys
from capgrade.measures import Fitted
from capgrade.measures.imported import Imported
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.execution.job import Runner, ScoringRun, open_run, run_blocks
from capgrade.pipelines.execution.worker import Job
from capgrade.pipelines.sampling.draws import RULE
from capgrade.pipelines.sampling.sampler import Plan, Sampler, plan_of, reason_names
from capgrade.pipelines.stages.shards import SHARDS, ShardsParams, ShardsPart, parts_folder
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import in_order, read_manifest
from capgrade.schemas.output import PARTS, differences, output_folder, require_space, size_of
from capgrade.schemas.pairs import LEFT_OUT
from capgrade.schemas.run import StageRun
from capgrade.schemas.say import warn
from capgrade.schemas.shards import shard_batch, shard_schema, write_shards

PART = "shards_part"  # the kind of a part's folder


def shards(
    captions: Path,
    out: Path,
    params: ShardsParams,
    measures: MeasuresParams,
    runner: Runner | None = None,
) -> dict[str, Any]:
    """Score every caption with every image of a split, and write the captions each image keeps.

    It keeps its own captions, the most relevant by each measure, a stratified sample over the
    windows of each measure's range, and a uniform sample. With `params.part`, only that share of
    the images' blocks is made, into a folder beside `out`: in any order, at the same time, on
    machines that see the same folders. With `params.join` the shards are written from these parts,
    which stay. Workers are those of the `runner`, or this process. Returns the manifest. Raises
    InputError as `relevance` does, for more parts than blocks, and where a part to join is missing,
    unfinished, or of something else.
    """
    if params.join:  # which computes nothing, and needs no GPU
        scoring = open_shards_run(captions, params.model_copy(update={"device": "cpu"}), measures)
        return _join_shards(scoring, out, params.target_mb)
    scoring = open_shards_run(captions, params, measures)
    kind, blocks, target_mb = None, range(scoring.n_blocks), params.target_mb
    if (part := params.only_part) is not None:
        # A part has a file for each block, and joined shards have files of the right size.
        kind, target_mb = PART, 0
        out, blocks = part.folder(out), part.blocks(scoring.n_blocks)
    table = scoring.captions
    images = min(len(blocks) * params.block_images, table.n_images)
    size, schema = _size(params, table, images), schema_of(scoring)
    with scoring.run.folder(out, kind) as folder:
        require_space(out, size, parts=size, done=size_of(folder / PARTS))
        job = save_shards_job(scoring, schema, folder)
        what = f"sampling from {images:,} x {table.n_captions:,} pairs"
        files = run_blocks(job, folder, what, runner, blocks)
        rows, pairs = write_shards(folder, schema, files, target_mb)
        facts: dict[str, Any] = {"pairs": pairs, "n_captions": table.n_captions}
        if part is not None:
            facts |= {"part": f"{part.number}/{part.count}", "made_of": scoring.run.made_of}
        return scoring.run.finish(folder, rows, kind, **facts)


def open_shards_run(captions: Path, params: ShardsParams, measures: MeasuresParams) -> ScoringRun:
    """What shards are made of. InputError as `open_run`, and where no sample gives every pair a
    chance."""
    scoring = open_run(SHARDS, captions, params, measures, sampler=RULE)
    if not params.uniform and len(scoring.partial) == len(params.measures):
        problem = f"no sample of all pairs: {', '.join(params.measures)} have no windows"
        raise InputError(problem, remedy="set shards.uniform above 0, or name a further measure")
    table = scoring.captions
    for name, measure in scoring.chosen.items():
        if isinstance(measure, Imported) and (missing := measure.own_unknown(table)):
            count = f"{missing:,} of {table.n_captions:,} own captions have no value"
            warn(f"{name}: {count}, and training by it leaves them out -> give them one")
    return scoring


def schema_of(scoring: ScoringRun) -> pa.Schema:
    """The schema of every shard and part. InputError for too many measures."""
    metadata = {
        **scoring.facts,
        "inputs": scoring.files,
        "n_captions": scoring.captions.n_captions,
        "params": scoring.run.made_with,
        "reasons": reason_names([*scoring.chosen], scoring.partial),
    }
    left_out = [name for name, measure in scoring.chosen.items() if measure.leaves_out]
    return shard_schema([*scoring.chosen], metadata, left_out)


def _size(params: ShardsParams, captions: Captions, images: int) -> int:
    """About how many bytes the sampled captions of so many images take.

    They are own, top and uniform ones, and a quarter of what windows could hold: most are empty.
    """
    windows = params.windows.per_window / params.windows.stride / 4
    pairs = captions.n_captions / captions.n_images + params.uniform
    pairs += (params.top + windows) * len(params.measures)
    # Of a pair, numbers of four bytes: its caption, reasons and weight, and its values.
    return int(images * min(pairs, captions.n_captions) * 4 * (3 + len(params.measures)))


def save_shards_job(
    scoring: ScoringRun, schema: pa.Schema, work: Path, url: str | None = None
) -> Job:
    """What workers make, and in `work` what they need for it; `url` as of `ScoringRun.job`.

    Beside what that puts there, these are the sampler's hashes of ids, and which captions are each
    image's own.
    """
    captions, params = scoring.captions, scoring.params
    assert isinstance(params, ShardsParams)
    # Chunk by chunk, so that not all ids are Python objects at the same time.
    chunks = captions.table["caption_id"].chunks
    arrays = {
        "images": id_keys(captions.image_ids),
        "captions": np.concatenate([id_keys(chunk.to_pylist()) for chunk in chunks]),
        "ref_ptr": captions.ref_ptr,
        "refs": captions.refs,
    }
    (work / "keys").mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(work / "keys" / f"{name}.npy", array)

    kinds = scoring.fit_measures(work)
    plan = plan_of(scoring.chosen.values(), params, scoring.partial)
    return scoring.job(work, kinds, SampledTables(params.measures, plan, schema), url)


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
        saved = {}
        for path in (folder / "keys").glob("*.npy"):
            saved[path.stem] = np.asarray(np.load(path, mmap_mode="c"))
        keys = saved["images"], saved["captions"]
        measures = {name: fitted[name] for name in self.measures}
        kept = Sampler(self.plan, measures, *keys, saved["ref_ptr"], saved["refs"]).sample(images)
        own = np.append(0, np.cumsum(np.diff(saved["ref_ptr"])[images]))
        left_out = {
            name: fitted[name].own_left_out(images)
            for name in self.measures
            if name + LEFT_OUT in self.schema.names
        }
        return shard_batch(self.schema, ids, images, kept, own, left_out)


def _join_shards(scoring: ScoringRun, out: Path, target_mb: int) -> dict[str, Any]:
    """Write the shards that one run would write, from the parts beside `out`."""
    files = _part_files(out, scoring.run)
    with output_folder(out, SHARDS.name) as folder:  # nothing of it is kept when it is stopped
        require_space(out, sum(path.stat().st_size for path in files))
        rows, pairs = write_shards(folder, schema_of(scoring), files, target_mb)
        n_captions = scoring.captions.n_captions
        return scoring.run.finish(folder, rows, pairs=pairs, n_captions=n_captions)


def _part_files(out: Path, run: StageRun[ShardsParams]) -> list[Path]:
    """The files of all blocks in order.

    InputError when parts are missing or unfinished, were made with other parameters, of other
    inputs, by another version, on several devices or of blocks of several sizes, or do not belong
    together.
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
    made_of = dict(run.made_of or {})
    count, files = int(counts.pop()), []
    for number in range(1, count + 1):
        folder, part = ShardsPart(number, count).folder(out), f"part {number}/{count}"
        if not folder.is_dir():
            raise InputError(f"{part} is missing", file=folder, remedy=again)
        manifest = read_manifest(folder, PART)
        if manifest.get("part") != f"{number}/{count}":
            raise InputError(f"this is part {manifest.get('part')}", file=folder, remedy=again)
        if number == 1:  # any device and blocks of any size, if all parts share them
            made_of |= {key: manifest["made_of"][key] for key in run.of_parts}
        if changed := differences({"params": manifest["made_of"]}, {"params": made_of}):
            problem = f"{part} differs from the others, or from what is asked: {changed}"
            raise InputError(problem, file=folder, remedy=again)
        files += [folder / name for name in in_order(manifest["files"])]
    return files

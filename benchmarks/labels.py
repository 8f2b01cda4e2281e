"""Training from shards of COCO-train's size: how long labels take to open, what memory they need, and how much of a
step they are.

The captions and shards are stand-ins, random, written as the stages write them: 113,287 images of 5 captions, each with
274 kept captions, 31 million pairs. They are opened in a process of their own, as a run opens them. Its share of a step
is to draw a batch and to look up the batch's relevance, what is known, and weights.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.benchmarks.timing import Round
from capgrade.benchmarks.train import of_model, random_batch
from capgrade.labels.batches import BatchPlan, Neighbours
from capgrade.schemas.captions import FILE, SCHEMA, Captions
from capgrade.schemas.files import with_metadata, write_arrow, write_manifest
from capgrade.schemas.memory import anonymous_mb, peak_mb
from capgrade.schemas.params import MeasuresParams, ShardsParams
from capgrade.schemas.shards import shard_name
from capgrade.trainer.data.relevance import LookedUp

if TYPE_CHECKING:
    from capgrade.pipelines.shards import Source

IMAGES, PER_IMAGE, KEPT = 113_287, 5, 274  # of COCO-train
SPLIT, MEASURE, RANGE = "train", "sbert", (0.3, 0.9)
PARAMS = ShardsParams(split=SPLIT)
WORDS, VOCABULARY = (8, 16), 5000
LOOKED_UP = 1000  # batches that are looked up, at most


def bench(batch: int, images: int = IMAGES) -> dict[str, Any]:
    """images, captions, pairs, batch. `open_s`: seconds until labels can be looked up. `peak_mb`: MB in memory at
    most, mapped files too; `before_mb` and `anonymous_mb`, what is no mapped file, before labels are opened and more
    after. `compositions`: of each kind of batches the seconds of its plan (`plan_s`) and of an epoch (`epoch_s`), how
    much more memory these take, and milliseconds of a batch to be drawn and looked up. `step_ms` of VSE++ at the
    paper's sizes, and the largest share of it, by the clock and by processor time, which other work changes less.

    The second of two processes is told of, as the first compiles kernels.
    """
    with tempfile.TemporaryDirectory() as folder:
        pairs = stand_in(Path(folder), images)
        alone = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1)
        with alone as processes:
            for _ in range(2):
                found = processes.submit(opened, Path(folder), batch).result()
    line, made = of_model("vse", *random_batch(batch)), found["compositions"].values()
    step = 1000 * batch / line["pairs_per_s"]
    return {
        "images": images, "captions": PER_IMAGE * images, "pairs": pairs, "batch": batch, **found, "step_ms": step,
        "share_of_step": max(one["draw_ms"] + one["look_up_ms"] for one in made) / step,
        "processor_share": max(one["processor_ms"] for one in made) / (1000 * line["processor_s"]),
    }  # fmt: skip


def opened(folder: Path, batch: int) -> dict[str, Any]:
    """What a run does before its first step, and its share of some steps."""
    before = anonymous_mb()
    opening, labels = _timed(lambda: _labels(folder))
    after = anonymous_mb()
    owner, every = labels.labels.owner, np.ones(labels.labels.n_captions, np.bool_)
    partners: dict[str, Callable[[], Neighbours | None]] = {
        "random": lambda: None,
        "seeded": lambda: Neighbours.kept_for(labels.labels, MEASURE, every),
        "range": lambda: Neighbours.within(labels.labels, MEASURE, *RANGE),
    }
    compositions = {}
    for name, of in partners.items():
        planned, plan = _timed(lambda of=of: BatchPlan(owner, np.arange(len(owner)), batch, neighbours=of()))  # type: ignore[misc]
        drawn, batches = _timed(lambda plan=plan: plan.epoch(1))  # type: ignore[misc]
        some = batches[:LOOKED_UP]
        looked_up, _ = _timed(lambda some=some: deque((labels.block(owner[rows], rows) for rows in some), 0))  # type: ignore[misc]
        compositions[name] = {
            "plan_s": planned.seconds, "epoch_s": drawn.seconds, "batches": len(batches),
            "anonymous_mb": anonymous_mb() - after,
            "draw_ms": 1000 * drawn.seconds / len(batches), "look_up_ms": 1000 * looked_up.seconds / len(some),
            "processor_ms": 1000 * (drawn.processor / len(batches) + looked_up.processor / len(some)),
        }  # fmt: skip
        del plan, batches, some
    return {
        "open_s": opening.seconds, "peak_mb": peak_mb(), "before_mb": before, "anonymous_mb": after - before,
        "compositions": compositions,
    }  # fmt: skip


def _labels(folder: Path) -> LookedUp:
    labels = LookedUp.load(folder / "shards", folder / "captions", SPLIT, MEASURE, "estimate")
    nothing = np.empty(0, np.int64)
    labels.block(nothing, nothing)  # what stands for unknown pairs
    assert labels.span[0] < labels.span[1]
    return labels


def _timed(work: Callable[[], Any]) -> tuple[Round, Any]:
    start, busy = time.perf_counter(), time.process_time()
    found = work()
    return Round(time.perf_counter() - start, time.process_time() - busy), found


def stand_in(folder: Path, images: int) -> int:
    """Write `captions` and `shards` below a folder; the pairs that are kept."""
    from capgrade.pipelines.shards import Source  # what opens them needs nothing that makes them

    captions = _captions(images)
    schema = with_metadata(SCHEMA, {"kind": "captions", "tokenizer": captions.tokenizer, "inputs": {}})
    (folder / "captions").mkdir()
    held = {FILE: write_arrow(folder / "captions" / FILE, schema, captions.table.cast(schema).to_batches())}
    splits = {SPLIT: captions.n_captions}
    write_manifest(folder / "captions", "captions", params={}, inputs={}, rows=held, images=images, splits=splits)
    source = Source.of(folder / "captions", PARAMS, MeasuresParams())
    (folder / "shards").mkdir()
    count = -(-source.size(images) // (PARAMS.target_mb * 2**20))
    rows, ends = {}, np.linspace(0, images, count + 1).astype(int)
    for k in range(count):
        name = shard_name(k, count)
        rows[name] = write_arrow(folder / "shards" / name, source.schema, _sampled(source, ends[k], ends[k + 1]))
    scored = dict.fromkeys(PARAMS.measures, 0)
    source.finish(folder / "shards", "shards", rows, images * KEPT, scored)
    return images * KEPT


def _captions(images: int) -> Captions:
    """Random words; every image has its captions one after the other."""
    rng, n = np.random.default_rng(0), PER_IMAGE * images
    ends = np.concatenate([[0], np.cumsum(rng.integers(WORDS[0], WORDS[1] + 1, n))])
    words = pa.array([f"word{k}" for k in range(VOCABULARY)])
    tokens = pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), words.take(pa.array(rng.integers(0, VOCABULARY, ends[-1])))
    )
    columns = [
        pa.array([f"{row // PER_IMAGE:012d}" for row in range(n)]), pa.array([str(row) for row in range(n)]),
        pa.array([SPLIT] * n), pc.binary_join(tokens, " "), tokens, pa.nulls(n, pa.string()),
    ]  # fmt: skip
    return Captions(pa.table(columns, schema=SCHEMA), SPLIT, "ptb", "")


def _sampled(source: Source, first: int, end: int) -> Iterator[pa.RecordBatch]:
    for at in range(first, end, source.params.block_images):
        yield _block(source, np.arange(at, min(at + source.params.block_images, end)))


def _block(source: Source, images: np.ndarray) -> pa.RecordBatch:
    """Of each image its own captions, and others drawn for every reason alike. Those that were not kept for certain
    stand for all that were not kept."""
    rng, n = np.random.default_rng([1, images[0]]), source.captions.n_captions
    own = PER_IMAGE * images[:, None] + np.arange(PER_IMAGE)
    others = np.sort(rng.integers(0, n - KEPT + 1, (len(images), KEPT - PER_IMAGE))) + np.arange(KEPT - PER_IMAGE)
    others += PER_IMAGE * (others >= own[:, :1])
    bits = rng.integers(1, 2 + 2 * len(PARAMS.measures), others.shape)  # tops are the even ones
    certain = np.concatenate([np.ones(own.shape, np.bool_), bits % 2 == 0], axis=1)
    bits = np.concatenate([np.zeros_like(own), bits], axis=1)
    weight = np.where(certain, 1, (n - certain.sum(axis=1, keepdims=True)) / (~certain).sum(axis=1, keepdims=True))
    rows = np.concatenate([own, others], axis=1)
    order = np.argsort(rows, axis=1)
    lists = {"captions": rows, "reasons": 1 << bits, "weight": weight}
    for name, measure in source.chosen.items():
        lists[name] = measure.high * rng.random(rows.shape) ** np.where(bits == 0, 0.5, np.where(certain, 1, 4))
    ptr = pa.array(KEPT * np.arange(len(images) + 1), pa.int32())
    columns = [pa.array([source.captions.image_ids[i] for i in images]), pa.array(images, pa.int32())]
    for name, values in lists.items():
        flat = np.take_along_axis(values, order, axis=1).ravel()
        columns.append(
            pa.ListArray.from_arrays(ptr, pa.array(flat).cast(source.schema.field(name).type.value_type, safe=False))
        )
    return pa.record_batch(columns, schema=source.schema)


def show(found: dict[str, Any]) -> str:
    """A line for what is opened, one for memory, one a composition, and the share of a step."""
    lines = [
        f"{found['images']:,} images x {found['captions']:,} captions, {found['pairs']:,} pairs kept: opened in "
        f"{found['open_s']:.2f} s",
        f"memory: {found['peak_mb']:,.0f} MB at most, mapped files too; its own {found['before_mb']:,.0f} MB before, "
        f"{found['anonymous_mb']:,.0f} MB more once opened",
    ]
    for name, one in found["compositions"].items():
        lines.append(
            f"{name} batches: planned in {one['plan_s']:.2f} s, an epoch of {one['batches']:,} in "
            f"{one['epoch_s']:.2f} s, {one['anonymous_mb']:,.0f} MB more; each drawn in {one['draw_ms']:.3f} ms, "
            f"looked up in {one['look_up_ms']:.3f} ms"
        )
    share = f"{found['share_of_step']:.3%} of a VSE++ step of {found['batch']} pairs, {found['step_ms']:.0f} ms"
    return "\n".join([*lines, f"at most {share}; by processor time {found['processor_share']:.3%}"])

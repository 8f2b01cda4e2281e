"""Training from shards of COCO-train's size: how long labels take to open, their memory, and their share of a step.

The captions and shards are stand-ins, random, written as the stages write them: 113,287 images of 5 captions, each with
274 kept captions, 31 million pairs. They are opened in a process of their own, as a run opens them. Its share of a step
is to draw a batch and to look up the batch's relevance, what is known, and weights.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.benchmarks.harness import Asked, Rows, once
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
RUNS = 2  # processes, of which the last is told of: the first compiles kernels


def bench(asked: Asked) -> Rows:
    """`labels`: open_s, until they can be looked up; peak_mb, MB in memory at most, mapped files too; before_mb and
    anonymous_mb, what is no mapped file, before labels are opened and more after. By kind of batches: plan_s and
    epoch_s, more memory, draw_ms and look_up_ms of a batch, and its share of a step of VSE++ at the paper's sizes, by
    the clock and by processor time, which other work changes less.
    """
    batch, images = asked.bench.batch, asked.bench.images or IMAGES
    with tempfile.TemporaryDirectory() as folder:
        pairs = stand_in(Path(folder), images)
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, spawn, max_tasks_per_child=1) as processes:
            for _ in range(RUNS):
                rows = processes.submit(opened, Path(folder), batch).result()
    line = of_model("vse", *random_batch(batch))
    step = 1000 * batch / line["pairs_per_s"]
    for name in rows.keys() - {"labels"}:
        rows[name]["share_of_step"] = (rows[name]["draw_ms"] + rows[name]["look_up_ms"]) / step
        rows[name]["processor_share"] = rows[name]["processor_ms"] / (1000 * line["processor_s"])
    size = {"images": images, "captions": PER_IMAGE * images, "pairs": pairs, "batch": batch, "step_ms": step}
    return {**rows, "labels": size | rows["labels"]}


def opened(folder: Path, batch: int) -> Rows:
    """What a run does before its first step, and its share of some steps."""
    before = anonymous_mb()
    opening, labels = once(_labels, folder)
    after = anonymous_mb()
    owner, every = labels.labels.owner, np.ones(labels.labels.n_captions, np.bool_)
    neighbours: dict[str, Callable[[], Neighbours | None]] = {
        "random": lambda: None,
        "seeded": lambda: Neighbours.kept_for(labels.labels, MEASURE, every),
        "range": lambda: Neighbours.within(labels.labels, MEASURE, *RANGE),
    }
    rows: Rows = {}
    for name, of in neighbours.items():
        planned, plan = once(lambda of=of: BatchPlan(owner, np.arange(len(owner)), batch, neighbours=of()))
        drawn, batches = once(plan.epoch, 1)
        some = batches[:LOOKED_UP]
        looked_up, _ = once(lambda some=some: deque((labels.block(owner[rows], rows) for rows in some), 0))
        rows[name] = {
            "plan_s": planned.seconds, "epoch_s": drawn.seconds, "batches": len(batches),
            "anonymous_mb": anonymous_mb() - after,
            "draw_ms": 1000 * drawn.seconds / len(batches), "look_up_ms": 1000 * looked_up.seconds / len(some),
            "processor_ms": 1000 * (drawn.processor / len(batches) + looked_up.processor / len(some)),
        }  # fmt: skip
        del plan, batches, some
    rows["labels"] = {
        "open_s": opening.seconds, "peak_mb": peak_mb(), "before_mb": before, "anonymous_mb": after - before
    }  # fmt: skip
    return rows


def _labels(folder: Path) -> LookedUp:
    labels = LookedUp.load(folder / "shards", folder / "captions", SPLIT, MEASURE, "estimate")
    nothing = np.empty(0, np.int64)
    labels.block(nothing, nothing)  # what stands for unknown pairs
    assert labels.span[0] < labels.span[1]
    return labels


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
        rows[name] = write_arrow(folder / "shards" / name, source.schema, _blocks(source, ends[k], ends[k + 1]))
    source.finish(folder / "shards", "shards", rows, images * KEPT, dict.fromkeys(PARAMS.measures, 0))
    return images * KEPT


def _captions(images: int) -> Captions:
    """Random words; every image has its captions one after the other."""
    rng, n = np.random.default_rng(0), PER_IMAGE * images
    ends = np.concatenate([[0], np.cumsum(rng.integers(WORDS[0], WORDS[1] + 1, n))])
    words = pa.array([f"word{k}" for k in range(VOCABULARY)])
    drawn = words.take(pa.array(rng.integers(0, VOCABULARY, ends[-1])))
    tokens = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), drawn)
    columns = [
        pa.array([f"{row // PER_IMAGE:012d}" for row in range(n)]), pa.array([str(row) for row in range(n)]),
        pa.array([SPLIT] * n), pc.binary_join(tokens, " "), tokens, pa.nulls(n, pa.string()),
    ]  # fmt: skip
    return Captions(pa.table(columns, schema=SCHEMA), SPLIT, "ptb", "")


def _blocks(source: Source, first: int, end: int) -> Iterator[pa.RecordBatch]:
    """Of each image its own captions, and others drawn for every reason alike that stand for all others."""
    n, size = source.captions.n_captions, source.params.block_images
    for at in range(first, end, size):
        images = np.arange(at, min(at + size, end))
        rng = np.random.default_rng([1, at])
        own = PER_IMAGE * images[:, None] + np.arange(PER_IMAGE)
        others = np.sort(rng.integers(0, n - KEPT + 1, (len(images), KEPT - PER_IMAGE))) + np.arange(KEPT - PER_IMAGE)
        others += PER_IMAGE * (others >= own[:, :1])
        bits = np.hstack([np.zeros_like(own), rng.integers(1, 2 + 2 * len(PARAMS.measures), others.shape)])
        weight = np.where(bits == 0, 1, (n - PER_IMAGE) / (KEPT - PER_IMAGE))
        lists = {"captions": np.hstack([own, others]), "reasons": 1 << bits, "weight": weight}
        lists |= {name: measure.high * rng.random(bits.shape) ** 3 for name, measure in source.chosen.items()}
        order = np.argsort(lists["captions"], axis=1)
        ptr = pa.array(KEPT * np.arange(len(images) + 1), pa.int32())
        columns = [pa.array([source.captions.image_ids[i] for i in images]), pa.array(images, pa.int32())]
        for name, values in lists.items():
            kind = source.schema.field(name).type.value_type
            flat = pa.array(np.take_along_axis(values, order, axis=1).ravel()).cast(kind, safe=False)
            columns.append(pa.ListArray.from_arrays(ptr, flat))
        yield pa.record_batch(columns, schema=source.schema)

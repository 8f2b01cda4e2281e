"""`capgrade bench shards`: the whole stage in a process of its own, beside the float32 product of the same pairs alone.

Seconds are from the start of the process to the manifest. With `vectors`, stand-ins of `capgrade bench corpus` take
the place of sentence embeddings; real ones are made before the clock starts.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.benchmarks.brute_force import check
from capgrade.pipelines.measures.embeddings import (
    CHUNK,
    CUT,
    EMBEDDED,
    cache_folder,
    cache_name,
    embed,
    unique_texts,
)
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.memory import peak_mb
from capgrade.schemas.shards import read_shards

LOOK = 0.02  # seconds between looks at the memory of the stage
DIM = 384  # of the product, as of all-MiniLM-L6-v2
ROWS = 1280  # references that the product takes at a time
PRODUCT_ROWS = 12_800  # references that are multiplied at most; the rest is counted in proportion


def bench(
    captions_dir: Path, names: Sequence[str], split: str | None, vectors: Path | None, checked: int, sets: Sequence[str]
) -> dict[str, Any]:
    """images, captions, pairs, seconds, processor_seconds, peak_mb, product_seconds, ratio (of seconds to those of the
    product), kept_pairs, output_bytes, checked_images and max_abs_diff. InputError where the stage fails, where the
    vectors are of other captions, and for the first of `checked` random images that keeps other captions than brute
    force."""
    captions = read_captions(captions_dir, split)
    with tempfile.TemporaryDirectory() as scratch, _embedded(captions.texts, names, vectors, Path(scratch)):
        out = Path(scratch) / "shards"
        options = ["--captions", str(captions_dir), "--split", captions.split, "--measures", ",".join(names)]
        took = run("shards", [*options, "--out", str(out), *(word for one in sets for word in ("--set", one))])
        shards = read_shards(out)
        checks = check(captions, shards, checked)
    product = product_seconds(captions.n_captions)
    return {
        "images": captions.n_images,
        "captions": captions.n_captions,
        "pairs": captions.n_images * captions.n_captions,
        **took,
        "product_seconds": product,
        "ratio": took["seconds"] / product,
        "kept_pairs": shards.manifest["pairs"],
        "output_bytes": sum(entry["bytes"] for entry in shards.manifest["files"].values()),
        **checks,
    }


def run(command: str, options: Sequence[str], **environment: str) -> dict[str, float]:
    """Of a command in a process of its own: seconds, processor_seconds and peak_mb. InputError when it fails."""
    line = [sys.executable, "-m", "capgrade.pipelines.cli", command, *options]
    before, start, peak = _processor_seconds(), time.perf_counter(), 0.0
    process = subprocess.Popen(line, stdout=sys.stderr, env={**os.environ, **environment})
    while process.poll() is None:
        peak = max(peak, peak_mb(process.pid))
        time.sleep(LOOK)
    if process.returncode:
        raise InputError(f"capgrade {command} ended with status {process.returncode}")
    took = time.perf_counter() - start
    return {"seconds": took, "processor_seconds": _processor_seconds() - before, "peak_mb": peak}


def _processor_seconds() -> float:
    """Of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def product_seconds(n_captions: int) -> float:
    """Seconds of numpy's float32 product of as many unit vectors with themselves, block by block."""
    random = np.random.default_rng(0)
    vectors = random.standard_normal((n_captions, DIM), np.float32)
    multiplied = min(n_captions, PRODUCT_ROWS)
    vectors[:ROWS] @ vectors.T
    start = time.perf_counter()
    for at in range(0, multiplied, ROWS):
        vectors[at : min(at + ROWS, multiplied)] @ vectors.T
    return (time.perf_counter() - start) * n_captions / multiplied


@contextmanager
def _embedded(texts: list[str], names: Sequence[str], vectors: Path | None, scratch: Path) -> Iterator[None]:
    """Meanwhile the embeddings of these texts are in the cache that the stage reads."""
    if vectors is None:
        if "sbert" in names:
            embed(texts, EMBEDDED)
        yield
        return
    table = np.load(vectors, mmap_mode="r", allow_pickle=False)
    if len(table) != len(texts):
        problem = f"{len(table)} vectors for {len(texts)} captions"
        raise InputError(problem, file=vectors, remedy="make both with capgrade bench corpus")
    before = os.environ.get("CAPGRADE_CACHE")
    os.environ["CAPGRADE_CACHE"] = str(scratch / "cache")
    try:
        _store(texts, table)
        yield
    finally:
        os.environ.pop("CAPGRADE_CACHE")
        if before is not None:
            os.environ["CAPGRADE_CACHE"] = before


def _store(texts: list[str], vectors: np.ndarray) -> None:
    """Write the vectors to the cache as if Sentence-BERT had made them."""
    row = {text: k for k, text in enumerate(texts)}
    unique = unique_texts(texts)
    folder = cache_folder() / cache_name(unique, EMBEDDED)
    folder.mkdir(parents=True)
    for k, at in enumerate(range(0, len(unique), CHUNK)):
        rows = np.array([row[text] for text in unique[at : at + CHUNK]])
        np.save(folder / f"{k:05d}.npy", np.asarray(vectors[rows], np.float32))
    (folder / CUT).touch()


def show(result: dict[str, Any]) -> str:
    """The result in words."""
    pairs = result["pairs"]
    return "\n".join(
        [
            f"{result['images']:,} images x {result['captions']:,} captions, {pairs / 1e9:,.3g} billion pairs",
            f"{result['seconds']:,.1f} s, {1e9 * result['seconds'] / pairs:,.1f} ns per pair; "
            f"{result['processor_seconds']:,.1f} s of processor time; {result['peak_mb']:,.0f} MB at most",
            f"{result['ratio']:.2f} times the float32 product alone, which takes {result['product_seconds']:,.1f} s",
            f"{result['kept_pairs']:,} pairs kept, {result['output_bytes'] / 1e6:,.0f} MB written",
            f"{result['checked_images']:,} images as by brute force, values within {result['max_abs_diff']:.1e}",
        ]
    )

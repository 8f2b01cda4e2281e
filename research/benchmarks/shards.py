"""The stage `shards` in a process of its own, beside the float32 product of the same pairs.

Seconds are from the start of the process to its end. With `embeddings`, stand-ins of the
benchmark `corpus` replace sentence embeddings; real ones are computed before the clock starts.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np

from capgrade.measures.embeddings import EMBEDDINGS, cache_name, embed, store
from capgrade.pretrained import EMBEDDED
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import cache_folder
from capgrade.schemas.shards import read_shards
from research.benchmarks.harness import Asked, Rows, product_seconds
from research.benchmarks.usage import peak_mb, processor_seconds

LOOK = 0.02  # seconds between two readings of the stage's memory


def bench(asked: Asked) -> Rows:
    """images, captions, pairs, seconds, processor_seconds, peak_mb, product_seconds,
    times_the_product, kept_pairs and output_bytes. InputError where the stage fails, and where the
    vectors are of other captions."""
    captions = read_captions(asked.captions, asked.bench.split)
    params_file = ["--params", str(asked.params_file)] if asked.params_file else []
    with tempfile.TemporaryDirectory() as scratch, embedded(captions.texts, asked):
        out = Path(scratch) / "shards"
        options = ["--captions", str(asked.captions), "--split", captions.split]
        options += ["--measures", ",".join(asked.measures), "--out", str(out), *params_file]
        options += [word for text in asked.sets for word in ("--set", text)]
        cost = run("shards", options)
        shards = read_shards(out)
    pairs, product = captions.n_images * captions.n_captions, product_seconds(captions.n_captions)
    return {
        "shards": {
            "images": captions.n_images,
            "captions": captions.n_captions,
            "pairs": pairs,
            **cost,
            "ns_per_pair": 1e9 * cost["seconds"] / pairs,
            "product_seconds": product,
            "times_the_product": cost["seconds"] / product,
            "kept_pairs": shards.manifest["pairs"],
            "output_bytes": sum(entry["bytes"] for entry in shards.manifest["files"].values()),
        }
    }


def run(command: str, options: Sequence[str], **environment: str) -> dict[str, float]:
    """Run a command in a process of its own; returns its seconds, processor_seconds (with the
    readings of its memory) and peak_mb. InputError where it fails."""
    line = [sys.executable, "-m", "capgrade.pipelines.cli", command, *options]
    before, start, peak = processor_seconds(), time.perf_counter(), 0.0
    process = subprocess.Popen(line, stdout=sys.stderr, env={**os.environ, **environment})
    while process.poll() is None:
        peak = max(peak, peak_mb(process.pid))
        time.sleep(LOOK)
    if process.returncode:
        raise InputError(f"capgrade {command} ended with status {process.returncode}")
    seconds, busy = time.perf_counter() - start, processor_seconds() - before
    return {"seconds": seconds, "processor_seconds": busy, "peak_mb": peak}


@contextmanager
def embedded(texts: list[str], asked: Asked) -> Iterator[None]:
    """Inside the block, the embeddings of these texts are in the cache that the stage reads."""
    if asked.bench.embeddings is None:
        if "sbert" in asked.measures:
            embed(texts, EMBEDDED)
        yield
        return
    vectors = np.load(asked.bench.embeddings, mmap_mode="r", allow_pickle=False)
    if len(vectors) != len(texts):
        problem = f"{len(vectors)} vectors for {len(texts)} captions"
        remedy = "make both with python -m research.benchmarks corpus"
        raise InputError(problem, file=asked.bench.embeddings, remedy=remedy)
    with tempfile.TemporaryDirectory() as cache, patch.dict(os.environ, CAPGRADE_CACHE=cache):
        rows = np.unique(texts, return_index=True)[1]  # Equal texts have equal vectors.
        unique_texts = [texts[row] for row in rows]
        unique_vectors = np.asarray(vectors[rows], np.float32)
        file = cache_folder() / EMBEDDINGS / cache_name(EMBEDDED)
        store(file, unique_texts, unique_vectors, [0] * len(rows))
        yield

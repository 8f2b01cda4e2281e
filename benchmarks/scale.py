"""`capgrade shards` on a corpus of any size: pairs per second, peak memory, output; its samples against brute force.

The stage runs in a process of its own, whose largest resident set is read when it ends. Then random images are taken
up again the slow way: whole rows of every measure, every sample chosen from them by sorting, and the values of what is
kept by the kernels that look single captions up.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.benchmarks.brute_force import samples_of
from capgrade.pipelines.measures import Fitted, choose
from capgrade.pipelines.measures.embeddings import (
    CHUNK,
    CUT,
    EMBEDDED,
    cache_folder,
    cache_name,
    embed,
    encode,
    load_encoder,
    unique_texts,
)
from capgrade.pipelines.sampling.plan import id_keys
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams, ShardsParams
from capgrade.schemas.progress import progress
from capgrade.schemas.shards import Shards, read_shards

ENCODED = 2000  # captions that the encoder's rate is measured on


def bench(
    captions_dir: Path,
    names: tuple[str, ...],
    split: str | None,
    checked: int,
    vectors: Path | None = None,
    out: Path | None = None,
) -> dict[str, Any]:
    """Pairs, seconds, pairs_per_s, peak_rss_mb, output_bytes, checked_rows, max_abs_diff.

    `vectors` (.npy, float32 [captions, d]) stand for Sentence-BERT's, which otherwise are made before the clock starts.
    """
    captions = read_captions(captions_dir, split)
    with tempfile.TemporaryDirectory() as scratch, _embeddings(captions, names, vectors, Path(scratch)) as encoding:
        folder = out or Path(scratch) / "shards"
        seconds, peak = _run(captions_dir, names, split, folder)
        shards = read_shards(folder)
        pairs = captions.n_images * captions.n_captions
        return {
            "images": captions.n_images,
            "captions": captions.n_captions,
            "pairs": pairs,
            "seconds": seconds,
            "pairs_per_s": pairs / seconds,
            "peak_rss_mb": peak,
            "output_bytes": sum(entry["bytes"] for entry in shards.manifest["files"].values()),
            "kept_pairs": shards.manifest["pairs"],
            **encoding,
            **check(captions, shards, checked),
        }


def _run(captions_dir: Path, names: Sequence[str], split: str | None, out: Path) -> tuple[float, float]:
    """Seconds and peak megabytes of the stage in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "capgrade.pipelines.cli",
        "shards",
        "--captions",
        str(captions_dir),
        "--out",
        str(out),
    ]
    command += ["--measures", ",".join(names), *(["--split", split] if split else [])]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=sys.stderr)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise InputError(f"capgrade shards ended with status {os.waitstatus_to_exitcode(status)}", file=out)
    return time.perf_counter() - start, usage.ru_maxrss / 1024


@contextmanager
def _embeddings(
    captions: Captions, names: Sequence[str], vectors: Path | None, scratch: Path
) -> Iterator[dict[str, float]]:
    """Embeddings in the cache that the stage reads: stand-ins in a cache of their own, or real ones. Yields the rate of
    the encoder, captions per second."""
    if "sbert" not in names:
        yield {}
        return
    start = time.perf_counter()
    encode(load_encoder(EMBEDDED), captions.texts[:ENCODED])
    rate = {"encoded_per_s": min(ENCODED, captions.n_captions) / (time.perf_counter() - start)}
    if vectors is None:
        embed(captions.texts, EMBEDDED)
        yield rate
        return
    before = os.environ.get("CAPGRADE_CACHE")
    os.environ["CAPGRADE_CACHE"] = str(scratch)
    try:
        _store(captions.texts, np.load(vectors, mmap_mode="r", allow_pickle=False))
        yield rate
    finally:
        os.environ.pop("CAPGRADE_CACHE")
        if before is not None:
            os.environ["CAPGRADE_CACHE"] = before


def _store(texts: list[str], vectors: np.ndarray) -> None:
    """The vectors as if Sentence-BERT had made them; one text, one vector."""
    if len(vectors) != len(texts):
        raise InputError(f"{len(vectors)} vectors for {len(texts)} captions", remedy="make both with bench corpus")
    row = {text: k for k, text in enumerate(texts)}
    unique = unique_texts(texts)
    folder = cache_folder() / cache_name(unique, EMBEDDED)
    folder.mkdir(parents=True)
    for k, at in enumerate(range(0, len(unique), CHUNK)):
        rows = np.array([row[text] for text in unique[at : at + CHUNK]])
        np.save(folder / f"{k:05d}.npy", np.asarray(vectors[rows], np.float32))
    (folder / CUT).touch()


def check(captions: Captions, shards: Shards, count: int) -> dict[str, Any]:
    """Random blocks of `count` images or more against brute force: captions, reasons and weights must be the same; by
    how much values differ from those of the kernels for single captions. InputError names the first image that differs.
    """
    made = shards.metadata["params"]
    params = ShardsParams.model_validate(made["shards"])
    chosen = choose(params.measures, MeasuresParams.model_validate(made["measures"]))
    fitted = {name: measure.fit(captions) for name, measure in chosen.items()}
    bounds = [(measure.low, measure.high) for measure in chosen.values()]
    keys, size, largest, checked = id_keys(captions.caption_ids), params.block_images, 0.0, 0
    blocks = np.random.default_rng(0).permutation(-(-captions.n_images // size))[: -(-count // size)]
    with progress("brute force", len(blocks)) as advance:
        for block in np.sort(blocks).tolist():
            images = np.arange(block * size, min((block + 1) * size, captions.n_images))
            stored = _stored(shards, images)
            values = np.stack([fitted[name].score(images) for name in params.measures])
            for k, image in enumerate(images.tolist()):
                row = stored[image]
                if not samples_of(captions, keys, image, values[:, k], params, bounds).same_as(row):
                    problem = f"image '{row['image_id']}' keeps other captions than brute force"
                    raise InputError(problem, file=shards.folder)
                largest = max(largest, _difference(fitted, image, row))
            checked += len(images)
            advance()
    return {"checked_rows": checked, "max_abs_diff": largest}


def _difference(fitted: Mapping[str, Fitted], image: int, row: dict[str, Any]) -> float:
    """Largest of the stored values and those that the kernels for single captions give, in any order."""
    order = np.random.default_rng(image).permutation(len(row["captions"]))
    kept = np.array(row["captions"])[order]
    found = [
        np.abs(one.score(np.array([image]), kept)[0] - np.array(row[name], np.float32)[order]).max()
        for name, one in fitted.items()
    ]
    return float(max(found))


def _stored(shards: Shards, images: np.ndarray) -> dict[int, dict[str, Any]]:
    """Rows of a block of images, by image."""
    found = {}
    for batch in shards.batches():
        if batch["image"][0].as_py() <= images[-1] and batch["image"][-1].as_py() >= images[0]:
            found.update({row["image"]: row for row in batch.to_pylist()})
    return found


def show(found: dict[str, Any]) -> str:
    """One line."""
    return (
        f"{found['pairs'] / 1e9:,.2f} billion pairs in {found['seconds'] / 60:,.1f} minutes "
        f"({found['pairs_per_s'] / 1e6:,.0f} million a second), {found['peak_rss_mb']:,.0f} MB at most, "
        f"{found['output_bytes'] / 1e6:,.0f} MB written; {found['checked_rows']:,} images as by brute force, "
        f"values within {found['max_abs_diff']:.1e}"
    )

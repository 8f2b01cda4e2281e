"""`capgrade shards` on corpora of several sizes, with values of all pairs and with exact tops and windows of a share of
the captions, side by side: seconds and how they grow, pairs touched, peak memory; the samples against brute force.

The stage runs in a process of its own, whose largest resident set is read when it ends. Then random images are taken
up again the slow way: whole rows of every measure, every sample chosen from them by sorting, and the values of what is
kept by the kernels that look single captions up. Smaller corpora are random images of the given one.
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
from capgrade.benchmarks.tops import exponent, part_of, rows_of
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
from capgrade.schemas.captions import FILE, SCHEMA, Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import with_metadata, write_arrow, write_manifest
from capgrade.schemas.params import MeasuresParams, ShardsParams
from capgrade.schemas.progress import progress
from capgrade.schemas.shards import Shards, read_shards

ENCODED = 2000  # captions that the encoder's rate is measured on
AMONG = 0.01  # share of the captions that windows draw from, where they do not draw from all
SHARES = (0.25, 0.5, 1)  # of the images; the last is all


def bench(
    captions_dir: Path,
    names: tuple[str, ...],
    split: str | None,
    checked: int,
    vectors: Path | None = None,
    out: Path | None = None,
    among: float = AMONG,
    shares: Sequence[float] = SHARES,
) -> dict[str, Any]:
    """Of all images with values of all pairs: images, captions, pairs, seconds, pairs_per_s, pairs_touched,
    peak_rss_mb, output_bytes, kept_pairs, checked_rows, max_abs_diff. `sizes`: by share of the images, the same of
    `all_pairs` and of `tops_and_share`, and the ratio of their seconds. `exponent` of both, of seconds over images.

    `vectors` (.npy, float32 [captions, d]) stand for Sentence-BERT's, which otherwise are made before the clock starts.
    `out` keeps the shards of all images with values of all pairs.
    """
    captions = read_captions(captions_dir, split)
    with tempfile.TemporaryDirectory() as scratch, _embeddings(captions, names, vectors, Path(scratch)) as found:
        encoding, table = found
        sizes = []
        for k, share in enumerate(shares):
            folder = captions_dir if share == 1 else _written(part_of(captions, share), Path(scratch) / f"captions{k}")
            part = read_captions(folder, captions.split)
            if table is not None:
                _store(part.texts, table if share == 1 else table[rows_of(captions, part)])
            kept = out if share == 1 and out else Path(scratch) / f"all{k}"
            full = _measured(folder, part, names, kept, checked)
            some = _measured(folder, part, names, Path(scratch) / f"some{k}", checked, among)
            facts = {"images": part.n_images, "captions": part.n_captions, "pairs": part.n_images * part.n_captions}
            ratio = full["seconds"] / some["seconds"]
            sizes.append({**facts, "all_pairs": full, "tops_and_share": some, "ratio": ratio})
    largest = {key: value for key, value in sizes[-1].items() if key in ("images", "captions", "pairs")}
    images = [size["images"] for size in sizes]
    grows = {way: exponent(images, [size[way]["seconds"] for size in sizes]) for way in ("all_pairs", "tops_and_share")}
    return {**largest, **sizes[-1]["all_pairs"], **encoding, "among": among, "sizes": sizes, "exponent": grows}


def _measured(
    captions_dir: Path, captions: Captions, names: Sequence[str], out: Path, checked: int, among: float | None = None
) -> dict[str, Any]:
    """Of one run of the stage, and of its samples against brute force."""
    seconds, peak = _run(captions_dir, names, captions.split, out, among)
    shards = read_shards(out)
    return {
        "seconds": seconds,
        "pairs_per_s": captions.n_images * captions.n_captions / seconds,
        "pairs_touched": shards.manifest["scored"],
        "peak_rss_mb": peak,
        "output_bytes": sum(entry["bytes"] for entry in shards.manifest["files"].values()),
        "kept_pairs": shards.manifest["pairs"],
        **check(captions, shards, checked),
    }


def _written(captions: Captions, folder: Path) -> Path:
    """A captions folder of these."""
    schema = with_metadata(SCHEMA, {"kind": "captions", "tokenizer": captions.tokenizer, "inputs": {}})
    folder.mkdir()
    rows = {FILE: write_arrow(folder / FILE, schema, captions.table.cast(schema).to_batches())}
    splits = {captions.split: captions.n_captions}
    write_manifest(folder, "captions", params={}, inputs={}, rows=rows, images=captions.n_images, splits=splits)
    return folder


def _run(captions_dir: Path, names: Sequence[str], split: str, out: Path, among: float | None) -> tuple[float, float]:
    """Seconds and peak megabytes of the stage in a process of its own."""
    command = [sys.executable, "-m", "capgrade.pipelines.cli", "shards", "--captions", str(captions_dir)]
    command += ["--out", str(out), "--measures", ",".join(names), "--split", split]
    command += [] if among is None else ["--set", f"shards.windows.among={among}"]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=sys.stderr)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise InputError(f"capgrade shards ended with status {os.waitstatus_to_exitcode(status)}", file=out)
    return time.perf_counter() - start, usage.ru_maxrss / 1024


@contextmanager
def _embeddings(
    captions: Captions, names: Sequence[str], vectors: Path | None, scratch: Path
) -> Iterator[tuple[dict[str, float], np.ndarray | None]]:
    """The rate of the encoder, captions per second, and embeddings of all captions, stand-ins or real ones; meanwhile
    the stage reads its embeddings from a cache of its own."""
    if "sbert" not in names:
        yield {}, None
        return
    start = time.perf_counter()
    encode(load_encoder(EMBEDDED), captions.texts[:ENCODED])
    rate = {"encoded_per_s": min(ENCODED, captions.n_captions) / (time.perf_counter() - start)}
    table = np.load(vectors, mmap_mode="r", allow_pickle=False) if vectors else embed(captions.texts, EMBEDDED)
    if len(table) != captions.n_captions:
        problem = f"{len(table)} vectors for {captions.n_captions} captions"
        raise InputError(problem, remedy="make both with bench corpus")
    before = os.environ.get("CAPGRADE_CACHE")
    os.environ["CAPGRADE_CACHE"] = str(scratch)
    try:
        yield rate, table
    finally:
        os.environ.pop("CAPGRADE_CACHE")
        if before is not None:
            os.environ["CAPGRADE_CACHE"] = before


def _store(texts: list[str], vectors: np.ndarray) -> None:
    """The vectors as if Sentence-BERT had made them; one text, one vector."""
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
    """A line a size and way, and how the time of both grows."""
    lines = []
    for size in found["sizes"]:
        lines.append(
            f"{size['images']:,} images x {size['captions']:,} captions, {size['pairs'] / 1e9:,.3g} billion pairs"
        )
        for way, name in (("all_pairs", "all pairs"), ("tops_and_share", f"tops, and {found['among']:g} of the rest")):
            lines.append(f"  {name}: {_line(size[way], size['pairs'])}")
        lines.append(f"  {size['ratio']:.1f} times as fast")
    grows = found["exponent"]
    lines.append(
        f"seconds grow with the power {grows['all_pairs']:.2f} of the images for all pairs, "
        f"{grows['tops_and_share']:.2f} for tops and a share of the rest"
    )
    return "\n".join(lines)


def _line(found: dict[str, Any], pairs: int) -> str:
    touched = ", ".join(f"{name} {count / pairs:.3g}" for name, count in found["pairs_touched"].items())
    return (
        f"{found['seconds']:,.1f} s ({found['pairs_per_s'] / 1e6:,.0f} million pairs a second), scored of each pair: "
        f"{touched}; {found['peak_rss_mb']:,.0f} MB at most, {found['output_bytes'] / 1e6:,.0f} MB written; "
        f"{found['checked_rows']:,} images as by brute force, values within {found['max_abs_diff']:.1e}"
    )

"""`capgrade shards` on corpora of several sizes, with values of all pairs and with windows of a share of the captions,
side by side: seconds and how they grow, pairs touched, peak memory; the samples against brute force.

The stage runs in a process of its own, whose largest resident set is read when it ends. Then random images are taken
up again the slow way: whole rows of every measure, every sample chosen from them by sorting, and the values of what is
kept by the kernels that look single captions up. Smaller corpora are random images of the given one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.benchmarks.scale_check import check
from capgrade.benchmarks.scale_run import embeddings, run, store
from capgrade.schemas.captions import FILE, SCHEMA, Captions, read_captions
from capgrade.schemas.files import with_metadata, write_arrow, write_manifest
from capgrade.schemas.shards import read_shards

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
    with tempfile.TemporaryDirectory() as scratch, embeddings(captions, names, vectors, Path(scratch)) as found:
        encoding, table = found
        sizes = []
        for k, share in enumerate(shares):
            folder = captions_dir if share == 1 else _written(part_of(captions, share), Path(scratch) / f"captions{k}")
            part = read_captions(folder, captions.split)
            if table is not None:
                store(part.texts, table if share == 1 else table[rows_of(captions, part)])
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


def part_of(captions: Captions, share: float) -> Captions:
    """The captions of a random share of the images, which stay in their order."""
    if share == 1:
        return captions
    count = max(1, round(share * captions.n_images))
    kept = np.zeros(captions.n_images, bool)
    kept[np.random.default_rng(0).permutation(captions.n_images)[:count]] = True
    table = captions.table.filter(pa.array(kept[captions.owner]))
    return Captions(table.combine_chunks(), captions.split, captions.tokenizer, f"{share} of {captions.digest}")


def rows_of(captions: Captions, part: Captions) -> np.ndarray:
    """int64: where the captions of a part stand."""
    row = {caption: k for k, caption in enumerate(captions.caption_ids)}
    return np.array([row[caption] for caption in part.caption_ids])


def exponent(images: Sequence[int], seconds: Sequence[float]) -> float:
    """The slope of log seconds over log images, by least squares; NaN for one number of images."""
    return float(np.polyfit(np.log(images), np.log(seconds), 1)[0]) if len(set(images)) > 1 else float("nan")


def _measured(
    captions_dir: Path, captions: Captions, names: Sequence[str], out: Path, checked: int, among: float | None = None
) -> dict[str, Any]:
    """Of one run of the stage, and of its samples against brute force."""
    seconds, peak = run(captions_dir, names, captions.split, out, among)
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
    return (
        f"{found['seconds']:,.1f} s ({found['pairs_per_s'] / 1e6:,.0f} million pairs a second), "
        f"{found['output_bytes'] / 1e6:,.0f} MB written; {facts(found, pairs)}"
    )


def facts(found: dict[str, Any], pairs: int) -> str:
    """What a run touched and needed, and how it was checked."""
    touched = ", ".join(f"{name} {count / pairs:.3g}" for name, count in found["pairs_touched"].items())
    return (
        f"scored of each pair: {touched}; {found['peak_rss_mb']:,.0f} MB at most; "
        f"{found['checked_rows']:,} images as by brute force, values within {found['max_abs_diff']:.1e}"
    )

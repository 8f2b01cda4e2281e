"""`capgrade shards --part` on a corpus too large to run whole: two parts with windows of a share, and what all would
take by them.

Both parts fit the measures; the larger has about four times the images of the smaller. So the difference is the cost
of images, and the rest that of fitting, which one run of all pays once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from capgrade.benchmarks.scale import facts
from capgrade.benchmarks.scale_check import check
from capgrade.benchmarks.scale_run import embeddings, run, store
from capgrade.pipelines.execution.parts import KIND, Part
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.files import open_arrow, read_manifest
from capgrade.schemas.shards import Shards

SMALLER = 4  # times as many images in the larger part


def bench(
    captions_dir: Path, names: Sequence[str], split: str | None, checked: int, vectors: Path | None, among: float,
    parts: int,
) -> dict[str, Any]:  # fmt: skip
    """images, captions, pairs; `parts`: of the first of 4 x `parts` and the first of `parts` the images, seconds, peak
    megabytes, pairs touched by measure, and images equal to brute force; seconds_per_image, fixed_seconds and
    computed_seconds of one run of all. InputError for more parts than blocks of images."""
    captions = read_captions(captions_dir, split)
    with tempfile.TemporaryDirectory() as scratch, embeddings(captions, names, vectors, Path(scratch)) as found:
        encoding, table = found
        if table is not None:
            store(captions.texts, table)
        out = Path(scratch) / "shards"
        both = [
            _measured(captions_dir, captions, names, out, checked, among, of) for of in (SMALLER * parts, parts)
        ]  # fmt: skip
    small, large = both
    per_image = (large["seconds"] - small["seconds"]) / (large["images"] - small["images"])
    fixed = large["seconds"] - per_image * large["images"]
    sizes = {"images": captions.n_images, "captions": captions.n_captions}
    return {
        **sizes, "pairs": captions.n_images * captions.n_captions, **encoding, "among": among, "parts": both,
        "seconds_per_image": per_image, "fixed_seconds": fixed,
        "computed_seconds": fixed + per_image * captions.n_images,
    }  # fmt: skip


def _measured(
    captions_dir: Path, captions: Captions, names: Sequence[str], out: Path, checked: int, among: float, of: int
) -> dict[str, Any]:
    """Of the first of so many parts, and of its samples against brute force."""
    part = Part(1, of)
    seconds, peak = run(captions_dir, names, captions.split, out, among, ["--part", f"{part.number}/{part.of}"])
    made = read_manifest(part.folder(out), KIND)
    size = made["params"]["shards"]["block_images"]
    blocks = part.blocks(-(-captions.n_images // size))
    schema = open_arrow(part.folder(out) / min(made["files"])).schema
    return {
        "part": f"{part.number}/{part.of}",
        "images": min(len(blocks) * size, captions.n_images),
        "seconds": seconds,
        "peak_rss_mb": peak,
        "pairs_touched": made["scored"],
        **check(captions, Shards(part.folder(out), made, schema), checked, blocks),
    }


def show(found: dict[str, Any]) -> str:
    """A line per part, and what all images would take."""
    lines = [f"{found['images']:,} images x {found['captions']:,} captions, {found['pairs'] / 1e9:,.3g} billion pairs"]
    for part in found["parts"]:
        done = f"part {part['part']}, {part['images']:,} images: {part['seconds']:,.1f} s"
        lines.append(f"  {done}; {facts(part, part['images'] * found['captions'])}")
    lines.append(
        f"{found['fixed_seconds']:,.1f} s to start and fit, then {1000 * found['seconds_per_image']:.3g} ms per image: "
        f"{found['computed_seconds'] / 3600:,.2f} hours for all, computed from these parts"
    )
    return "\n".join(lines)

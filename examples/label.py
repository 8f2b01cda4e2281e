# /// script
# requires-python = ">=3.11,<3.15"
# dependencies = ["capgrade"]
#
# [tool.uv.sources]
# capgrade = { path = ".." }
# ///
"""Graded labels of your captions, without an installation of capgrade.

    uv run examples/label.py captions.csv
    uv run --with datasets examples/label.py USER/NAME

The first reads a CSV, TSV or JSON lines file with the columns image_id and caption; the second reads a dataset of the
hub. Options of `capgrade captions` may follow, such as `--set captions.columns.caption=text`. Written are the folders
labels/captions and labels/shards, and labels.csv: of each image the captions of other images that fit it best.
"""

import csv
import subprocess
import sys
from pathlib import Path

import capgrade

OUT, BEST = Path("labels"), 5


def main(source: str, *options: str) -> None:
    kind = Path(source).suffix.removeprefix(".").lower()
    kind = kind if kind in ("csv", "tsv", "jsonl") else "hub"
    command("captions", "--source", kind, "--input", source, *options, "--out", str(OUT / "captions"))
    folders = ("--captions", str(OUT / "captions"), "--out", str(OUT / "shards"))
    command("shards", *folders, "--measures", "cider,rouge_l")

    labels = capgrade.Labels.load(OUT / "shards", captions=OUT / "captions")
    owner = dict(zip(labels.caption_ids, labels.owner, strict=True))
    texts = dict(zip(labels.caption_ids, labels.texts, strict=True))
    with (OUT / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["image_id", "caption_id", "caption", "cider"])
        for row, image in enumerate(labels.image_ids):
            own = int((labels.owner == row).sum())
            best = labels.neighbours(image, top=own + BEST, measure="cider")
            others = [(name, value) for name, value in best if owner[name] != row]
            out.writerows([image, name, texts[name], f"{value:.3f}"] for name, value in others[:BEST])
    print(f"the {BEST} best captions of other images, of {len(labels.image_ids):,} images -> {OUT / 'labels.csv'}")


def command(*words: str) -> None:
    """Run one command of capgrade; its error is ours."""
    status = subprocess.run([sys.executable, "-m", "capgrade.pipelines.cli", *words]).returncode
    if status:
        raise SystemExit(status)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])

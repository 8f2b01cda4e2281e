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

The first reads a CSV file with the columns image_id and caption; the second reads a dataset of the
hub, or a folder of one. Written are the folders labels/captions and labels/shards, and labels.csv:
of each image the captions of other images that fit it best.
"""

import csv
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

import capgrade

OUT, BEST = Path("labels"), 5


def main(source: str) -> None:
    labels = capgrade.grade(
        read(source), measures=("cider", "rouge_l"), sample=capgrade.Sampling(), out=OUT
    )
    owner = dict(zip(labels.caption_ids, labels.owner, strict=True))
    texts = dict(zip(labels.caption_ids, labels.texts, strict=True))
    with (OUT / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["image_id", "caption_id", "caption", "cider"])
        for row, image in enumerate(labels.image_ids):
            own = int((labels.owner == row).sum())
            best = labels.neighbours(image, top=own + BEST, measure="cider")
            others = [(name, value) for name, value in best if owner[name] != row]
            out.writerows(
                [image, name, texts[name], f"{value:.3f}"] for name, value in others[:BEST]
            )
    print(
        f"the {BEST} best captions of other images, of {len(labels.image_ids):,} images ->"
        f" {OUT / 'labels.csv'}"
    )


def read(source: str) -> Any:
    """A table or dataset of captions."""
    if source.endswith(".csv"):
        with Path(source).open(newline="", encoding="utf-8-sig") as file:
            return pa.Table.from_pylist(list(csv.DictReader(file)))
    import datasets

    saved = any(Path(source, name).is_file() for name in ("dataset_dict.json", "state.json"))
    return datasets.load_from_disk(source) if saved else datasets.load_dataset(source)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    try:
        main(sys.argv[1])
    except capgrade.InputError as error:
        raise SystemExit(f"error: {error}") from None

"""The list that ships: every pair of MS-COCO 5K with a P of .2 or more by `people`, own pairs
aside.

    capgrade captions --source tsv --input ../shared/data/coco/test5k_captions.tsv --split test \
        --out coco/captions
    capgrade relevance --captions coco/captions --measures people --out coco/relevance
    python -m studies.coco_lists --captions coco/captions --relevance coco/relevance \
        --out capgrade/lists/coco-5k.parquet

Prints how many pairs it holds, and how far ECCV Caption's lists agree.
"""

import argparse
from pathlib import Path

import numpy as np

from capgrade.agreement.calibration import SHIPPED, load
from capgrade.labels import Labels
from capgrade.lists import LikelyList, write_list
from capgrade.metrics import human_lists
from capgrade.schemas.errors import InputError

LEAST = 0.2
_ROWS = 100  # images at a time


def likely_pairs(labels: Labels, least: float = LEAST) -> LikelyList:
    """The pairs of an image with another's caption whose P is `least` or more by the shipped
    calibration."""
    if labels.stored.sampled:
        raise InputError(
            "labels of some pairs alone",
            file=labels.file,
            remedy="give a folder of capgrade relevance",
        )
    curve, owner = load(SHIPPED).fitting(labels.owner).curves["people"], labels.owner
    images, captions, hundredths = [], [], []
    for start in range(0, len(labels.image_ids), _ROWS):
        rows = np.arange(start, min(start + _ROWS, len(labels.image_ids)))
        p = curve.probability(
            np.asarray(labels.block(rows, np.arange(labels.n_captions), measure="people").relevance)
        )
        image, caption = np.nonzero((p >= least) & (rows[:, None] != owner))
        images.append(rows[image])
        captions.append(caption)
        hundredths.append(np.floor(p[image, caption] * 100 + 1e-9))
    return LikelyList(
        np.array([int(one) for one in labels.image_ids], np.int64),
        np.array([int(one) for one in labels.caption_ids], np.int64),
        owner,
        np.concatenate(images).astype(np.uint16),
        np.concatenate(captions).astype(np.uint16),
        np.concatenate(hundredths).astype(np.uint8),
    )


def agreement(found: LikelyList) -> list[str]:
    """Lines on ECCV Caption's lists of images: own pairs aside, and of images that it annotates
    alone."""
    people, _ = human_lists("eccv", found.image_ids.tolist(), found.caption_ids.tolist())
    width = len(found.owner)
    other = people.queries != found.owner[people.indices]
    theirs = people.queries[other] * width + people.indices[other]
    lines = []
    for least in (20, 50):
        kept = (found.hundredths >= least) & (people.sizes > 0)[found.images]
        ours = found.images[kept].astype(np.int64) * width + found.captions[kept]
        both = int(np.isin(ours, theirs).sum())
        found_there = (
            f"{both:,} of ECCV Caption's {len(theirs):,} other positives ({both / len(theirs):.1%})"
        )
        right = (
            f"{both:,} of our {len(ours):,} pairs of its images are its positives"
            f" ({both / len(ours):.1%})"
        )
        lines.append(f"P >= {least / 100:g}: {found_there}; {right}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("--captions", "--relevance", "--out"):
        parser.add_argument(name, type=Path, required=True)
    given = parser.parse_args()
    found = likely_pairs(Labels.load(given.relevance, captions=given.captions))
    write_list(given.out, found)
    some = int((found.hundredths >= 50).sum())
    print(
        f"{len(found.hundredths):,} pairs, {some:,} of P .5 or more, {given.out.stat().st_size:,}"
        " bytes"
    )
    print("\n".join(agreement(found)))


if __name__ == "__main__":
    main()

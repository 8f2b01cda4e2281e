"""The list that ships: every pair of MS-COCO 5K with a P of .2 or more by `people`, own pairs
aside.

    python -m research.studies.coco_lists --input ../shared/data/coco/test5k_captions.tsv \
        --out capgrade/lists/coco-5k.parquet --force

Prints how many pairs it holds, and how far ECCV Caption's lists agree.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from capgrade.agreement.calibration import SHIPPED, load_calibration
from capgrade.lists import HUNDREDTHS, LikelyList, write_list
from capgrade.measures import MeasuresParams, choose
from capgrade.metrics import human_lists
from capgrade.pipelines.captions import captions as write_captions
from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.out_files import refuse_file
from capgrade.schemas.pairs import Pairs

LEAST = 0.2
_ROWS = 100  # images at a time


def likely_pairs(captions: Captions, least: float = LEAST) -> LikelyList:
    """The pairs of an image with another's caption whose P by `people` is `least` or more by the
    shipped calibration."""
    fitted = choose(["people"], MeasuresParams())["people"].fit(captions)
    curve, owner = (
        load_calibration(SHIPPED).fitting(captions.owner).curves["people"],
        captions.owner,
    )
    parts = []
    for start in range(0, captions.n_images, _ROWS):
        rows = np.arange(start, min(start + _ROWS, captions.n_images))
        p = curve.probability(fitted.score(rows))
        image, caption = np.nonzero((p >= least) & (rows[:, None] != owner))
        hundredths = np.floor(p[image, caption] * 100 + 1e-9).astype(np.uint8)
        parts.append(Pairs(rows[image], caption, np.ones(len(image)), {HUNDREDTHS: hundredths}))
    return LikelyList(
        np.array([int(one) for one in captions.image_ids], np.int64),
        np.array([int(one) for one in captions.caption_ids], np.int64),
        owner,
        Pairs.concatenate(parts),
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
        kept = found.pairs.take(
            (found.pairs.value >= least) & (people.sizes > 0)[found.pairs.image]
        )
        ours = kept.image * width + kept.caption
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
    for name in ("--input", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--force", action="store_true", help="Write over a file that is there.")
    given = parser.parse_args()
    refuse_file(given.out, given.force)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "captions"
        write_captions(made, CaptionsParams(source="tsv", input=str(given.input), split="test"))
        found = likely_pairs(read_captions(made))
    write_list(given.out, found, given.force)
    some = int((found.pairs.value >= 50).sum())
    print(
        f"{len(found.pairs):,} pairs, {some:,} of P .5 or more, {given.out.stat().st_size:,} bytes"
    )
    print("\n".join(agreement(found)))


if __name__ == "__main__":
    main()

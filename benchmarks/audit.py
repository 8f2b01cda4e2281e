"""An audit of COCO's 5K test captions beside people's own lists of positives: ECCV Caption's.

    python -m capgrade.benchmarks.audit --captions DIR --relevance DIR [--judgements FILE --accept 4.5]

Of the images that ECCV Caption annotates: how many captions beyond the given ones its people accept, how many the audit
expects and how many it lists as likely, and how far the two lists overlap. With judgements: the share of given pairs
that people accept. Needs `eccv_caption`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.pipelines.agree import read_judgements
from capgrade.pipelines.agreement.calibration import load
from capgrade.pipelines.audit import SHIPPED
from capgrade.pipelines.audit.candidates import open_source
from capgrade.pipelines.audit.estimate import Counts
from capgrade.pipelines.audit.lists import likely
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.trainer.metrics.eccv import human_lists


def beside_eccv(captions: Captions, relevance: Path, measure: str) -> dict[str, Any]:
    """Means per annotated image, and shares of the two lists. InputError for captions that are not COCO's 5K."""
    of_images, _ = human_lists("eccv", captions.image_ids, captions.caption_ids)
    people = {
        (image, caption)
        for image, row in enumerate(of_images.lists())
        for caption in row.tolist()
        if caption >= 0 and captions.owner[caption] != image
    }
    annotated = np.flatnonzero(of_images.sizes)
    curve = load(SHIPPED).curves[measure]
    counts, ours = Counts(curve, captions.n_images), set()
    for pairs in open_source(relevance, None).blocks(measure, captions):
        counts.add(pairs)
        listed = likely(pairs, curve)
        ours |= set(zip(listed.image.tolist(), listed.caption.tolist(), strict=True))
    ours = {(image, caption) for image, caption in ours if of_images.sizes[image]}
    both, n = len(people & ours), len(annotated)
    return {
        "images": n,
        "eccv_per_image": len(people) / n,
        "expected_per_image": float(counts.accepted()[0][annotated].mean()),
        "likely_per_image": len(ours) / n,
        "eccv_that_are_likely": both / len(people),
        "likely_that_are_eccv": both / len(ours),
    }


def given_accepted(captions: Captions, judgements: Path, accept: float) -> float:
    """The share of judged given pairs whose score is at least `accept`."""
    people = read_judgements(judgements, captions)
    given = captions.owner[people.caption] == people.image
    return float((people.score[given] >= accept).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--captions", type=Path, required=True, help="COCO's 5K test captions, COCO's ids")
    parser.add_argument("--relevance", type=Path, required=True, help="dense relevance of them")
    parser.add_argument("--measure", default="people")
    parser.add_argument("--judgements", type=Path, help="Crisscrossed Captions SITS")
    parser.add_argument("--accept", type=float, default=4.5)
    args = parser.parse_args()
    try:
        captions = read_captions(args.captions, None)
        found = beside_eccv(captions, args.relevance, args.measure)
        if args.judgements:
            found["given_accepted"] = given_accepted(captions, args.judgements, args.accept)
    except InputError as error:
        sys.exit(str(error))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

"""An audit of COCO's 5K test captions beside people's own lists of positives: ECCV Caption's.

    python -m capgrade.benchmarks.audit --captions DIR --relevance DIR [--judgements FILE --accept 4.5] [--stand-in 0]

Of the images that ECCV Caption annotates: how many captions beyond the given ones its people accept, how many the audit
expects and how many it lists as likely, and how far the two lists overlap. With judgements: the share of given pairs
that people accept. With a stand-in as the model: its R@1 errors that the audit expects people to accept, and those that
ECCV Caption lists. Needs `eccv_caption`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.metrics.eccv import human_lists
from capgrade.pipelines.agree import read_judgements
from capgrade.pipelines.agreement.calibration import SHIPPED, load
from capgrade.pipelines.audit.candidates import open_source
from capgrade.pipelines.audit.estimate import Counts
from capgrade.pipelines.audit.lists import likely
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.relevance import read_relevance
from capgrade.trainer.evaluation.task import load_task


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


def errors_beside_eccv(captions: Captions, captions_dir: Path, relevance: Path, measure: str, k: int) -> dict[str, Any]:
    """Of the annotated queries, by direction: errors of caption k as the model, the share of them that the audit
    expects to be accepted, and that ECCV Caption lists, whose people saw only what five models retrieved."""
    task, _ = load_task(captions_dir, stand_in=k, split=captions.split)
    assert task.kept is not None
    lists = human_lists("eccv", captions.image_ids, captions.caption_ids)
    dense, curve = read_relevance(relevance / f"{measure}.arrow"), load(SHIPPED).curves[measure]
    found = {}
    for way, of, first in zip(
        ("i2t", "t2i"), lists, (task.similarity.argmax(1), task.similarity.argmax(0)), strict=True
    ):
        query = np.arange(captions.n_images) if way == "i2t" else task.kept
        image, caption = (query, task.kept[first]) if way == "i2t" else (first, query)
        wrong = (captions.owner[caption] != image) & (of.sizes[query] > 0)
        item = (caption if way == "i2t" else image)[wrong]
        listed = of.lists()
        yes = [x in listed[q] for q, x in zip(query[wrong].tolist(), item.tolist(), strict=True)]
        values = np.array([dense.rows(np.array([i]))[0, c] for i, c in zip(image[wrong], caption[wrong], strict=True)])
        expected = float(curve.probability(values).mean())
        found[way] = {"errors": int(wrong.sum()), "expected": expected, "eccv": float(np.mean(yes))}
    return found


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
    parser.add_argument("--stand-in", type=int, help="caption k of each image as a model")
    parser.add_argument("--judgements", type=Path, help="Crisscrossed Captions SITS")
    parser.add_argument("--accept", type=float, default=4.5)
    args = parser.parse_args()
    try:
        captions = read_captions(args.captions, None)
        found = beside_eccv(captions, args.relevance, args.measure)
        if args.stand_in is not None:
            given = (captions, args.captions, args.relevance, args.measure, args.stand_in)
            found["errors"] = errors_beside_eccv(*given)
        if args.judgements:
            found["given_accepted"] = given_accepted(captions, args.judgements, args.accept)
    except InputError as error:
        sys.exit(str(error))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

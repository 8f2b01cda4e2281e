"""A measure's search for its best captions, beside all pairs, block by block in one run. METEOR has one.

Random blocks of images are taken, and each is done both ways, one after the other: other work on the machine slows
both. Processor time says what the work is, whoever else works there. Seconds are those of the images taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from capgrade.benchmarks.harness import Asked, Rows, once
from capgrade.measures import Fitted, choose
from capgrade.measures.tops import every_pair, find_tops
from capgrade.pipelines.sampling.plan import id_keys, image_seeds
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.progress import Advance, progress
from capgrade.schemas.ties import Ties

BLOCK = 64  # images
IMAGES = 512  # unless the parameters say another number
TOP = 64  # captions


def bench(asked: Asked) -> Rows:
    """By measure: images, seconds, all_pairs_seconds, ratio, the ratio of processor time, pairs (of these images),
    pairs_touched, same. InputError where the tops are not those of all pairs."""
    captions = read_captions(asked.captions, asked.bench.split)
    chosen = choose(asked.measures, asked.params.measures)
    some = np.sort(np.random.default_rng(1).permutation(captions.n_images)[: asked.bench.images or IMAGES])
    blocks = [some[at : at + BLOCK] for at in range(0, len(some), BLOCK)]
    result = {}
    with progress("tops, and those of all pairs", len(chosen) * len(blocks)) as advance:
        for name, measure in chosen.items():
            result[name] = _row(measure.fit(captions), captions, blocks, advance)
    different = [name for name, row in result.items() if not row["same"]]
    if different:
        raise InputError(f"the tops of {different[0]} are not those of all pairs", remedy="report it, please")
    return result


def _row(fitted: Fitted, captions: Captions, blocks: list[np.ndarray], advance: Advance) -> dict[str, Any]:
    ties = Ties(image_seeds(0, id_keys(captions.image_ids)), id_keys(captions.caption_ids))
    ways = (find_tops, every_pair)
    for way in ways:
        way(fitted, blocks[0][:2], TOP, ties)  # kernels are compiled, indexes made
    seconds, processor, touched, same = np.zeros(2), np.zeros(2), 0, True
    for block in blocks:
        rounds, (mine, full) = zip(*(once(way, fitted, block, TOP, ties) for way in ways), strict=True)
        seconds += [took.seconds for took in rounds]
        processor += [took.processor for took in rounds]
        touched += int(mine.pairs.sum())
        same &= np.array_equal(mine.rows, full.rows) and mine.values.tobytes() == full.values.tobytes()
        advance(1)
    images = sum(map(len, blocks))
    return {
        "images": images, "captions": captions.n_captions,
        "seconds": seconds[0], "all_pairs_seconds": seconds[1], "ratio": seconds[1] / seconds[0],
        "processor_ratio": processor[1] / processor[0],
        "pairs": images * captions.n_captions, "pairs_touched": touched, "same": same,
    }  # fmt: skip

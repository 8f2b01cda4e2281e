"""The best captions of an image by METEOR's own search beside those of all pairs, as the sampler finds them.

Random blocks of images are taken, and each is done either way, one after the other: other work on the machine slows
both. Processor time says what the work is, whoever else works there. Seconds are those of the images taken.
"""

from dataclasses import replace

import numpy as np

from capgrade.benchmarks.harness import Asked, Rows, once
from capgrade.measures import Fitted, Measure, choose
from capgrade.measures.base import Searches
from capgrade.pipelines.sampling.plan import TOP, Plan, id_keys
from capgrade.pipelines.sampling.sampler import Sampler
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.progress import progress

_BLOCK = 64  # images
_IMAGES = 512  # unless the parameters say another number
MOST_CAPTIONS = 64  # captions
_SHARES = (2.0**-60, 1.0)  # of the captions, that windows draw from: of all of them, all pairs are scored anyway


def bench(asked: Asked) -> Rows:
    """By measure: images, seconds, all_pairs_seconds, ratio, the ratio of processor time, pairs (of these images),
    pairs_scored. InputError for a measure without a search, and where the tops are not those of all pairs."""
    captions = read_captions(asked.captions, asked.bench.split)
    some = np.sort(np.random.default_rng(1).permutation(captions.n_images)[: asked.bench.images or _IMAGES])
    result = {}
    for name, measure in choose(asked.measures, asked.params.measures).items():
        fitted = measure.fit(captions)
        if not isinstance(fitted, Searches):
            raise InputError(f"{name} has no search of its own", remedy="leave --measures out, or give meteor")
        result[name] = _row(measure, fitted, captions, some)
        if not result[name].pop("same"):
            raise InputError(f"the tops of {name} are not those of all pairs", remedy="report it, please")
    return result


def _row(measure: Measure, fitted: Fitted, captions: Captions, some: np.ndarray) -> dict[str, float]:
    keys = id_keys(captions.image_ids), id_keys(captions.caption_ids)
    plan = Plan((measure.low,), (measure.high,), MOST_CAPTIONS, 1.0, 1.0, per_window=0, uniform=0, seed=0)
    ways = [Sampler(replace(plan, among=share), [fitted], *keys, captions.ref_ptr, captions.refs) for share in _SHARES]

    def tops(way: Sampler, images: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        kept, scored = way.sample(images)
        best = kept.reasons & TOP > 0
        return kept.caption[best], kept.values[:, best], int(scored[0])

    for way in ways:
        tops(way, some[:2])  # kernels are compiled, indexes made
    seconds, processor, count, same = np.zeros(2), np.zeros(2), 0, True
    blocks = [some[at : at + _BLOCK] for at in range(0, len(some), _BLOCK)]
    with progress("tops, and those of all pairs", len(blocks)) as advance:
        for block in blocks:
            rounds, (mine, full) = zip(*(once(tops, way, block) for way in ways), strict=True)
            seconds += [took.seconds for took in rounds]
            processor += [took.processor for took in rounds]
            count += mine[2]
            same &= np.array_equal(mine[0], full[0]) and mine[1].tobytes() == full[1].tobytes()
            advance(1)
    return {
        "images": len(some), "captions": captions.n_captions, "seconds": seconds[0], "all_pairs_seconds": seconds[1],
        "ratio": seconds[1] / seconds[0], "processor_ratio": processor[1] / processor[0],
        "pairs": len(some) * captions.n_captions, "pairs_scored": count, "same": same,
    }  # fmt: skip

"""The audit's interval on scenes, whose truth is known: how often it holds the true number of accepted captions.

    python -m capgrade.benchmarks.audit_scenes [--seeds 100]

Of each seed, people judge random pairs of some scenes by their true relevance, and accept from a half on. The audit of
other scenes reads a measure alone: of all pairs, and of pairs sampled as `capgrade shards` does. Its 95 % interval
holds the truth or not.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.pipelines.agreement.curve import Curve, Scale, fit
from capgrade.pipelines.agreement.ratings import Judgements
from capgrade.pipelines.audit.candidates import Pairs
from capgrade.pipelines.audit.estimate import Estimate, PairCounts, mean_of
from capgrade.pipelines.measures import choose
from capgrade.pipelines.measures.tokens import tokenize
from capgrade.pipelines.sampling.plan import Plan, id_keys, keep
from capgrade.pipelines.sources import scenes
from capgrade.schemas.captions import SCHEMA, Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams, ScenesParams, ShardsParams
from capgrade.schemas.progress import progress

IMAGES = 200  # scenes that are judged, and that are audited
JUDGED = 20_000  # pairs
ACCEPT = 0.5  # of true relevance
TOKENIZER = "ptb_py"


def covered(seeds: int, measure: str = "scene_graph") -> dict[str, Any]:
    """By what is read, of so many seeds: the share whose interval holds the truth, and means of the truth and of the
    estimate over it. InputError for a measure that is not there or takes no such captions."""
    found: dict[str, list[tuple[Estimate, float]]] = {"dense": [], "shards": []}
    with progress("seeds", seeds) as advance:
        for seed in range(seeds):
            judged, audited = (_world(seed, split, measure) for split in ("val", "test"))
            curve, truth = _curve(judged, seed), _accepted(audited)
            for way, pairs in (("dense", _dense(audited)), ("shards", _sampled(audited, measure, seed))):
                counts = PairCounts(curve, IMAGES, audited.captions.owner)
                counts.add(pairs)
                found[way].append((mean_of(counts, seed), truth))
            advance()
    return {"seeds": seeds, "measure": measure, **{way: _summary(rows) for way, rows in found.items()}}


def _summary(rows: list[tuple[Estimate, float]]) -> dict[str, float]:
    return {
        "covered": float(np.mean([one.low <= truth <= one.high for one, truth in rows])),
        "estimate_over_truth": float(np.mean([one.mean / truth for one, truth in rows])),
        "truth": float(np.mean([truth for _, truth in rows])),
    }


class World:
    """Scenes of a split: captions, true relevance and a measure's values, float32 [images, captions]."""

    def __init__(self, captions: Captions, truth: np.ndarray, values: np.ndarray) -> None:
        self.captions, self.truth, self.values = captions, truth, values
        self.other = captions.owner != np.arange(captions.n_images)[:, None]  # bool: no given pairs


def _world(seed: int, split: str, measure: str) -> World:
    made = scenes.generate(ScenesParams(**{**dict.fromkeys(("train", "val", "test"), 0), split: IMAGES, "seed": seed}))
    captions = _table(made.captions, split)
    fitted = choose((measure,), MeasuresParams())[measure].fit(captions)
    return World(captions, scenes.truth(made.scenes, made.meanings), fitted.score(np.arange(IMAGES)))


def _table(records: list[Any], split: str) -> Captions:
    columns = [[getattr(one, name) for one in records] for name in ("image_id", "caption_id", "split", "text")]
    columns += [tokenize(TOKENIZER, columns[3]), [one.image_file for one in records]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return Captions(pa.Table.from_arrays(arrays, schema=SCHEMA), split, TOKENIZER, "")


def _curve(world: World, seed: int) -> Curve:
    """What people's judgements of random pairs say of a value."""
    cells = np.random.default_rng(seed).choice(world.truth.size, JUDGED, replace=False)
    image, caption = np.unravel_index(np.sort(cells), world.truth.shape)
    people = Judgements(image, caption, world.truth[image, caption].astype(np.float64))
    return fit(world.values[image, caption], people, world.captions.owner[caption], Scale(ACCEPT, 0.0, 1.0))


def _accepted(world: World) -> float:
    """The truth: accepted captions per image, given ones left out."""
    return float((world.other & (world.truth >= ACCEPT)).sum() / IMAGES)


def _dense(world: World) -> Pairs:
    image, caption = np.nonzero(world.other)
    return Pairs(image, caption, world.values[image, caption], np.ones(len(image)))


def _sampled(world: World, measure: str, seed: int) -> Pairs:
    captions, params = world.captions, ShardsParams(measures=(measure,), top=20, uniform=20, seed=seed)
    one, windows = choose((measure,), MeasuresParams())[measure], params.windows
    plan = Plan(
        (one.low,), (one.high,), params.top, windows.width, windows.stride, windows.per_window, params.uniform, seed
    )
    own = np.split(captions.refs, captions.ref_ptr[1:-1])
    kept = keep(plan, id_keys(captions.image_ids), id_keys(captions.caption_ids), own, world.values[None])
    image = np.repeat(np.arange(IMAGES), np.diff(kept.ptr))
    other = world.other[image, kept.caption]
    return Pairs(image[other], kept.caption[other], kept.values[0][other], kept.weight[other])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--measure", default="scene_graph", help="a measure that needs no encoder")
    args = parser.parse_args()
    try:
        found = covered(args.seeds, args.measure)
    except InputError as error:
        sys.exit(str(error))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

"""What the audit prints, on scenes, whose truth is known: how often it holds the truth.

People judge random pairs of some scenes by their true relevance, and accept from a half on. The audit of other scenes
reads a measure alone: of all pairs, and of pairs sampled as `capgrade shards` does.
"""

from __future__ import annotations

from functools import cache
from itertools import groupby

import numpy as np
import pytest

from capgrade.agreement.curve import Curve, Scale, fit
from capgrade.agreement.judgements import Judgements
from capgrade.labels.stored import ValuedPairs
from capgrade.measures import choose
from capgrade.pipelines.audit.estimate import EDGES, Bands
from capgrade.pipelines.sampling.plan import Plan, id_keys
from capgrade.pipelines.sampling.sampler import keep
from capgrade.pipelines.sources import scenes
from capgrade.schemas.captions import Captions
from capgrade.schemas.judges import SHARES
from capgrade.schemas.params import MeasuresParams, ScenesParams, ShardsParams
from tests.conftest import make_captions

IMAGES = 60  # scenes that are judged, and that are audited
JUDGED = 6000  # random pairs
ACCEPT = 0.5  # of true relevance
MEASURE = "rouge_l"


@pytest.mark.parametrize("read", ["dense", "shards"])
def test_what_is_printed_holds_the_truth(read: str) -> None:
    told, truth, bands = [], [], []
    for seed in range(10):
        audited = _world(seed, "test")
        curve = _curve(_world(seed, "val"), seed)
        counts = Bands(curve, IMAGES, audited.captions.owner, random=True)
        counts.add(_dense(audited) if read == "dense" else _sampled(audited, seed))
        truths = _accepted(audited, curve)
        told.append(counts.likely())
        truth.append(truths[-1])
        bands.append([one["low"] <= t <= one["high"] for one, t in zip(counts.told() or [], truths, strict=True)])
    assert np.mean([one["low"] <= t <= one["high"] for one, t in zip(told, truth, strict=True)]) >= 0.9
    assert np.mean(bands, axis=0).min() >= 0.9
    mean = {name: np.mean([one[name] for one in told]) for name in ("pairs", "accepted", "low", "high")}
    assert mean["low"] < mean["accepted"] < mean["high"] and mean["pairs"] > np.mean(truth) > 0


class World:
    """Scenes of a split: captions, true relevance and a measure's values, float32 [images, captions]."""

    def __init__(self, captions: Captions, truth: np.ndarray, values: np.ndarray) -> None:
        self.captions, self.truth, self.values = captions, truth, values
        self.other = captions.owner != np.arange(captions.n_images)[:, None]  # bool: no given pairs


@cache
def _world(seed: int, split: str) -> World:
    made = scenes.generate(ScenesParams(**{**dict.fromkeys(("train", "val", "test"), 0), split: IMAGES, "seed": seed}))
    texts = groupby(made.captions, key=lambda one: one.image_id)
    captions = make_captions([[one.text for one in some] for _, some in texts])
    fitted = choose((MEASURE,), MeasuresParams())[MEASURE].fit(captions)
    return World(captions, scenes.truth(made.scenes, made.meanings), fitted.score(np.arange(IMAGES)))


def _curve(world: World, seed: int) -> Curve:
    """What people's judgements of random pairs say of a value."""
    cells = np.random.default_rng(seed).choice(world.truth.size, JUDGED, replace=False)
    image, caption = np.unravel_index(np.sort(cells), world.truth.shape)
    people = Judgements(image, caption, world.truth[image, caption].astype(np.float64))
    return fit(world.values[image, caption], people, world.captions.owner[caption], Scale(ACCEPT, *SHARES))


def _accepted(world: World, curve: Curve) -> list[float]:
    """The truth: accepted captions per image in each band of P, given ones left out."""
    yes = curve.probability(world.values[world.other & (world.truth >= ACCEPT)])
    return [float(count) / IMAGES for count in np.histogram(yes, EDGES)[0]]


def _dense(world: World) -> ValuedPairs:
    image, caption = np.nonzero(world.other)
    return ValuedPairs(image, caption, world.values[image, caption], np.ones(len(image)))


def _sampled(world: World, seed: int) -> ValuedPairs:
    captions, params = world.captions, ShardsParams(measures=(MEASURE,), top=20, uniform=20, seed=seed)
    one, windows = choose((MEASURE,), MeasuresParams())[MEASURE], params.windows
    plan = Plan(
        (one.low,), (one.high,), params.top, windows.width, windows.stride, windows.per_window, params.uniform, seed
    )
    own = np.split(captions.refs, captions.ref_ptr[1:-1])
    kept = keep(plan, id_keys(captions.image_ids), id_keys(captions.caption_ids), own, world.values[None])
    image = np.repeat(np.arange(IMAGES), np.diff(kept.ptr))
    other = world.other[image, kept.caption]
    return ValuedPairs(image[other], kept.caption[other], kept.values[0][other], kept.weight[other])

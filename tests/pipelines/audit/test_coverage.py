"""What the audit prints, on scenes, whose truth is known: how often it holds the truth.

People judge random pairs of some scenes by their true relevance, and accept from a half on. The audit of other scenes
reads a measure alone: of all pairs, and of pairs sampled as `capgrade shards` does.
"""

from functools import cache
from itertools import groupby

import numpy as np
import pytest

from capgrade.agreement.curve import Scale, fit
from capgrade.agreement.judgements import Judgements
from capgrade.labels.stored import ValuedPairs
from capgrade.measures import choose
from capgrade.pipelines.audit.estimate import EDGES, Bands
from capgrade.pipelines.sampling.plan import id_keys
from capgrade.pipelines.sampling.sampler import keep
from capgrade.pipelines.shards import plan_of
from capgrade.pipelines.sources import scenes
from capgrade.schemas.captions import Captions
from capgrade.schemas.judges import SHARES
from capgrade.schemas.params import MeasuresParams, ScenesParams, ShardsParams
from tests.conftest import make_captions

IMAGES, JUDGED, ACCEPT = 60, 6000, 0.5  # scenes judged, and audited; random pairs; of true relevance
ROUGE_L = choose(("rouge_l",), MeasuresParams())


@cache
def _world(seed: int, split: str) -> tuple[Captions, np.ndarray, np.ndarray]:
    """Scenes of a split: captions, true relevance and a measure's values, float32 [images, captions]."""
    made = scenes.generate(ScenesParams(**{**dict.fromkeys(("train", "val", "test"), 0), split: IMAGES, "seed": seed}))
    texts = groupby(made.captions, key=lambda one: one.image_id)
    captions = make_captions([[one.text for one in some] for _, some in texts])
    values = ROUGE_L["rouge_l"].fit(captions).score(np.arange(IMAGES))
    return captions, scenes.truth(made.scenes, made.meanings), values


@pytest.mark.parametrize("read", ["dense", "shards"])
def test_what_is_printed_holds_the_truth(read: str) -> None:
    told, truth, bands = [], [], []
    for seed in range(10):
        captions, true, values = _world(seed, "val")
        cells = np.sort(np.random.default_rng(seed).choice(true.size, JUDGED, replace=False))
        image, caption = np.unravel_index(cells, true.shape)
        people = Judgements(image, caption, true[image, caption].astype(np.float64))
        curve = fit(values[image, caption], people, captions.owner[caption], Scale(ACCEPT, *SHARES))
        captions, true, values = _world(seed, "test")
        image, caption, weight = *np.divmod(np.arange(true.size), captions.n_captions), np.ones(true.size)
        if read == "shards":
            params = ShardsParams(measures=("rouge_l",), top=20, uniform=20, seed=seed)
            own = np.split(captions.refs, captions.ref_ptr[1:-1])
            keys = id_keys(captions.image_ids), id_keys(captions.caption_ids)
            kept = keep(plan_of(ROUGE_L.values(), params), *keys, own, values[None])
            image, caption, weight = np.repeat(np.arange(IMAGES), np.diff(kept.ptr)), kept.caption, kept.weight
        counts = Bands(curve, IMAGES, captions.owner, random=True)
        counts.add(ValuedPairs(image, caption, values[image, caption], weight).of_others(captions.owner))
        other = captions.owner != np.arange(IMAGES)[:, None]
        truths = np.histogram(curve.probability(values[other & (true >= ACCEPT)]), EDGES)[0] / IMAGES  # of each band
        told.append(counts.likely())
        truth.append(truths[-1])
        bands.append([one["low"] <= t <= one["high"] for one, t in zip(counts.told() or [], truths, strict=True)])
    assert np.mean([one["low"] <= t <= one["high"] for one, t in zip(told, truth, strict=True)]) >= 0.9
    assert np.mean(bands, axis=0).min() >= 0.9
    mean = {name: np.mean([one[name] for one in told]) for name in ("pairs", "accepted", "low", "high")}
    assert mean["low"] < mean["accepted"] < mean["high"] and mean["pairs"] > np.mean(truth) > 0

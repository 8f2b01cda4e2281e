"""Sampled relevance counts by its weight where a loss is a mean over candidates: against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from capgrade.losses.base import ScoredBatch
from capgrade.losses.daa import daa
from capgrade.losses.sigmoid import sigmoid
from capgrade.schemas.captions import read_captions
from capgrade.schemas.params import MeasuresParams, load_params
from capgrade.schemas.shards import pair_columns, read_shards
from capgrade.trainer.data.relevance import LookedUp
from capgrade.trainer.fit.setup import prepare
from capgrade.trainer.fit.step import scored_batch

RANDOM = np.random.default_rng(0)
N = 5
S, R = RANDOM.uniform(-1, 1, (2, N, N))
KNOWN = RANDOM.random((N, N)) < 0.6
np.fill_diagonal(KNOWN, True)
WEIGHTS = np.where(KNOWN, RANDOM.integers(1, 4, (N, N)), 0).astype(float)
np.fill_diagonal(WEIGHTS, 1)


def batch(weights=WEIGHTS) -> ScoredBatch:
    tensors = (torch.from_numpy(x).float() for x in (S, np.eye(N) > 0, R))
    scores, own, relevance = tensors
    kept = None if weights is None else torch.from_numpy(weights).float()
    return ScoredBatch(scores, own.bool(), relevance, torch.from_numpy(KNOWN), weights=kept)


def _step(difference: float) -> float:
    return 1 / (1 + math.exp(-max(-50, min(50, difference / 0.1))))


def plain_daa(weights) -> float:
    total = 0.0
    for scores, relevance, w in ((S, R, weights), (S.T, R.T, weights.T)):
        above = shared = 0.0
        for b in range(N):
            for c in range(N):
                ranks = [
                    1 + sum(w[b, a] * _step(x[b, a] - x[b, c]) for a in range(N) if a != c) for x in (scores, relevance)
                ]
                above += w[b, c] * min(ranks) / max(ranks)
                shared += w[b, c]
        total += 1 - above / shared
    return total


def test_daa_is_a_mean_over_what_pairs_stand_for() -> None:
    assert float(daa(batch(), temperature=0.1)) == pytest.approx(plain_daa(WEIGHTS), abs=1e-5)
    assert float(daa(batch(None), temperature=0.1)) == pytest.approx(plain_daa(KNOWN.astype(float)), abs=1e-5)
    assert abs(plain_daa(WEIGHTS) - plain_daa(KNOWN.astype(float))) > 1e-3


def test_the_sigmoid_loss_sums_what_pairs_stand_for() -> None:
    total = 0.0
    for i in range(N):
        for j in range(N):
            y = 1.0 if i == j else min(max((R[i, j] + 1) / 2, 0), 1)
            x = S[i, j] / 0.5 - 1
            cell = -y * math.log1p(math.exp(-x)) - (1 - y) * math.log1p(math.exp(x))
            total -= (WEIGHTS[i, j] if KNOWN[i, j] else 0) * cell
    found = sigmoid(batch(), temperature=0.5, bias=-1.0, low=-1.0, high=1.0)
    assert float(found) == pytest.approx(total / N, abs=1e-5)


def test_a_batch_has_the_weights_of_its_shards(small) -> None:
    asked = load_params(None, ["train.preset=daa", "train.relevance=shards", "train.unknown=mask",
                               "train.batch_size=16",
                               "train.model={name: vse, options: {embed: 16, word: 8}}"]).train  # fmt: skip
    setup = prepare(small.sampled, asked, MeasuresParams())
    one = setup.plan.pairs.collate(setup.plan.epoch(0)[0])
    found = scored_batch(setup.model, setup.model, one, setup.relevance, setup.needs)
    shards = read_shards(small.sampled.shards)
    kept: dict[tuple[int, int], float] = {}
    image = 0
    for part in shards.batches():
        _, flat = pair_columns(part)
        rows, weights = flat["captions"].to_pylist(), flat["weight"].to_pylist()
        for size in np.diff(part["captions"].offsets.to_numpy()):
            kept |= {(image, rows.pop(0)): weights.pop(0) for _ in range(size)}
            image += 1
    assert found.weights is not None and found.known is not None
    for i, picture in enumerate(one.image_numbers):
        for j, row in enumerate(one.caption_rows):
            assert float(found.weights[i, j]) == pytest.approx(kept.get((picture, row), 0.0))
    assert isinstance(setup.relevance, LookedUp)
    assert (found.weights > 1.01).any() and read_captions(small.data.captions, "train").n_images == image

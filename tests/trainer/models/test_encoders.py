"""Shared encoders: the empty set, and what a norm counts. The models' equations have the rest."""

import torch
from torch import nn

from capgrade.trainer.models.encoders import PartNorm, WordGru, masked_mean

from .made import FEATURES, VOCABULARY, close, images, texts


def test_the_mean_of_nothing_is_zero() -> None:
    assert masked_mean(torch.full((1, 3, 2), torch.nan), torch.zeros(1, 3, dtype=torch.bool)).tolist() == [[0.0, 0.0]]


def test_an_empty_caption_has_no_words_and_a_finite_vector() -> None:
    states, last = WordGru(VOCABULARY, 5, 8, both_ways=True)(texts((0, 2)))
    assert not states[0].any() and last.isfinite().all()


def test_region_norm_counts_only_what_is_there() -> None:
    norm, plain = PartNorm(FEATURES), nn.BatchNorm1d(FEATURES)
    batch = images(garbage=1e6)
    ours = norm(batch.features, batch.mask)[batch.mask]
    close(ours, plain(batch.features[batch.mask]))
    close(norm.running_var, plain.running_var)

"""Shared encoders beside plain loops: true lengths, padding that changes nothing, the empty set."""

import torch
from torch import nn

from capgrade.trainer.models.encoders import PartNorm, SelfPooling, WordGru, masked_mean

from .made import FEATURES, REGIONS, VOCABULARY, WORDS, close, images, texts


def test_the_masked_mean_is_the_mean_of_each_set() -> None:
    batch = images(garbage=9.0)
    expected = torch.stack([features[:n].mean(0) for features, n in zip(batch.features, REGIONS, strict=True)])
    close(masked_mean(batch.features, batch.mask), expected)


def test_the_mean_of_nothing_is_zero() -> None:
    assert masked_mean(torch.full((1, 3, 2), torch.nan), torch.zeros(1, 3, dtype=torch.bool)).tolist() == [[0.0, 0.0]]


def test_the_gru_reads_each_caption_alone() -> None:
    torch.manual_seed(0)
    batch = texts(padded=9)
    for both_ways in (False, True):
        read = WordGru(VOCABULARY, 5, 8, both_ways=both_ways)
        states, last = read(batch)
        for row, length in enumerate(WORDS):
            alone, ending = read.gru(read.embed(batch.tokens[row : row + 1, :length]))
            expected = (alone[0, :, :8] + alone[0, :, 8:]) / 2 if both_ways else alone[0]
            close(states[row, :length], expected)
            close(last[row], ending.mean(0)[0])
            assert not states[row, length:].any()


def test_an_empty_caption_has_no_words_and_a_finite_vector() -> None:
    states, last = WordGru(VOCABULARY, 5, 8, both_ways=True)(texts((0, 2)))
    assert not states[0].any() and last.isfinite().all()


def test_region_norm_counts_only_what_is_there() -> None:
    norm, plain = PartNorm(FEATURES), nn.BatchNorm1d(FEATURES)
    batch = images(garbage=1e6)
    ours = norm(batch.features, batch.mask)[batch.mask]
    close(ours, plain(batch.features[batch.mask]))
    close(norm.running_var, plain.running_var)


def test_pooling_by_attention_beside_a_loop() -> None:
    torch.manual_seed(0)
    batch = images()
    pool = SelfPooling(FEATURES, dropout=0.0)
    for row, n in enumerate(REGIONS):
        x = batch.features[row, :n]
        logits = pool.common(pool.parts(x).tanh() * pool.mean(x.mean(0)).tanh())
        expected = (logits.softmax(0) * x).sum(0)
        close(pool(batch.features, batch.mask)[row], expected / expected.norm())

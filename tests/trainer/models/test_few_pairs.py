"""Gradients of SGR through few pairs, beside the loop over captions and beside the whole matrix."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from capgrade.benchmarks.caption_loop import sgr_loop
from capgrade.trainer.models import sgraf
from capgrade.trainer.models.sgraf import FEW, Sgr, SgrafConfig

from .made import FEATURES, REGIONS, VOCABULARY, WORDS, close, encoded

PAIRS = len(REGIONS) * len(WORDS)


def made() -> Sgr:
    torch.manual_seed(0)
    model = Sgr(SgrafConfig(embed=8, word=5, similarity=6, dropout=0.0), FEATURES, VOCABULARY).double().train()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def through(model: Sgr, scores: Tensor, weights: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(scores, list(model.parameters()), weights, allow_unused=True, retain_graph=True)
    return [torch.zeros(1) if gradient is None else gradient for gradient in found]


@settings(max_examples=15, deadline=None)
@given(st.sets(st.integers(0, PAIRS - 1)), st.integers(0, 9))
def test_any_pairs_give_the_gradient_of_the_loop(pairs: set[int], seed: int) -> None:
    model = made()
    weights = torch.zeros(PAIRS, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    weights[sorted(pairs)] = torch.randn(len(pairs), generator=generator, dtype=torch.float64)
    weights = weights.view(len(REGIONS), len(WORDS))
    images, captions = encoded(model)
    ours, expected = model.scores(images, captions), sgr_loop(model, images, captions)
    close(ours, expected, 1e-7)
    for mine, wanted in zip(through(model, ours, weights), through(model, expected, weights), strict=True):
        close(mine, wanted, 1e-7)


def test_only_pairs_with_a_gradient_are_scored_again(monkeypatch) -> None:
    asked: list[int] = []
    true = Sgr.some_pairs
    monkeypatch.setattr(Sgr, "some_pairs", lambda *a: asked.append(len(a[3])) or true(*a))
    model = made()
    scores = model.scores(*encoded(model))
    few = int(FEW * PAIRS)
    for count in (0, 3, few, few + 1, PAIRS):
        through(model, scores, (torch.arange(PAIRS) < count).double().view_as(scores))
    assert asked == [3, few]  # the graph of the whole matrix for more


def test_few_pairs_under_autocast_and_with_checkpoints() -> None:
    model = made()
    model.float().config = replace(model.config, checkpoint=True)
    few = (torch.arange(PAIRS) % 9 == 0).float().view(len(REGIONS), len(WORDS))
    expected = through(model, sgr_loop(model, *encoded(model)), few)
    with torch.autocast("cpu", torch.bfloat16):
        scores = model.scores(*encoded(model))
    for mine, wanted in zip(through(model, scores, few), expected, strict=True):
        close(mine, wanted, 0.05 * max(1e-3, float(wanted.abs().max())))


def test_gradcheck_of_either_way(monkeypatch) -> None:
    v, w = (torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))

    def scores(v: Tensor, w: Tensor) -> Tensor:
        return sgraf.few_pairs(
            lambda v, w: (v @ w.T).sin(), lambda rows, columns, v, w: (v[rows] * w[columns]).sum(1).sin(), [], v, w
        )

    for most in (0.0, 1.0):
        monkeypatch.setattr(sgraf, "FEW", most)
        assert torch.autograd.gradcheck(scores, (v, w))


def test_nothing_is_kept_where_nothing_learns() -> None:
    model = made()
    with torch.no_grad():
        assert not model.scores(*encoded(model)).requires_grad

"""Gradients of SGR through few pairs; 36 regions for the authors' norm."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from capgrade.trainer.models.sgraf import FEW, Sgr, Sgraf

from . import equations
from .made import FEATURES, PAIRS, close, encoded, images, made, outputs

SIDE = len(PAIRS)
CELLS = SIDE**2


def graf(name: str, **options) -> Sgraf:
    return made(name, 0.5, embed=16, word=5, similarity=8, dropout=0.0, **options)


def test_the_authors_region_norm_takes_36_regions() -> None:
    model = graf("saf", region_norm="authors")
    with pytest.raises(RuntimeError):
        encoded(model)
    features = torch.randn(2, 36, FEATURES, dtype=torch.float64)
    batch = replace(images((36, 36), padded=36), features=features)
    assert model.encode_images(batch).vector is not None


def through(model: Sgr, scores: Tensor, weights: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(scores, list(model.parameters()), weights, allow_unused=True, retain_graph=True)
    return [torch.zeros(1) if gradient is None else gradient for gradient in found]


@settings(max_examples=15, deadline=None)
@given(st.sets(st.integers(0, CELLS - 1)), st.integers(0, 9))
def test_any_pairs_give_the_gradient_of_the_equations(pairs: set[int], seed: int) -> None:
    model, weights = graf("sgr"), torch.zeros(CELLS, dtype=torch.float64)
    weights[sorted(pairs)] = torch.randn(len(pairs), generator=torch.Generator().manual_seed(seed)).double()
    found = (through(model, scores, weights.view(SIDE, SIDE)) for (scores,) in (outputs(model), equations.sgr(model)))
    for mine, wanted in zip(*found, strict=True):
        close(mine, wanted, 1e-7)


def test_only_pairs_with_a_gradient_are_scored_again(monkeypatch) -> None:
    asked: list[int] = []
    true = Sgr.some_pairs
    monkeypatch.setattr(Sgr, "some_pairs", lambda *a: asked.append(len(a[1])) or true(*a))
    model = graf("sgr")
    (scores,), few = outputs(model), int(FEW * CELLS)
    for count in (0, 3, few, few + 1, CELLS):
        through(model, scores, (torch.arange(CELLS) < count).double().view_as(scores))
    assert asked == [3, few]  # the graph of the whole matrix for more


def test_few_pairs_under_autocast() -> None:
    model = graf("sgr")
    few = (torch.arange(CELLS) % 9 == 0).double().view(SIDE, SIDE)
    expected = through(model, equations.sgr(model)[0], few)
    model.float()
    with torch.autocast("cpu", torch.bfloat16):
        (scores,) = outputs(model)
    for mine, wanted in zip(through(model, scores, few.float()), expected, strict=True):
        close(mine, wanted, 0.05 * max(1e-3, float(wanted.abs().max())))

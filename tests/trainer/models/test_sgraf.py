"""SAF and SGR beside the loop over captions, in training too; gradients of SGR through few pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import BatchNorm1d
from torch.nn.functional import leaky_relu, normalize

from capgrade.trainer.models import encoders, sgraf
from capgrade.trainer.models.base import Encoded
from capgrade.trainer.models.sgraf import FEW, Reasoning, Saf, Sgr, Sgraf

from .made import FEATURES, REGIONS, WORDS, close, encoded, gradients, images, made

SIZES = {"embed": 16, "word": 5, "similarity": 8, "dropout": 0.0}
PAIRS = len(REGIONS) * len(WORDS)


def saf_loop(model: Saf, images: Encoded, captions: Encoded) -> Tensor:
    """Scores [images, captions]; in training the running statistics move once a caption, as they do in `model`."""

    def filtered(nodes: Tensor) -> Tensor:
        logits = BatchNorm1d.forward(model.norm, model.gate(nodes).transpose(1, 2))  # (n, 1, N)
        weights = logits.sigmoid()
        weights = weights / (weights.sum(2, keepdim=True) + 1e-8)
        return normalize((weights @ nodes).squeeze(1), dim=-1)

    return looped(model, images, captions, filtered)


def sgr_loop(model: Sgr, images: Encoded, captions: Encoded) -> Tensor:
    """Scores [images, captions]."""

    def reasoned(nodes: Tensor) -> Tensor:
        for step in model.graph:
            assert isinstance(step, Reasoning)
            edges = (step.query(nodes) @ step.key(nodes).transpose(1, 2)).softmax(-1)
            nodes = step.value(edges @ nodes).relu()
        return nodes[:, 0]

    return looped(model, images, captions, reasoned)


def looped(model: Sgraf, images: Encoded, captions: Encoded, one_vector: Callable[[Tensor], Tensor]) -> Tensor:
    regions, mask, columns = images.parts, images.mask, []
    assert regions is not None and mask is not None and images.vector is not None
    assert captions.parts is not None and captions.mask is not None and captions.vector is not None
    for words, length, whole in zip(captions.parts, captions.mask.sum(1).tolist(), captions.vector, strict=True):
        words = words[:length]
        logits = leaky_relu(regions @ words.T, 0.1)  # (n, R, L)
        logits = logits / (logits.norm(dim=2, keepdim=True) + 1e-8)
        logits = (model.config.temperature * logits).masked_fill(~mask.unsqueeze(2), -torch.inf)
        context = normalize(logits.softmax(1).transpose(1, 2) @ regions, dim=-1)  # (n, L, D)
        local = normalize(model.local((context - words) ** 2), dim=-1)
        pooled = normalize(model.whole((images.vector - whole) ** 2), dim=-1)
        nodes = torch.cat([pooled.unsqueeze(1), local], 1)  # (n, 1 + L, K)
        columns.append(model.out(one_vector(nodes)).sigmoid())
    return torch.cat(columns, 1)


def graf(name: str, **options) -> Sgraf:
    return made(name, 0.5, **{**SIZES, **options})


@pytest.mark.parametrize(("name", "loop"), [("saf", saf_loop), ("sgr", sgr_loop)])
@pytest.mark.parametrize("training", [True, False])
def test_equals_a_loop_over_captions(name, loop, training, monkeypatch) -> None:
    monkeypatch.setitem(sgraf.STEP_NUMBERS, "cpu", 150)  # several steps and tiles a batch
    monkeypatch.setitem(encoders.TILE_NODES, "cpu", 60)
    model, peer = graf(name).train(training), graf(name).train(training)
    ours, expected = model.scores(*encoded(model)), loop(peer, *encoded(peer))
    close(ours, expected, 1e-7)
    gradient, expected_gradient = gradients(model, ours), gradients(peer, expected)
    assert gradient.keys() == expected_gradient.keys() == dict(model.named_parameters()).keys()
    for name, value in expected_gradient.items():
        close(gradient[name], value, 1e-7)
    for name, running in peer.named_buffers():
        close(model.get_buffer(name), running, 1e-9)


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
@given(st.sets(st.integers(0, PAIRS - 1)), st.integers(0, 9))
def test_any_pairs_give_the_gradient_of_the_loop(pairs: set[int], seed: int) -> None:
    model = graf("sgr")
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
    monkeypatch.setattr(Sgr, "some_pairs", lambda *a: asked.append(len(a[1])) or true(*a))
    model = graf("sgr")
    scores = model.scores(*encoded(model))
    few = int(FEW * PAIRS)
    for count in (0, 3, few, few + 1, PAIRS):
        through(model, scores, (torch.arange(PAIRS) < count).double().view_as(scores))
    assert asked == [3, few]  # the graph of the whole matrix for more


def test_few_pairs_under_autocast() -> None:
    model = graf("sgr").float()
    few = (torch.arange(PAIRS) % 9 == 0).float().view(len(REGIONS), len(WORDS))
    expected = through(model, sgr_loop(model, *encoded(model)), few)
    with torch.autocast("cpu", torch.bfloat16):
        scores = model.scores(*encoded(model))
    for mine, wanted in zip(through(model, scores, few), expected, strict=True):
        close(mine, wanted, 0.05 * max(1e-3, float(wanted.abs().max())))

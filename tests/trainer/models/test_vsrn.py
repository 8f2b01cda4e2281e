"""VSRN beside its equations, a region and a word at a time; padding, the captioner's loss, bfloat16."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from capgrade.trainer.models.vsrn import Vsrn, VsrnConfig

from .made import FEATURES, REGIONS, VOCABULARY, WORDS, close, gradients, images, texts

PAIRS = WORDS[:5]
CONFIG = VsrnConfig(embed=6, word=5, layers=2, caption_hidden=7, caption_word=3, caption_dropout=0.0)
FORMS = pytest.mark.parametrize("options", [{}, {"first_norm": False, "last_norm": True}])


def made(**options) -> Vsrn:
    torch.manual_seed(0)
    model = Vsrn(replace(CONFIG, **options), FEATURES, VOCABULARY).double()
    for step in model.graph:  # at its start the norm is 0 and hides the graph
        torch.nn.init.normal_(step.norm.weight)
        torch.nn.init.normal_(step.norm.bias)
    return model


def outputs(model: Vsrn, regions: int = 6, words: int = 7, garbage: float = 0.0) -> tuple[Tensor, Tensor]:
    batch, captions = images(padded=regions, garbage=garbage), texts(PAIRS, padded=words)
    found = model(replace(batch, features=batch.features.to(model.project.weight.dtype)), captions)
    return model.scores(*found), model.own_losses(*found, captions)["captioning"]


def affine(norm: torch.nn.BatchNorm1d, rows: Tensor) -> Tensor:
    """BatchNorm in training: rows [n, D] of the whole batch."""
    mean = rows.mean(0)
    return (rows - mean) / ((rows - mean).pow(2).mean(0) + 1e-5).sqrt() * norm.weight + norm.bias


def equations(model: Vsrn) -> tuple[Tensor, Tensor]:
    """Eq. 1-9 of Li et al. 2019, with the norms of the authors' code."""
    batch, captions, config = images(), texts(PAIRS), model.config
    sets = [model.project(x[:n].double()) for x, n in zip(batch.features, REGIONS, strict=True)]
    if config.first_norm:
        sets = [v / v.pow(2).sum(0).sqrt() for v in sets]
    for step in model.graph:
        seen = []
        for v in sets:
            edges = [[step.theta(a) @ step.phi(b) / len(v) for b in v] for a in v]
            seen += [step.out(sum(e * step.g(b) for e, b in zip(row, v, strict=True))) for row in edges]
        added = affine(step.norm, torch.stack(seen)).split([len(v) for v in sets])
        sets = [v + more for v, more in zip(sets, added, strict=True)]
    sets = [v / v.pow(2).sum(0).sqrt() for v in sets]
    vectors = torch.stack([model.reason(v[None])[1][0, 0] for v in sets])
    vectors = affine(model.last_norm, vectors) if config.last_norm else vectors
    read = [model.read.gru(model.read.embed(t[None, :n]))[1][0, 0] for t, n in zip(captions.tokens, PAIRS, strict=True)]
    scores = torch.cosine_similarity(vectors[:, None], torch.stack(read)[None], dim=2)
    return scores, sum(written(model, v, t[:n]) for v, t, n in zip(sets, captions.tokens, PAIRS, strict=True)) / len(
        sets
    )


def written(model: Vsrn, regions: Tensor, words: Tensor) -> Tensor:
    """-log p of one caption, the padding after it included."""
    c, total = model.captioner, 0
    seen, state = c.read(c.narrow(regions)[None])
    for t, word in enumerate(words):
        logits = torch.stack([c.weigh((c.of_regions(s) + c.of_state(state[0, 0])).tanh())[0] for s in seen[0]])
        context = (logits.exp() / logits.exp().sum()) @ seen[0]
        state = c.write(torch.cat([c.embed(word), context])[None], state[0])[None]
        expected = words[t + 1] if t + 1 < len(words) else 0
        total = total - c.out(state[0, 0]).log_softmax(0)[expected]
    return total


@FORMS
def test_scores_and_losses_are_those_of_the_equations(options) -> None:
    model = made(**options)
    ours, expected = outputs(model), equations(model)
    close(ours[0], expected[0], 1e-9)
    close(ours[1], expected[1], 1e-9)
    found = gradients(model, *ours)
    for name, value in gradients(model, *expected).items():
        close(found[name], value, 1e-7)
    assert found.keys() == dict(model.named_parameters()).keys()


@FORMS
def test_padding_changes_nothing(options) -> None:
    model, padded = made(**options), made(**options)
    plain, other = outputs(model), outputs(padded, 9, 12, garbage=1e3)
    for ours, expected in zip(other, plain, strict=True):
        close(ours, expected)
    for name, running in model.named_buffers():
        close(padded.get_buffer(name), running)


def test_a_new_graph_changes_nothing() -> None:
    torch.manual_seed(0)
    model = Vsrn(CONFIG, FEATURES, VOCABULARY)
    v = torch.randn(2, 6, 6)
    close(model.graph[0](v, torch.ones(2, 6, dtype=torch.bool)), v)


def test_sets_of_nothing_are_finite() -> None:
    model = made().float()
    captions = texts((0, 3, 4))
    found = model(images((0, 3, 2)), captions)
    scores, loss = model.scores(*found), model.own_losses(*found, captions)["captioning"]
    assert scores.isfinite().all() and loss.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients(model, scores, loss).values())


def test_evaluation_keeps_the_vector_alone() -> None:
    assert made().float().eval().encode_images(images()).parts is None


def test_bfloat16_autocast() -> None:
    model = made().float()
    with torch.autocast("cpu", torch.bfloat16):
        scores, loss = outputs(model)
    assert scores.dtype == torch.float32
    close(scores, outputs(model)[0], 0.1)
    assert all(gradient.isfinite().all() for gradient in gradients(model, scores, loss).values())

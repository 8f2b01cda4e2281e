"""VSRN beside its equations, a region and a word at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from capgrade.trainer.models.vsrn import Vsrn

from .made import PAIRS, REGIONS, close, images, made, normed, outputs, same, texts

SIZES = {"embed": 6, "word": 5, "layers": 2, "caption_hidden": 7, "caption_word": 3, "caption_dropout": 0.0}


def equations(model: Vsrn) -> list[Tensor]:
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
        added = normed(torch.stack(seen), step.norm).split([len(v) for v in sets])
        sets = [v + more for v, more in zip(sets, added, strict=True)]
    sets = [v / v.pow(2).sum(0).sqrt() for v in sets]
    vectors = torch.stack([model.reason(v[None])[1][0, 0] for v in sets])
    vectors = normed(vectors, model.last_norm) if config.last_norm else vectors
    read = [model.read.gru(model.read.embed(t[None, :n]))[1][0, 0] for t, n in zip(captions.tokens, PAIRS, strict=True)]
    scores = torch.cosine_similarity(vectors[:, None], torch.stack(read)[None], dim=2)
    said = [written(model, v, t[:n]) for v, t, n in zip(sets, captions.tokens, PAIRS, strict=True)]
    return [scores, sum(said) / len(said)]


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


@pytest.mark.parametrize("options", [{}, {"first_norm": False, "last_norm": True}])
def test_scores_and_losses_are_those_of_the_equations(options) -> None:
    model = made("vsrn", **SIZES, **options)
    v = torch.randn(2, 6, 6).double()
    close(model.graph[0](v, torch.ones(2, 6, dtype=torch.bool)), v)  # a new graph changes nothing: its norm is 0
    for step in model.graph:
        torch.nn.init.normal_(step.norm.weight)
        torch.nn.init.normal_(step.norm.bias)
    same(model, outputs(model), equations(model), 1e-9, 1e-7)


def test_evaluation_keeps_the_vector_alone() -> None:
    assert made("vsrn", **SIZES).float().eval().encode_images(images()).parts is None

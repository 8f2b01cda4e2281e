"""CVSE beside its equations, a vector and a concept at a time; its graph by counting; labels, padding, bfloat16."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from capgrade.schemas.errors import InputError
from capgrade.trainer.models.base import Texts
from capgrade.trainer.models.concepts import adjacency, choose_concepts, said
from capgrade.trainer.models.cvse import Consensus, Cvse, CvseConfig

from .made import FEATURES, REGIONS, VOCABULARY, WORDS, close, gradients, images, same_in_bfloat16, texts

PAIRS = WORDS[:5]
CONFIG = CvseConfig(embed=6, word=5, concepts=4, dropout=0.0)
VOCAB = ("the", "dog", "red", "a", "cat", "2", "runs", "sofa", "of", "car")  # numbers from 4 on


def made(**options) -> Cvse:
    torch.manual_seed(0)
    model = Cvse(replace(CONFIG, **options), FEATURES, VOCABULARY).double()
    tokens = [row[:n].numpy() for row, n in zip(texts(PAIRS).tokens, PAIRS, strict=True)]
    model.learn_words(VOCAB, tokens, np.array([0, 0, 1, 1, 2]))
    return model


def outputs(model: Cvse, regions: int = 6, words: int = 7, garbage: float = 0.0) -> list[Tensor]:
    batch = images(padded=regions, garbage=garbage)
    captions = replace(texts(PAIRS, padded=words), images=torch.tensor([0, 0, 1, 1, 2]))
    found = model(replace(batch, features=batch.features.to(model.project.weight.dtype)), captions)
    return [model.scores(*found), *model.more_scores(*found).values(), *model.own_losses(*found, captions).values()]


def normed(rows: Tensor, norm: torch.nn.BatchNorm1d) -> Tensor:
    mean = rows.mean(0)
    return (rows - mean) / ((rows - mean).pow(2).mean(0) + 1e-5).sqrt() * norm.weight + norm.bias


def shares(layer: Consensus, vectors: Tensor, concepts: Tensor) -> Tensor:
    known = normed(layer.of_concepts(concepts), layer.concept_norm).tanh()
    asked = normed(layer.of_vector(vectors), layer.vector_norm).tanh()
    logits = torch.stack([torch.stack([10 * layer.common(a * k)[0] for k in known]) for a in asked])
    return logits.exp() / logits.exp().sum(1, keepdim=True)


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def equations(model: Cvse) -> list[Tensor]:
    batch, captions, g = images(), texts(PAIRS), model.graph
    sets = [unit(model.project(x[:n].double())) for x, n in zip(batch.features, REGIONS, strict=True)]
    p = model.pool_regions
    parts = normed(p.parts(torch.cat(sets)), p.part_norm).tanh().split([len(v) for v in sets])
    means = normed(p.mean(torch.stack([v.mean(0) for v in sets])), p.mean_norm).tanh()
    image = [unit(p.common(a * m).softmax(0).T @ v)[0] for v, a, m in zip(sets, parts, means, strict=True)]
    caption, q, d = [], model.pool_words, model.config.embed
    for row, n in zip(captions.tokens, PAIRS, strict=True):
        states = model.read.gru(model.read.embed(row[None, :n]))[0][0]
        words = unit((states[:, :d] + states[:, d:]) / 2)
        whole = q.mean(unit(words.mean(0))).tanh()
        caption.append(unit(q.common(q.parts(words).tanh() * whole).softmax(0).T @ words)[0])
    x = model.read.embed.weight[model.concept_words]
    x = g.edges @ (x @ g.first.weight.T)
    concepts = unit(g.edges @ (torch.where(x > 0, x, 0.2 * x) @ g.second.weight.T))
    chosen, owner = model.concept_words.tolist(), [0, 0, 1, 1, 2]
    spoken = [{t for k, row in enumerate(captions.tokens) if owner[k] == o for t in row.tolist()} for o in owner]
    labels = torch.tensor([[10.0 * (c in some) for c in chosen] for some in spoken]).double().softmax(1)
    instances = torch.stack(image), torch.stack(caption)
    seen = shares(model.of_images, instances[0], concepts)
    told = 0.35 * labels + 0.65 * shares(model.of_captions, instances[1], concepts)
    consensus = unit(seen @ concepts), unit(told @ concepts)
    fused = [unit(0.85 * a + 0.15 * b) for a, b in zip(instances, consensus, strict=True)]
    divergence = sum(t * (t / s).log() for t, s in zip(told.flatten(), seen.flatten(), strict=True)) / len(told)
    return [fused[0] @ fused[1].T, instances[0] @ instances[1].T, consensus[0] @ consensus[1].T, divergence]


def test_scores_and_losses_are_those_of_the_equations() -> None:
    model = made()
    ours, expected = outputs(model), equations(model)
    for a, b in zip(ours, expected, strict=True):
        close(a, b, 1e-7)
    found = gradients(model, *ours)
    for name, value in gradients(model, *expected).items():
        close(found[name], value, 1e-6)
    assert found.keys() == dict(model.named_parameters()).keys()


def test_padding_changes_nothing() -> None:
    for ours, expected in zip(outputs(made(), 9, 12, garbage=1e3), outputs(made()), strict=True):
        close(ours, expected)


def test_a_caption_alone_speaks_of_what_it_says() -> None:
    """Labels of evaluation depend on no other caption; those of training on the image's captions."""
    model = made().eval()
    captions = texts(PAIRS)
    whole, one = model.encode_captions(captions), Texts(captions.tokens[1:2], captions.mask[1:2])
    close(model.encode_captions(one).vector, whole.vector[1:2], 1e-9)
    number = int(model.concept_words[0])
    tokens = Texts(torch.tensor([[number, 0], [3, 0]]), torch.tensor([[True, False], [True, False]]))
    assert model.labels(tokens)[:, 0].tolist() == [True, False]
    own = model.labels(captions)
    training = model.train().labels(replace(captions, images=torch.tensor([0, 0, 1, 1, 2])))
    assert torch.equal(training[0], own[0] | own[1]) and torch.equal(training[4], own[4])


def test_edges_are_counted() -> None:
    rows = np.array([[1, 1, 0], [1, 1, 0], [1, 0, 1], [0, 0, 1]], bool)
    likely = [[0, 2 / 3, 1 / 3], [1, 0, 0], [1 / 2, 0, 0]]
    edges = np.array([[float(5 ** (p - 0.02) - 5**-0.02 >= 0.3) for p in row] for row in likely])
    for j in range(3):
        edges[:, j] *= 0.25 / (edges[:, j].sum() + 1e-6)
    edges += np.eye(3)
    total = edges.sum(1)
    expected = [[edges[j, i] / np.sqrt(total[i] * total[j]) for j in range(3)] for i in range(3)]
    np.testing.assert_allclose(adjacency(rows), expected, rtol=1e-6)


def test_concepts_are_frequent_words_and_no_stop_words() -> None:
    assert choose_concepts(VOCAB, 4).tolist() == [5, 6, 8, 10]
    assert said([np.array([2, 5, 5, 3]), np.array([2, 3])], np.array([5, 6])).tolist() == [
        [True, False],
        [False, False],
    ]
    with pytest.raises(InputError, match="7 concepts are asked for, and captions say 6 words that can be one"):
        choose_concepts(VOCAB, 7)


def test_bfloat16_autocast() -> None:
    model = made().float()
    same_in_bfloat16(model, lambda: outputs(model), 0.05)

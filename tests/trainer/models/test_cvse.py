"""CVSE beside its equations, a vector and a concept at a time; its graph by counting; labels, padding, bfloat16."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from capgrade.schemas.errors import InputError
from capgrade.trainer.models.base import CaptionTokens
from capgrade.trainer.models.cvse import Consensus, Cvse, CvseConfig, adjacency, choose_concepts, said, word_vectors

from .made import PAIRS, REGIONS, VOCAB, close, encoded, images, made, normed, outputs, same, texts

SIZES = {"embed": 6, "word": 5, "concepts": 4, "dropout": 0.0}


def cvse(**options) -> Cvse:
    return made("cvse", **{**SIZES, **options})


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
    model = cvse()
    same(model, outputs(model), equations(model), 1e-7, 1e-6)


def test_evaluation_fuses_as_the_authors_do() -> None:
    """evaluation.py 241 and 329-360: another share of the instance, and .05 of the consensus' cosine in a score."""
    (instance, read), (consensus, told) = (
        [side.vector for side in encoded(cvse(fusion=fusion).eval())] for fusion in (1.0, 0.0)
    )
    fused = [unit(0.9 * a + 0.1 * b) for a, b in ((instance, consensus), (read, told))]
    model = cvse(evaluated_fusion=0.9, evaluated_consensus=0.05)
    sides = encoded(model.eval())
    close(model.scores(*sides), 0.95 * fused[0] @ fused[1].T + 0.05 * consensus @ told.T, 1e-9)
    assert all(torch.allclose(side.vector.norm(dim=1), torch.ones(1).double()) for side in sides), "cosines as others"
    close(outputs(model.train())[0], outputs(cvse())[0], 1e-9)


def test_initial_weights_are_the_authors() -> None:
    """model_CVSE.py 56-62 and 158-160, PyTorch's own where it has no line (333-342, 491-493); C_GCN.py 32-34."""
    torch.manual_seed(0)
    model = Cvse(CvseConfig(embed=200, word=100, concepts=30), 300, 1000)
    bounds = {
        "project.weight": (6 / 500) ** 0.5, "read.embed.weight": (6 / 1100) ** 0.5,
        "read.gru.weight_hh_l0": 200**-0.5, "graph.first.weight": 100**-0.5, "graph.second.weight": 200**-0.5,
    }  # fmt: skip
    for module in ("pool_regions.parts", "pool_words.parts", "pool_words.mean", "pool_regions.common",
                   "of_images.of_concepts", "of_captions.common"):  # fmt: skip
        bounds |= {f"{module}.weight": 200**-0.5, f"{module}.bias": 200**-0.5}
    found = dict(model.named_parameters())
    for name, bound in bounds.items():
        largest, size = found[name].abs().max().item(), found[name].numel()
        assert largest <= bound and (size < 100 or largest > 0.97 * bound), name
    assert not found["project.bias"].any()


def test_words_may_start_from_vectors_of_glove(tmp_path) -> None:
    """As model_CVSE.py 171-180 looks them up; a word that is not there keeps a normal draw."""
    path = tmp_path / "glove.txt"
    lines = ["dog 1 2 3 4 5", "red\xa0car 9 9 9 9 9", "car .5 0 0 0 -1", "xray 7 7 7 7 7", "and 8 8 8 8 8"]
    path.write_text("\n".join(lines) + "\n")
    words = ("dog", "x-ray", "and/or", "'car'", "unheard")
    found = word_vectors(path, words, 5)
    assert {k: vector.tolist() for k, vector in found.items()} == {
        0: [1, 2, 3, 4, 5], 1: [7] * 5, 2: [8] * 5, 3: [0.5, 0, 0, 0, -1],
    }  # fmt: skip
    model = cvse(words=str(path))
    assert model.read.embed.weight[5].tolist() == [1, 2, 3, 4, 5] and model.read.embed.weight[13].tolist()[0] == 0.5
    assert model.read.embed.weight.abs().max() < 10 and not model.read.embed.weight[4].eq(0).any()
    for text, problem in (
        ("dog 1 2", "follows 'dog' is not 5"),
        ("dog 1 2 3 4 x", "not 5 numbers"),
        ("a 1", "none of"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=problem):
            word_vectors(path, ("dog",), 5)
    with pytest.raises(InputError, match="no such file of word vectors"):
        word_vectors(tmp_path / "none", ("dog",), 5)


def test_a_caption_alone_speaks_of_what_it_says() -> None:
    """Labels of evaluation depend on no other caption; those of training on the image's captions."""
    model = cvse().eval()
    captions = texts(PAIRS)
    whole, one = model.encode_captions(captions), CaptionTokens(captions.tokens[1:2], captions.mask[1:2])
    close(model.encode_captions(one).vector, whole.vector[1:2], 1e-9)
    number = int(model.concept_words[0])
    tokens = CaptionTokens(torch.tensor([[number, 0], [3, 0]]), torch.tensor([[True, False], [True, False]]))
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

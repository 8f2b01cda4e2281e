"""CVSE in evaluation, what it starts from, and its graph by counting."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from capgrade.schemas.errors import InputError
from capgrade.trainer.models.base import CaptionTokens
from capgrade.trainer.models.cvse import (
    Cvse,
    CvseConfig,
    adjacency,
    choose_concepts,
    mark_mentions,
    read_word_vectors,
)

from .equations import unit
from .made import OWNER, PAIRS, REGIONS, VOCAB, close, encoded, made, outputs, texts


def cvse(**options) -> Cvse:
    return made("cvse", **{"embed": 6, "word": 5, "concepts": 4, "dropout": 0.0, **options})


def test_evaluation_fuses_as_the_authors_do() -> None:
    """evaluation.py 241 and 329-360: another share of the instance, and .05 of the consensus'
    cosine in a score."""
    (instance, read), (consensus, told) = (
        [side.vector for side in encoded(cvse(fusion=fusion).eval())] for fusion in (1.0, 0.0)
    )
    fused = [unit(0.9 * a + 0.1 * b) for a, b in ((instance, consensus), (read, told))]
    model = cvse(evaluated_fusion=0.9, evaluated_consensus=0.05)
    sides = encoded(model.eval())
    close(model.scores(*sides), 0.95 * fused[0] @ fused[1].T + 0.05 * consensus @ told.T, 1e-9)
    assert all(torch.allclose(side.vector.norm(dim=1), torch.ones(1).double()) for side in sides), (
        "cosines as others"
    )
    close(outputs(model.train())[0], outputs(cvse())[0], 1e-9)
    more = model.more_scores(*encoded(model, sizes=(REGIONS, PAIRS)))
    for name, fusion in (("instance", 1.0), ("consensus", 0.0)):
        close(more[name], outputs(cvse(fusion=fusion))[0], 1e-9)


def test_initial_weights_are_the_authors() -> None:
    """model_CVSE.py 56-62 and 158-160, PyTorch's own where it has no line (333-342, 491-493);
    C_GCN.py 32-34."""
    torch.manual_seed(0)
    model = Cvse(CvseConfig(embed=200, word=100, concepts=30), 300, 1000)
    bounds = {
        "project.weight": (6 / 500) ** 0.5,
        "read.embed.weight": (6 / 1100) ** 0.5,
        "read.gru.weight_hh_l0": 200**-0.5,
        "graph.first.weight": 100**-0.5,
        "graph.second.weight": 200**-0.5,
    }
    for module in (
        "pool_regions.parts",
        "pool_words.parts",
        "pool_words.mean",
        "pool_regions.common",
        "of_images.of_concepts",
        "of_captions.common",
    ):
        bounds |= {f"{module}.weight": 200**-0.5, f"{module}.bias": 200**-0.5}
    found = dict(model.named_parameters())
    for name, bound in bounds.items():
        largest, size = found[name].abs().max().item(), found[name].numel()
        assert largest <= bound and (size < 100 or largest > 0.97 * bound), name
    assert not found["project.bias"].any()


def test_words_may_start_from_vectors_of_glove(tmp_path) -> None:
    """As model_CVSE.py 171-180 looks them up; a word that is not there keeps a normal draw."""
    path = tmp_path / "glove.txt"
    lines = [
        "dog 1 2 3 4 5",
        "red\xa0car 9 9 9 9 9",
        "car .5 0 0 0 -1",
        "xray 7 7 7 7 7",
        "and 8 8 8 8 8",
    ]
    path.write_text("\n".join(lines) + "\n")
    words = ("dog", "x-ray", "and/or", "'car'", "unheard")
    found = read_word_vectors(path, words, 5)
    assert {k: vector.tolist() for k, vector in found.items()} == {
        0: [1, 2, 3, 4, 5], 1: [7] * 5, 2: [8] * 5, 3: [0.5, 0, 0, 0, -1],
    }  # fmt: skip
    model = cvse(words=str(path))
    assert (
        model.read.embed.weight[5].tolist() == [1, 2, 3, 4, 5]
        and model.read.embed.weight[13].tolist()[0] == 0.5
    )
    assert model.read.embed.weight.abs().max() < 10 and not model.read.embed.weight[4].eq(0).any()
    wrong = {
        "dog 1 2": "follows 'dog' is not 5",
        "dog 1 2 3 4 x": "not 5 numbers",
        "a 1": "none of",
    }
    for text, problem in wrong.items():
        path.write_text(text)
        with pytest.raises(InputError, match=problem):
            read_word_vectors(path, ("dog",), 5)
    with pytest.raises(InputError, match="no such file of word vectors"):
        read_word_vectors(tmp_path / "none", ("dog",), 5)


def test_a_caption_alone_speaks_of_what_it_says() -> None:
    """Labels of evaluation depend on no other caption; those of training on the image's
    captions."""
    model = cvse().eval()
    captions = texts(PAIRS)
    whole = model.encode_captions(captions)
    one = CaptionTokens(captions.tokens[1:2], captions.mask[1:2])
    close(model.encode_captions(one).vector, whole.vector[1:2], 1e-9)
    number = int(model.concept_words[0])
    tokens = CaptionTokens(
        torch.tensor([[number, 0], [3, 0]]), torch.tensor([[True, False], [True, False]])
    )
    assert model.labels(tokens)[:, 0].tolist() == [True, False]
    own = model.labels(captions)
    training = model.train().labels(replace(captions, images=OWNER))
    for a, b in ((0, 3), (1, 4)):  # of one image
        assert torch.equal(training[a], own[a] | own[b]) and not torch.equal(own[a], own[b])


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
    holds = mark_mentions([np.array([2, 5, 5, 3]), np.array([2, 3])], np.array([5, 6]))
    assert holds.tolist() == [[True, False], [False, False]]

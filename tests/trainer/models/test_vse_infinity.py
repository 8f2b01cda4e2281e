"""VSE-infinity beside its equations, a set and a feature at a time; padding, size augmentation, bfloat16, BERT."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from capgrade.trainer.models import vse_infinity
from capgrade.trainer.models.base import CaptionTokens
from capgrade.trainer.models.vse_infinity import GeneralPooling, VseInfinity

from .made import REGIONS, VOCABULARY, WORDS, close, encoded, images, made, same, texts


def infinity(**options) -> VseInfinity:
    model = made("vse_infinity", **{"embed": 8, "word": 5, **options})
    for layer in (model.pool_regions, model.pool_words):
        torch.nn.init.normal_(layer.linear.weight)
    return model


def scores(model: VseInfinity) -> Tensor:
    return model.scores(*encoded(model))


def pooled(layer: GeneralPooling, parts: Tensor) -> Tensor:
    """Eq. 3-6 for one set [L, D]: places as sines, a GRU both ways, a softmax of sharpness 10, sorted values."""
    length = len(parts)
    p = torch.zeros(length, 32).double()
    for k in range(length):
        for i in range(16):
            p[k, 2 * i] = math.sin(k / 10000 ** (2 * i / 32))
            p[k, 2 * i + 1] = math.cos(k / 10000 ** (2 * i / 32))
    states = layer.gru(p[None])[0][0]
    logits = torch.stack([layer.linear((h[:32] + h[32:]) / 2)[0] for h in states]) / 0.1
    theta = logits.exp() / logits.exp().sum()
    features = [sum(t * v for t, v in zip(theta, sorted(x, reverse=True), strict=True)) for x in parts.T]
    return torch.stack(features)


def test_scores_and_gradients_are_those_of_the_equations() -> None:
    model, a, b = infinity().eval(), images(), texts()
    rows, columns = [], []
    for x, n in zip(a.features, REGIONS, strict=True):
        x = x[:n].double()
        h = model.inner(x)
        h = (h - model.norm.running_mean) / (model.norm.running_var + 1e-5).sqrt() * model.norm.weight + model.norm.bias
        rows.append(pooled(model.pool_regions, model.project(x) + model.outer(h.relu())))
    for tokens, n in zip(b.tokens, WORDS, strict=True):
        states = model.read.gru(model.read.embed(tokens[None, :n]))[0][0]
        columns.append(pooled(model.pool_words, (states[:, :8] + states[:, 8:]) / 2))
    expected = torch.stack([torch.stack([torch.cosine_similarity(x, y, 0) for y in columns]) for x in rows])
    same(model, [scores(model)], [expected], 1e-7, 1e-6)


def test_the_authors_norm_counts_padding() -> None:
    model, ours = infinity(drop=0.0, padding="authors"), infinity(drop=0.0)
    features = images().features.double()
    model.regions(features, images().mask)
    hidden = model.inner(features.masked_fill(~images().mask.unsqueeze(2), 0)).flatten(0, 1)
    close(model.norm.running_mean, 0.1 * hidden.mean(0))
    assert (scores(model) - scores(ours)).abs().max() > 1e-3


def test_a_fifth_of_the_words_is_drawn() -> None:
    model, words = infinity(), 4000
    tokens = torch.arange(words).remainder(VOCABULARY - 1)[None] + 1
    found = model.augmented(CaptionTokens(tokens, torch.ones(1, words, dtype=torch.bool)))
    masked = (found.tokens == model.masking).sum().item() / words
    gone = 1 - found.mask.sum().item() / words
    assert masked == pytest.approx(0.1, abs=0.02) and gone == pytest.approx(0.08, abs=0.02)
    assert (found.tokens[~found.mask] == 0).all() and found.mask[0, : int(found.mask.sum())].all()
    untouched = model.augmented(CaptionTokens(tokens[:, :1], torch.ones(1, 1, dtype=torch.bool)))
    assert untouched.mask.all(), "a caption keeps its last word"


def test_pieces_of_a_word_share_its_fate(bert, monkeypatch) -> None:
    model = infinity(text_model=bert, text_layers=1)
    pieces = ["[CLS]", "run", "##s", "red", "play", "##ing", "##s", "dog", "[SEP]"]
    draws = torch.tensor([[0.0, 0.15, 0.05, 0.9, 0.11, 0.0, 0.0, 0.0, 0.0]])  # of words: runs goes, dog is changed
    monkeypatch.setattr(vse_infinity, "drawn", lambda mask: draws)
    tokens = torch.tensor([_numbers(bert, pieces)])
    found = model.augmented(CaptionTokens(tokens, torch.ones_like(tokens, dtype=torch.bool)))
    ids = found.tokens[0].tolist()
    assert found.mask[0].tolist() == [True] * 7 + [False] * 2
    assert ids[:5] + ids[6:] == _numbers(bert, ["[CLS]", "[MASK]", "play", "##ing", "##s", "[SEP]", "[PAD]", "[PAD]"])


def _numbers(bert: str, pieces: list[str]) -> list[int]:
    from capgrade.trainer.models.text_encoder import load_tokenizer

    return load_tokenizer(bert)[0].convert_tokens_to_ids(pieces)


def test_the_weights_of_a_set_sum_to_one() -> None:
    """Scores are cosines, which do not tell."""
    weights = GeneralPooling().weights(torch.tensor([2, 5]), 6)
    close(weights.sum(1), torch.ones(2))
    assert (weights[0, 2:] == 0).all()

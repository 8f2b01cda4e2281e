"""VSE-infinity's size augmentation, and the norm of its authors."""

from __future__ import annotations

import pytest
import torch

from capgrade.trainer.models import vse_infinity
from capgrade.trainer.models.base import CaptionTokens
from capgrade.trainer.models.text_encoder import load_tokenizer
from capgrade.trainer.models.vse_infinity import GeneralPooling, VseInfinity

from .made import VOCABULARY, close, images, made, outputs


def infinity(**options) -> VseInfinity:
    return made("vse_infinity", **{"embed": 8, "word": 5, **options})


def test_the_authors_norm_counts_padding() -> None:
    model, ours = infinity(drop=0.0, padding="authors"), infinity(drop=0.0)
    features = images().features.double()
    model.regions(features, images().mask)
    hidden = model.inner(features.masked_fill(~images().mask.unsqueeze(2), 0)).flatten(0, 1)
    close(model.norm.running_mean, 0.1 * hidden.mean(0))
    assert (outputs(model)[0] - outputs(ours)[0]).abs().max() > 1e-3


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
    numbers = load_tokenizer(bert)[0].convert_tokens_to_ids
    tokens = torch.tensor([numbers(pieces)])
    found = model.augmented(CaptionTokens(tokens, torch.ones_like(tokens, dtype=torch.bool)))
    ids = found.tokens[0].tolist()
    assert found.mask[0].tolist() == [True] * 7 + [False] * 2
    assert ids[:5] + ids[6:] == numbers(["[CLS]", "[MASK]", "play", "##ing", "##s", "[SEP]", "[PAD]", "[PAD]"])


def test_the_weights_of_a_set_sum_to_one() -> None:
    """Scores are cosines, which do not tell."""
    weights = GeneralPooling().weights(torch.tensor([2, 5]), 6)
    close(weights.sum(1), torch.ones(2))
    assert (weights[0, 2:] == 0).all()

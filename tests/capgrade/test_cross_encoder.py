"""Scores of pairs by a tiny random cross-encoder: sentence-transformers' own."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder

from capgrade.cross_encoder import load_cross_encoder, score_pairs
from tests.apps.judging.tiny import random_model
from tests.conftest import WORDS, random_sets

TEXTS = [text for own in random_sets(12, seed=4) for text in own]
PAIRS = list(zip(TEXTS, reversed(TEXTS), strict=True))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> CrossEncoder:
    folder: Path = tmp_path_factory.mktemp("models") / "tiny"
    random_model(folder, WORDS)
    return load_cross_encoder(str(folder), "cpu")


def test_scores_are_the_librarys_own(model: CrossEncoder) -> None:
    """With an instruction too, which changes them."""
    found = {prompt: score_pairs(model, PAIRS, prompt) for prompt in (None, "the red cat ")}
    for prompt, values in found.items():
        np.testing.assert_allclose(values, model.predict(PAIRS, prompt=prompt), atol=1e-6)
    assert np.ptp(found[None]) > 0.01 and np.ptp(found[None] - found["the red cat "]) > 0.001


def test_another_activation_changes_nothing(model: CrossEncoder) -> None:
    """Of a model that was saved with logits, such as those of MS MARCO."""
    found = score_pairs(model, PAIRS)
    saved, model.activation_fn = model.activation_fn, torch.nn.Identity()
    logits = model.predict(PAIRS)
    np.testing.assert_array_equal(score_pairs(model, PAIRS), found)
    model.activation_fn = saved
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-logits)), atol=1e-6)

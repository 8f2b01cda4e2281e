"""The frozen host: its equation written out for each image and caption, padding, and a run."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from capgrade.measures.embeddings import embed
from capgrade.schemas.lines import read_json
from capgrade.trainer.data.pairs import pad_texts
from capgrade.trainer.data.text import SentenceVectors, load_tokens
from capgrade.trainer.fit import VOCABULARY
from capgrade.trainer.fit.checkpoint import load_run
from capgrade.trainer.models.base import CaptionTokens, Images
from capgrade.trainer.models.frozen import Frozen, FrozenConfig
from tests.trainer.conftest import Small
from tests.trainer.fit.runs import run

D, SENTENCE = 6, 5
SIZES = (3, 1, 4)


def made(square_root: bool = True) -> tuple[Frozen, Images, CaptionTokens]:
    torch.manual_seed(0)
    config = FrozenConfig(embed=4, hidden=7, dropout=0.0, text_dropout=0.0, square_root=square_root)
    model = Frozen(config, D, SENTENCE)
    features = torch.randn(len(SIZES), max(SIZES), D)
    mask = torch.arange(max(SIZES)) < torch.tensor(SIZES)[:, None]
    images = Images(features, torch.zeros(len(SIZES), max(SIZES), 5), mask)
    texts = CaptionTokens(torch.randn(4, 1, SENTENCE), torch.ones(4, 1, dtype=torch.bool))
    return model, images, texts


def signed_root(x: np.ndarray) -> np.ndarray:
    return np.sign(x) * np.sqrt(np.abs(x))


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x)


def perceptron(layers: nn.Module, x: np.ndarray) -> np.ndarray:
    """W x + V relu(U x), of x less its running mean over its running deviation, at unit length."""
    weights = {name: tensor.double().numpy() for name, tensor in layers.state_dict().items()}
    x = (x - weights["norm.running_mean"]) / np.sqrt(weights["norm.running_var"] + 1e-5)
    hidden = np.maximum(weights["inner.weight"] @ x + weights["inner.bias"], 0)
    shortcut = weights["shortcut.weight"] @ x + weights["shortcut.bias"]
    return unit(shortcut + weights["outer.weight"] @ hidden + weights["outer.bias"])


@pytest.mark.parametrize(("square_root", "scaled"), [(True, signed_root), (False, unit)])
def test_it_is_its_equation(square_root: bool, scaled: Callable[[np.ndarray], np.ndarray]) -> None:
    model, images, texts = made(square_root)
    model(images, texts)  # moves the running means and deviations
    model.eval()
    with torch.no_grad():
        scores = model.scores(*model(images, texts)).numpy()
    for i, size in enumerate(SIZES):
        regions = images.features[i, :size].double().numpy()
        pooled = np.concatenate([scaled(regions.mean(0)), scaled(regions.max(0))])
        for j in range(4):
            caption = perceptron(model.captions, texts.tokens[j, 0].double().numpy())
            expected = perceptron(model.images, pooled) @ caption
            np.testing.assert_allclose(scores[i, j], expected, rtol=0, atol=1e-5)


def test_what_stands_in_padding_changes_nothing() -> None:
    model, images, _ = made()
    model.eval()
    filled = Images(
        images.features.masked_fill(~images.mask[..., None], 9.0), images.boxes, images.mask
    )
    expected = model.encode_images(images).vector
    torch.testing.assert_close(model.encode_images(filled).vector, expected)


def test_each_network_has_its_own_dropout() -> None:
    model = Frozen(FrozenConfig(dropout=0.6, text_dropout=0.1), D, SENTENCE)
    assert (model.images.dropout.p, model.captions.dropout.p) == (0.6, 0.1)


def test_captions_are_vectors_of_the_sentence_encoder(small: Small, tmp_path) -> None:
    summary = run(
        small.data, tmp_path, "train.model.options={embed: 8, hidden: 8}", preset="frozen", epochs=2
    )
    assert np.isfinite(summary["loss"])
    model, tokens, _ = load_run(tmp_path)
    assert isinstance(tokens, SentenceVectors) and tokens == load_tokens(tmp_path / VOCABULARY)
    assert read_json(tmp_path / VOCABULARY) == {"sentences": "all-MiniLM-L6-v2"}
    texts = ["a dog and a ball", "a boat"]
    batch = pad_texts(tokens.encode_texts(texts))
    expected = embed(texts, "all-MiniLM-L6-v2")
    np.testing.assert_array_equal(batch.tokens[:, 0].numpy(), expected)
    assert model.encode_captions(batch).vector.shape == (2, 8)

"""The single stream: how words are drawn, padding, classes, bfloat16."""

import pytest
import torch

from capgrade.schemas.errors import InputError
from capgrade.trainer.models.single_stream import SingleStream, SingleStreamConfig, draw

from .made import FEATURES, VOCABULARY, close, images, texts

CONFIG = SingleStreamConfig(classes=5, embed=8, side=3, cell=2, width=8)


def made() -> SingleStream:
    torch.manual_seed(0)
    return SingleStream(CONFIG, FEATURES, VOCABULARY)


def test_words_are_drawn_in_reading_order() -> None:
    vectors = torch.arange(2 * 12.0).view(1, 2, 12)
    picture = draw(vectors, torch.ones(1, 2, dtype=torch.bool), side=3, cell=2)
    assert picture.shape == (1, 3, 6, 6)
    assert picture[0, 0, :2, :4].tolist() == [[0, 1, 12, 13], [2, 3, 14, 15]]  # channel 0 of both words, side by side
    assert picture[0, 2, 0, :4].tolist() == [8, 9, 20, 21]
    assert not picture[0, :, 2:].any() and not picture[0, :, :, 4:].any()


def test_padding_changes_nothing() -> None:
    model = made()
    close(model.encode_images(images(padded=12, garbage=float("nan"))).parts, model.encode_images(images()).parts)
    close(model.encode_captions(texts(padded=20)).parts, model.encode_captions(texts()).parts)


def test_more_words_than_cells_are_refused() -> None:
    with pytest.raises(InputError, match="larger `side`"):
        draw(torch.zeros(1, 10, 12), torch.ones(1, 10, dtype=torch.bool), side=3, cell=2)


def test_scores_are_cosines_and_classes_have_logits() -> None:
    model = made()
    a, b = model.encode_images(images()), model.encode_captions(texts())
    close(model.scores(a, b), torch.cosine_similarity(a.parts, b.parts[:, 0].unsqueeze(0), dim=2))
    assert model.classify(b).shape == (6, 5)


def test_bfloat16_autocast_and_gradients() -> None:
    model = made()
    with torch.autocast("cpu", torch.bfloat16):
        a, b = model.encode_images(images((0, 3))), model.encode_captions(texts((2, 0)))
        loss = model.scores(a, b).sum() + model.classify(a).logsumexp(1).sum() + model.classify(b).square().sum()
    assert model.scores(a, b).dtype == torch.float32
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())

"""The single stream: how words are drawn, scores, classes."""

import pytest
import torch

from capgrade.schemas.errors import InputError
from capgrade.trainer.models.single_stream import draw

from .made import close, encoded, made


def test_words_are_drawn_in_reading_order() -> None:
    vectors = torch.arange(2 * 12.0).view(1, 2, 12)
    picture = draw(vectors, torch.ones(1, 2, dtype=torch.bool), side=3, cell=2)
    assert picture.shape == (1, 3, 6, 6)
    assert picture[0, 0, :2, :4].tolist() == [[0, 1, 12, 13], [2, 3, 14, 15]]  # channel 0 of both words, side by side
    assert picture[0, 2, 0, :4].tolist() == [8, 9, 20, 21]
    assert not picture[0, :, 2:].any() and not picture[0, :, :, 4:].any()


def test_more_words_than_cells_are_refused() -> None:
    with pytest.raises(InputError, match="larger `side`"):
        draw(torch.zeros(1, 10, 12), torch.ones(1, 10, dtype=torch.bool), side=3, cell=2)


def test_scores_are_cosines_and_classes_have_logits() -> None:
    model = made("single_stream", embed=8, side=3, cell=2, width=8).float()
    a, b = encoded(model)
    close(model.scores(a, b), torch.cosine_similarity(a.parts, b.parts[:, 0].unsqueeze(0), dim=2))
    assert model.classify(b).shape == (6, 5)

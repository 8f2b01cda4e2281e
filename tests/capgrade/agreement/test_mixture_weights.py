"""Weights of a mixture by people's judgements, cross-validated over images."""

import numpy as np
import pytest

from capgrade.agreement.mixture_weights import mix
from capgrade.schemas.errors import InputError

RANDOM = np.random.default_rng(0)
N = 600
IMAGE = RANDOM.integers(40, size=N)
GOOD, OTHER = RANDOM.random((2, N))
SCORE = 3 * GOOD + 10 * OTHER / 4 - 1 + 0.1 * RANDOM.standard_normal(N)


def test_weights_are_found() -> None:
    values = {"good": GOOD, "other": OTHER, "against": -GOOD}
    predicted, weights = mix(values, SCORE, IMAGE, folds=5)
    assert weights == {
        "good": pytest.approx(3, abs=0.05),
        "other": pytest.approx(2.5, abs=0.05),
    }  # none is negative
    assert np.abs(predicted - SCORE).std() < 0.12
    assert np.array_equal(mix(values, SCORE, IMAGE, folds=5)[0], predicted), (
        "the same folds every time"
    )


def test_an_image_is_scored_by_weights_of_others() -> None:
    """A measure that knows each image's own error helps nothing where the image has not been
    seen."""
    error = RANDOM.standard_normal(40)[IMAGE]
    values = {f"image {k}": (k == IMAGE).astype(float) for k in range(40)}
    seen = np.corrcoef(mix(values, error + 3, np.arange(N), folds=5)[0], error)[0, 1]
    unseen = np.corrcoef(mix(values, error + 3, IMAGE, folds=5)[0], error)[0, 1]
    assert seen > 0.6 > 0.2 > unseen


def test_fewer_images_than_folds() -> None:
    with pytest.raises(
        InputError, match="3 judged images cannot be in 5 folds -> ask for fewer folds"
    ):
        mix({"good": GOOD[:6]}, SCORE[:6], np.array([0, 0, 1, 1, 2, 2]), folds=5)

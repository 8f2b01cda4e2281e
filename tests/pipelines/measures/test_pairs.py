"""Every road of a measure gives what its pairs are: rectangles, some captions, own ones left out."""

from __future__ import annotations

import numpy as np
import pytest

from capgrade.pipelines.measures import choose
from capgrade.schemas.params import FORMS_OF_SBERT, MeasuresParams
from tests.conftest import make_captions, random_sets
from tests.pipelines.measures.test_equal_captions import NAMES

BLOCKS = [name for name in NAMES if name not in FORMS_OF_SBERT and not name.startswith(("people", "daa"))]


@pytest.mark.parametrize("self_reference", ["included", "left_out"])
@pytest.mark.parametrize("name", NAMES)
def test_rectangles_are_the_pairs(name: str, self_reference: str) -> None:
    """In any order and however often; within rounding of float32, as a share of the measure's range."""
    captions = make_captions([*random_sets(20, seed=7, least=2), ["a dog " * 40, "dog"], ["", "a"]])
    given = {block: {"self_reference": self_reference} for block in BLOCKS}
    measure = choose([name], MeasuresParams.model_validate(given))[name]
    fitted = measure.fit(captions)
    every = fitted.score(np.arange(captions.n_images))
    random = np.random.default_rng(0)
    image = np.append(random.integers(captions.n_images, size=500), captions.owner)
    row = np.append(random.integers(captions.n_captions, size=500), np.arange(captions.n_captions))
    found = fitted.pairs(image, row)
    assert found.dtype == np.float32
    np.testing.assert_allclose(every[image, row], found, atol=1e-6 * (measure.high - measure.low), rtol=0)
    some = random.permutation(captions.n_captions)[:9]
    np.testing.assert_allclose(
        fitted.score(image[:5], some), every[np.ix_(image[:5], some)], atol=1e-6 * (measure.high - measure.low), rtol=0
    )

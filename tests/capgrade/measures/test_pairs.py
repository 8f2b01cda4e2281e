"""Every road of a measure gives what its pairs are: rectangles, some captions, own ones left out."""

from pathlib import Path

import numpy as np
import pytest

from capgrade.measures import FITTED, choose
from capgrade.measures.frequencies import Frequencies
from capgrade.measures.own_pairs import own_left_out
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import FORMS_OF_SBERT, MeasuresParams
from tests.capgrade.measures.test_equal_captions import NAMES
from tests.conftest import make_captions, random_sets

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


@pytest.mark.parametrize("name", [*NAMES, "spice"])
def test_left_out_needs_two_references(name: str) -> None:
    params = MeasuresParams.model_validate({block: {"self_reference": "left_out"} for block in [*BLOCKS, "spice"]})
    with pytest.raises(InputError, match="'i1' the first.*no reference remains"):
        choose([name], params)[name].fit(make_captions([["a dog", "a cat"], ["a bird"]]))


@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_the_same_in_any_block_and_when_it_was_saved(name: str, tmp_path: Path) -> None:
    fitted = choose([name], MeasuresParams())[name].fit(make_captions(random_sets(40, seed=3)))
    whole = fitted.score(np.arange(40))
    fitted.save(tmp_path)  # type: ignore[attr-defined]
    opened = FITTED[type(fitted).__name__].load(tmp_path)
    for rows in (np.arange(7), np.array([39, 2, 17])):
        assert np.array_equal(fitted.score(rows), whole[rows])
        assert np.array_equal(opened.score(rows), whole[rows])


def test_an_imported_matrix_has_no_own_pairs_left_out(tmp_path: Path) -> None:
    captions = make_captions(random_sets(5, seed=3))
    np.save(tmp_path / "m.npy", np.zeros((5, captions.n_captions), np.float32))
    mixtures = {"mine": {"given": 0.5, "rouge_l": 0.5}}
    params = MeasuresParams(imported={"given": str(tmp_path / "m.npy")}, mixtures=mixtures)
    for measure in choose(["given", "mine"], params).values():
        assert own_left_out(measure, captions) is None


@pytest.mark.parametrize("name", ["cider", "cider_plain", "rouge_l", "bleu", "both"])
def test_a_pair_has_the_same_bits_among_other_captions(name: str, tmp_path: Path) -> None:
    """With the document frequencies of captions of which many are elsewhere; without them CIDEr-D's values move."""
    file = tmp_path / "frequencies.arrow"
    Frequencies.of_captions(make_captions([*random_sets(40, seed=99), ["zebra a", "zebra b"]])).write(file)
    elsewhere = {"document_frequency": str(file)}
    mixtures = {"both": {"cider": 0.3, "rouge_l": 2.0}}
    fixed = MeasuresParams.model_validate({"cider": elsewhere, "cider_plain": elsewhere, "mixtures": mixtures})
    sets = [*random_sets(25, seed=1, least=2), ["new zebra a the the the " * 12] * 2]
    whole, part = make_captions(sets), make_captions(sets[10:])
    image, row = np.indices((part.n_images, part.n_captions)).reshape(2, -1)
    offset = np.flatnonzero(whole.owner >= 10)[0]
    for params, same in ((fixed, True), (MeasuresParams(mixtures=mixtures), name in ("rouge_l", "bleu"))):
        few, many = (choose([name], params)[name].fit(captions) for captions in (part, whole))
        assert np.array_equal(few.pairs(image, row), many.pairs(image + 10, row + offset)) == same

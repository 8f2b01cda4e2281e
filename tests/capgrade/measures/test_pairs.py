"""Rectangles are what pairs are, within 1e-6 of the range: the whole, some captions, own ones left
out. Captions of one text have one value, to the last bit, and a caption's likeness to itself is the
whole."""

from pathlib import Path

import numpy as np
import pytest

from capgrade.measures import MEASURES, base, choose, mixture
from capgrade.measures.base import Measure, state_of
from capgrade.measures.frequencies import Frequencies
from capgrade.measures.params import OWNERS, MeasuresParams
from capgrade.schemas.errors import InputError
from tests.conftest import make_captions, random_sets

FORMS = {
    "rouge_mean": ("rouge_l", {"references": "mean"}),
    "sbert_first": ("sbert", {"references": "first"}),
    "bleu_1": ("bleu", {"n": 1}),
    "bleu_3": ("bleu", {"n": 3}),
}
# need jars, pictures, a model or a run: tests of their own
OTHERWISE = ("spice", "image_text", "reranker", "image_reranker", "trained")
NAMES = [
    name for name in (*MEASURES, "people", "people_shared", "daa_average") if name not in OTHERWISE
]
MIXTURES = {"one_sign": {"cider": 0.5, "rouge_l": 1.0}, "two_signs": {"sbert": 1.0, "cider": -0.1}}
PLAIN = [
    "a red dog runs on the beach",
    "the woman rides a bike",
    "two cats sit under a big table near the street",
]


def made(name: str, **more: str) -> Measure:
    """A measure, or one of `FORMS`, with these parameters besides."""
    name, options = FORMS.get(name, (name, {}))
    given = {MEASURES[name].block or name: {**options, **more}} if name in MEASURES else {}
    params = MeasuresParams.model_validate(given)
    return choose([name], params)[name]


@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("name", [*NAMES, *FORMS])
def test_references_equal_to_the_caption_give_the_most(name: str, left_out: bool) -> None:
    """Exactly `high`, so that rank correlations see ties where there are some."""
    measure = made(name, **({"self_reference": "left_out"} if left_out else {}))
    scores = measure.fit(make_captions([[text] * 4 for text in PLAIN])).score(np.arange(len(PLAIN)))
    own = np.repeat(np.eye(len(PLAIN), dtype=bool), 4, axis=1)
    assert set(scores[own].tolist()) == {np.float32(measure.high)}


@pytest.mark.parametrize("chunk", [base.CHUNK, 32])
@pytest.mark.parametrize("name", NAMES)
def test_equal_captions_have_equal_columns(
    name: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a chunk and across chunks."""
    for module in (base, mixture):
        monkeypatch.setattr(module, "CHUNK", chunk)
    sets = random_sets(30, seed=5)
    sets[7], sets[29] = [*sets[7], sets[0][0], sets[3][0]], [sets[0][0], sets[12][-1], sets[29][0]]
    captions = make_captions(sets)
    texts, first = np.array(captions.texts), {}
    where = np.array([first.setdefault(text, k) for k, text in enumerate(texts)])
    fitted = choose([name], MeasuresParams())[name].fit(captions)
    whole = fitted.score(np.arange(30))
    np.testing.assert_array_equal(whole, whole[:, where])
    some = np.flatnonzero(where != np.arange(len(where)))
    part = fitted.score(np.arange(30), np.concatenate([some, where[some]]))
    np.testing.assert_array_equal(part, np.tile(whole[:, some], 2))


BLOCKS = [name for name in NAMES if name in OWNERS and not name.startswith(("people", "daa"))]


@pytest.mark.parametrize("self_reference", ["included", "left_out"])
@pytest.mark.parametrize("name", [*NAMES, *FORMS, *MIXTURES])
def test_rectangles_are_the_pairs(name: str, self_reference: str) -> None:
    """In any order and however often, within 1e-6 of the measure's range."""
    sets = [
        *random_sets(30, seed=7, least=2),
        ["a dog " * 40, "dog"],
        ["red ball " * 40, "a"],
        ["", "a"],
    ]
    captions = make_captions(sets)
    given = {block: {"self_reference": self_reference} for block in BLOCKS}
    name, options = FORMS.get(name, (name, {}))
    if options:
        given[name] |= options
    measure = choose([name], MeasuresParams.model_validate({"mixtures": MIXTURES, **given}))[name]
    fitted = measure.fit(captions)
    every = fitted.score(np.arange(captions.n_images))
    random = np.random.default_rng(0)
    image, row = random.permutation(np.tile(np.indices(every.shape).reshape(2, -1), 2), axis=1)
    found = fitted.pairs(image, row)
    assert found.dtype == np.float32
    apart = np.abs(every[image, row].astype(float) - found)
    assert apart.max() <= 1e-6 * (measure.high - measure.low)
    some = random.permutation(captions.n_captions)[:9]
    np.testing.assert_array_equal(fitted.score(image[:5], some), every[np.ix_(image[:5], some)])


@pytest.mark.parametrize("name", [*NAMES, "spice"])
def test_left_out_needs_two_references(name: str) -> None:
    params = MeasuresParams.model_validate(
        {block: {"self_reference": "left_out"} for block in [*BLOCKS, "spice"]}
    )
    with pytest.raises(InputError, match="'i1' the first.*no reference remains"):
        choose([name], params)[name].fit(make_captions([["a dog", "a cat"], ["a bird"]]))


@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_the_same_in_any_block_and_when_it_was_saved(name: str, tmp_path: Path) -> None:
    fitted = choose([name], MeasuresParams())[name].fit(make_captions(random_sets(40, seed=3)))
    whole = fitted.score(np.arange(40))
    fitted.save(tmp_path)  # type: ignore[attr-defined]
    opened = state_of(fitted.kind()).load(tmp_path)
    for rows in (np.arange(7), np.array([39, 2, 17])):
        assert np.array_equal(fitted.score(rows), whole[rows])
        assert np.array_equal(opened.score(rows), whole[rows])


def test_an_imported_matrix_has_no_own_pairs_left_out(tmp_path: Path) -> None:
    captions = make_captions(random_sets(5, seed=3))
    np.save(tmp_path / "m.npy", np.zeros((5, captions.n_captions), np.float32))
    mixtures = {"mine": {"given": 0.5, "rouge_l": 0.5}}
    params = MeasuresParams(imported={"given": str(tmp_path / "m.npy")}, mixtures=mixtures)
    for measure in choose(["given", "mine"], params).values():
        assert not measure.leaves_out
        with pytest.raises(TypeError, match="FittedImported cannot leave captions out"):
            measure.fit(captions).own_left_out(np.arange(5))


@pytest.mark.parametrize("name", ["cider", "cider_plain", "rouge_l", "bleu", "both"])
def test_a_pair_has_the_same_bits_among_other_captions(name: str, tmp_path: Path) -> None:
    """With the document frequencies of captions of which many are elsewhere; without them CIDEr-D's
    values move."""
    file = tmp_path / "frequencies.arrow"
    Frequencies.of_captions(
        make_captions([*random_sets(40, seed=99), ["zebra a", "zebra b"]])
    ).write(file)
    elsewhere = {"document_frequency": str(file)}
    mixtures = {"both": {"cider": 0.3, "rouge_l": 2.0}}
    fixed = MeasuresParams.model_validate(
        {"cider": elsewhere, "cider_plain": elsewhere, "mixtures": mixtures}
    )
    sets = [*random_sets(25, seed=1, least=2), ["new zebra a the the the " * 12] * 2]
    whole, part = make_captions(sets), make_captions(sets[10:])
    image, row = np.indices((part.n_images, part.n_captions)).reshape(2, -1)
    offset = np.flatnonzero(whole.owner >= 10)[0]
    for params, same in (
        (fixed, True),
        (MeasuresParams(mixtures=mixtures), name in ("rouge_l", "bleu")),
    ):
        few, many = (choose([name], params)[name].fit(captions) for captions in (part, whole))
        assert np.array_equal(few.pairs(image, row), many.pairs(image + 10, row + offset)) == same

"""Tops of mixtures by the bounds of their parts are those of all pairs: the same captions, the same bits, ties too."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.measures import choose
from capgrade.pipelines.measures.base import CHUNK, Fitted
from capgrade.pipelines.measures.mixture import FittedMixture
from capgrade.pipelines.measures.sbert import FittedSbert, first_of_text
from capgrade.pipelines.measures.tops import mixture, named
from capgrade.pipelines.measures.tops.every import Tops, every_pair
from capgrade.pipelines.measures.tops.find import finder
from capgrade.pipelines.measures.tops.listed import listed_values
from capgrade.pipelines.measures.tops.mixture import MixtureTops
from capgrade.pipelines.measures.tops.named import naming
from capgrade.pipelines.measures.tops.rouge import RougeTops
from capgrade.schemas.captions import Captions
from capgrade.schemas.params import MeasuresParams
from tests.conftest import make_captions, random_sets
from tests.pipelines.measures.tops.same import ties
from tests.pipelines.measures.tops.test_cider_tops import sets_with_ties

D = 256
WORDS = ("cider", "cider_plain", "tfidf_cosine", "rouge_l", "bleu")
SBERT = ("sbert", "sbert_mean", "sbert_first")
SOON = {"LEAST": named.NAMED, "PAYS": {}}  # however few captions there are


@cache
def direction(word: str) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(word.encode())).normal(size=D)


def embedded(captions: Captions, references: str, left_out: bool) -> FittedSbert:
    """A vector for each word, of which a caption has the sum and noise of its own."""
    rng = np.random.default_rng(0)
    vectors = np.stack([sum(map(direction, text.split()), 2 * rng.normal(size=D)) for text in captions.texts])
    vectors *= np.linspace(2, 0.05, D)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    same = first_of_text(captions.texts)
    rows = vectors.astype(np.float32)[same]
    return FittedSbert(captions.ref_ptr, captions.refs, rows, same, references, left_out)


def part(name: str, captions: Captions, left_out: bool) -> Fitted:
    if name in SBERT:
        return embedded(captions, {"sbert": "max"}.get(name, name.removeprefix("sbert_")), left_out)
    own = {"self_reference": "left_out" if left_out else "included"}
    return choose([name], MeasuresParams.model_validate({name: own}))[name].fit(captions)


def mixed(weights: Mapping[str, float], captions: Captions, left_out: bool = False) -> FittedMixture:
    return FittedMixture({name: part(name, captions, left_out) for name in weights}, weights)


def dense(fitted: Fitted, images: np.ndarray, n_captions: int) -> np.ndarray:
    """All values, as `chunks` gives them."""
    out, some = np.empty((len(images), n_captions), np.float32), np.empty((len(images), CHUNK), np.float32)
    for at, _ in zip(range(0, n_captions, CHUNK), fitted.chunks(images, 0, n_captions, some), strict=True):
        out[:, at : at + CHUNK] = some[:, : n_captions - at]
    return out


def assert_same(fitted: FittedMixture, images: np.ndarray, k: int) -> Tops:
    """Beside whole rows of all values, sorted."""
    n = len(fitted.refs)
    found, values = finder(fitted, ties(n)).tops(images, k), dense(fitted, images, n)
    rows = np.lexsort((ties(n).of(images, np.tile(np.arange(n), (len(images), 1))), -values))[:, :k]
    np.testing.assert_array_equal(found.rows, rows)
    assert found.values.tobytes() == np.take_along_axis(values, rows, 1).tobytes()
    return found


WEIGHT = st.sampled_from([1.0, 0.1, 3.0, 1 / 3, 0.0, 1e-60, -0.5])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(40, 120), st.integers(0, 10_000), st.integers(1, 8), st.booleans(),
    st.dictionaries(st.sampled_from(WORDS + SBERT), WEIGHT, min_size=2, max_size=3), st.sampled_from([1, 8, 1000]),
)  # fmt: skip
def test_tops_are_those_of_all_pairs(
    images: int, seed: int, k: int, left_out: bool, weights: dict[str, float], share: int
) -> None:
    """Also where it does not pay; and where any image that is not done is scored in full."""
    fitted = mixed(weights, make_captions(sets_with_ties(images, seed)), left_out)
    with patch.multiple(named, **SOON), patch.object(mixture, "SHARE", share):
        assert_same(fitted, np.arange(seed % 2, images, 2), k)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.floats(0.01, 10), min_size=3, max_size=3))
def test_any_weights(seed: int, weights: list[float]) -> None:
    captions = make_captions(random_sets(150, seed, least=2))
    fitted = mixed(dict(zip(("sbert_mean", "cider", "rouge_l"), weights, strict=True)), captions)
    with patch.multiple(named, **SOON):
        found = assert_same(fitted, np.arange(0, 150, 3), 4)
    assert found.pairs.mean() < captions.n_captions


@pytest.mark.parametrize("k", [1, 5, 40, 60, 400])
def test_more_than_there_are(k: int) -> None:
    captions = make_captions(random_sets(40, seed=3, least=2))
    with patch.multiple(named, **SOON):
        assert_same(mixed({"rouge_l": 1.0, "cider": 1.0, "sbert": 0.5}, captions), np.arange(40), k)


def test_no_images() -> None:
    captions = make_captions(random_sets(40, seed=3, least=2))
    with patch.multiple(named, **SOON):
        found = finder(mixed({"rouge_l": 1.0, "cider": 1.0}, captions), ties(captions.n_captions)).tops(np.arange(0), 3)
    assert found.rows.shape == found.values.shape == (0, 3)


@pytest.mark.parametrize("name", [*WORDS, *SBERT, "scene_graph", "meteor"])
@pytest.mark.parametrize("left_out", [False, True])
def test_listed_values_are_those_of_all_pairs(name: str, left_out: bool) -> None:
    """What tops of a mixture hang on: single pairs have the bits of all pairs, whatever is listed with them."""
    captions = make_captions(sets_with_ties(90, seed=6))
    fitted, rng, images = part(name, captions, left_out), np.random.default_rng(7), np.arange(0, 90, 2)
    lists = [np.sort(rng.choice(captions.n_captions, rng.integers(30), replace=False)) for _ in images]
    ptr, rows = np.concatenate([[0], np.cumsum([len(one) for one in lists])]), np.concatenate(lists)
    found = listed_values(finder(fitted, ties(captions.n_captions)), images, ptr, rows)
    expected = dense(fitted, images, captions.n_captions)[np.repeat(np.arange(len(images)), np.diff(ptr)), rows]
    assert found.tobytes() == expected.tobytes()


def test_listed_values_are_sums_of_the_parts_and_nothing_else_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    captions = make_captions(random_sets(60, seed=5, least=2))
    fitted, images = mixed({"cider": 1.0, "sbert": -2.0, "rouge_l": 0.5}, captions, left_out=True), np.arange(60)
    rows = np.sort(np.random.default_rng(1).permutation(captions.n_captions)[:20])
    expected = dense(fitted, images, captions.n_captions)[:, rows].ravel()
    for kind in (FittedMixture, *map(type, fitted.parts.values())):
        monkeypatch.setattr(kind, "score", None)
    found = listed_values(finder(fitted, ties(captions.n_captions)), images, 20 * np.arange(61), np.tile(rows, 60))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def names_of(weights: Mapping[str, float], n_captions: int, k: int, captions: Captions) -> list[bool]:
    find = finder(mixed(weights, captions), ties(n_captions))
    assert isinstance(find, MixtureTops)
    return naming(find.finders, find.bounded, find.weights, n_captions, k)


def test_the_way_is_chosen() -> None:
    captions = make_captions(random_sets(20, seed=8, least=2))
    every = 2048 * 16
    assert names_of({"cider": 1.0, "sbert": 0.5}, every, 16, captions) == [True, True]
    assert names_of({"cider": 1.0, "sbert": 0.5}, every - 1, 16, captions) == [False, False]
    assert names_of({"cider": 1.0, "sbert": 0.0}, every, 16, captions) == [True, False]
    assert names_of({"cider": 1.0, "sbert": -0.1}, every, 16, captions) == [False, False]
    assert names_of({"cider": 1.0, "sbert": 1e39}, every, 16, captions) == [False, False]
    three = {"cider": 1.0, "rouge_l": 1.0, "sbert": 1.0}
    assert names_of(three, every, 16, captions) == [True, False, True]  # ROUGE-L's bound is dear
    assert names_of({"cider": 1.0, "rouge_l": 1.0}, every, 16, captions) == [False, False]
    assert names_of({"cider": 1.0, "rouge_l": 1.0}, 3 * every, 16, captions) == [True, True]
    sets = random_sets(20, seed=8, least=2)
    sets[0][0] = " ".join(f"word{k}" for k in range(5000))  # no index of CIDEr-D, so its listed values differ
    assert names_of({"cider": 1.0, "sbert": 1.0}, every, 16, make_captions(sets)) == [False, False]


def test_what_a_part_without_a_bound_scores_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """BLEU has no tops of its own to be asked for, and two parts of three name some."""
    captions = make_captions(random_sets(120, seed=9, least=2))
    fitted = mixed({"cider": 1.0, "bleu": 1.0, "sbert": 1.0}, captions)
    find = finder(fitted, ties(captions.n_captions))
    assert isinstance(find, MixtureTops)
    without = dataclasses.replace(find, bounded=(True, False, True))
    monkeypatch.setattr(type(find.finders[1]), "tops", None)
    with patch.multiple(named, **SOON):
        found, full = without.tops(np.arange(120), 4), every_pair(fitted, np.arange(120), 4, ties(captions.n_captions))
    np.testing.assert_array_equal(found.rows, full.rows)
    assert found.values.tobytes() == full.values.tobytes()


@pytest.mark.parametrize(
    "weights",
    [
        {"cider": 0.1, "rouge_l": 1.0},
        {"sbert": 0.53, "sbert_mean": 0.24, "rouge_l": 0.23},
        {"tfidf_cosine": 1 / 3, "bleu": 1 / 3, "rouge_l": 1 / 3},
        {"cider": 0.1, "sbert": 1.0, "rouge_l": 0.0},
    ],
    ids=" ".join,
)
def test_real_captions_have_the_same_tops_with_few_pairs(coco: Captions, weights: dict[str, float]) -> None:
    with patch.dict(named.PAYS, {RougeTops: 0}):
        found = assert_same(mixed(weights, coco), np.arange(0, coco.n_images, 80), 12)
    assert found.pairs.mean() < coco.n_captions / 10


def test_thresholds_that_are_too_low_would_be_seen(coco: Captions) -> None:
    """The comparison can fail: if unnamed captions are thought to be worse than they are, some tops differ."""
    fitted, images = mixed({"cider": 0.1, "rouge_l": 1.0}, coco), np.arange(0, coco.n_images, 80)
    with patch.object(mixture, "NAMED", 1), patch.dict(named.PAYS, {RougeTops: 0}):
        asked = mixture.named
        assert_same(fitted, images, 12)
        with patch.object(mixture, "named", lambda *a: asked(*a)._replace(last=np.float32(-9) + 0 * asked(*a).last)):
            found = finder(fitted, ties(coco.n_captions)).tops(images, 12)
    assert not np.array_equal(found.rows, every_pair(fitted, images, 12, ties(coco.n_captions)).rows)

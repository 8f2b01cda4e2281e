"""Tops found by bounds are those of all pairs: the same captions, the same bits, ties included."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.measures import choose
from capgrade.pipelines.measures.base import Fitted
from capgrade.pipelines.measures.spice import FittedSpice
from capgrade.pipelines.measures.tops import cider_index
from capgrade.pipelines.measures.tops.cider import CiderTops
from capgrade.pipelines.measures.tops.every import Tops, every_pair
from capgrade.pipelines.measures.tops.find import EveryPair, finder
from capgrade.schemas.captions import Captions
from capgrade.schemas.params import MeasuresParams
from tests.conftest import make_captions, random_sets
from tests.pipelines.measures.tops.same import ties


def fit(name: str, captions: Captions, left_out: bool = False) -> Fitted:
    reference = {"self_reference": "left_out" if left_out else "included"}
    return choose([name], MeasuresParams.model_validate({name: reference}))[name].fit(captions)


def best(fitted: Fitted, images: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """By sorting whole rows of all values."""
    values = fitted.score(images)
    every = np.tile(np.arange(values.shape[1]), (len(images), 1))
    rows = np.lexsort((ties(values.shape[1]).of(images, every), -values))[:, :k]
    return rows, np.take_along_axis(values, rows, 1)


def assert_same(found: Tops, rows: np.ndarray, values: np.ndarray) -> None:
    np.testing.assert_array_equal(found.rows, rows)
    assert found.values.tobytes() == values.tobytes()


def sets_with_ties(images: int, seed: int) -> list[list[str]]:
    """Captions of which many are equal, or have the same words in another order."""
    rng = np.random.default_rng(seed)
    found = random_sets(images, seed=seed, least=2)
    for k in range(0, images, 3):
        found[k] = [" ".join(rng.permutation(text.split())) if j % 2 else text for j, text in enumerate(found[k - 1])]
    return found


@settings(max_examples=25, deadline=None)
@given(
    st.integers(20, 120), st.integers(0, 10_000), st.integers(1, 12), st.booleans(),
    st.sampled_from(["cider", "cider_plain", "tfidf_cosine"]),
)  # fmt: skip
def test_tops_are_those_of_all_pairs(images: int, seed: int, k: int, left_out: bool, name: str) -> None:
    fitted = fit(name, make_captions(sets_with_ties(images, seed)), left_out)
    some = np.arange(0, images, 2)
    assert_same(finder(fitted, ties(fitted)).tops(some, k), *best(fitted, some, k))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(40, 120), st.integers(0, 10_000), st.integers(1, 12), st.booleans(),
    st.sampled_from(["cider", "cider_plain", "tfidf_cosine"]), st.sampled_from([64, 192]), st.sampled_from([0.1, 5]),
)  # fmt: skip
def test_many_small_ranges_have_the_same_tops(
    images: int, seed: int, k: int, left_out: bool, name: str, size: int, first: float
) -> None:
    """However many captions are scored: real corpora give up on an image that few are ruled out of."""
    fitted = fit(name, make_captions(sets_with_ties(images, seed)), left_out)
    some = np.arange(0, images, 2)
    with patch.multiple(cider_index, RANGE=size, LARGEST=size, LONG=4, FIRST=first, PAYS=1):
        found = finder(fitted, ties(fitted)).tops(some, k)
    assert_same(found, *best(fitted, some, k))


def test_norms_of_common_parts_are_rounded_up() -> None:
    """From the words: of each order, the norm of the tf-idf of n-grams above a level, beside that of all."""
    sets = sets_with_ties(40, seed=4)
    captions = make_captions(sets)
    index = CiderTops(fit("cider", captions), ties(captions)).index  # type: ignore[arg-type]
    words = [text.split() for text in captions.texts]
    counts = [[Counter(zip(*(w[k:] for k in range(n)), strict=False)) for n in range(1, 5)] for w in words]
    held = [Counter(gram for found in counts for gram in found[o]) for o in range(4)]
    df: list[Counter[tuple[str, ...]]] = [Counter() for _ in range(4)]
    for o, image in ((o, image) for o in range(4) for image in range(40)):
        df[o].update({gram for c in np.flatnonzero(captions.owner == image) for gram in counts[c][o]})
    parts = index.common.view(np.uint8).reshape(len(cider_index.LEVELS), -1, 4)
    for rank in np.flatnonzero(index.row_of_rank >= 0):
        for o in range(4):
            weights = {g: (t * np.log(40 / df[o][g])) ** 2 for g, t in counts[index.row_of_rank[rank]][o].items()}
            for level, share in enumerate(cider_index.LEVELS):
                above = sum(w for g, w in weights.items() if held[o][g] > share * captions.n_captions)
                norm = 255 * np.sqrt(above / sum(weights.values())) if sum(weights.values()) > 0 else 0
                assert norm - 1e-6 <= parts[level, rank, o] <= norm + 1 + 1e-6


def test_postings_are_the_captions_of_a_term_by_range() -> None:
    captions = make_captions(sets_with_ties(60, seed=5))
    with patch.multiple(cider_index, RANGE=64, LARGEST=64, LONG=4):
        index = CiderTops(fit("cider", captions), ties(captions)).index  # type: ignore[arg-type]
    for t in range(len(index.post_ptr) - 1):
        ranks = index.post[index.post_ptr[t] : index.post_ptr[t + 1]].astype(np.int64) >> index.bits
        rows = np.repeat(np.arange(len(index.ptr) - 1), np.diff(index.ptr))[index.term == t]
        assert (np.diff(ranks) > 0).all() and set(index.row_of_rank[ranks]) == set(rows)
    for x, t in enumerate(index.long):
        ranks = index.post[index.post_ptr[t] : index.post_ptr[t + 1]].astype(np.int64) >> index.bits
        expected = index.post_ptr[t] + np.searchsorted(ranks, 64 * np.arange(index.starts.shape[1]))
        np.testing.assert_array_equal(index.starts[x], expected)
    assert len(index.long) and index.starts.shape[1] > 2


@pytest.mark.parametrize("name", ["cider", "rouge_l"])
def test_all_pairs_are_sorted_by_value_and_hash(name: str) -> None:
    captions = make_captions(sets_with_ties(50, seed=1))
    fitted = fit(name, captions)
    for k in (1, 7, captions.n_captions + 5):
        assert_same(every_pair(fitted, np.arange(50), k, ties(captions.n_captions)), *best(fitted, np.arange(50), k))


def test_measures_without_a_bound_score_all_pairs() -> None:
    captions = make_captions(random_sets(10, seed=2))
    looked_up = object.__new__(FittedSpice)
    assert isinstance(finder(looked_up, ties(captions.n_captions)), EveryPair)
    assert isinstance(finder(fit("cider", captions), ties(captions.n_captions)), CiderTops)


def test_captions_of_too_many_n_grams_are_left_to_all_pairs() -> None:
    sets = random_sets(5, seed=3)
    sets[0][0] = " ".join(f"word{k}" for k in range(5000))
    fitted = fit("cider", make_captions(sets))
    assert isinstance(finder(fitted, ties(len(fitted.rank))), EveryPair)  # type: ignore[attr-defined]


def test_images_without_enough_relevant_captions_are_scored_in_full() -> None:
    sets = [[f"red{k} kite{k}", f"blue{k} kite{k}"] for k in range(60)]
    fitted = fit("cider", make_captions(sets))
    found = finder(fitted, ties(fitted)).tops(np.arange(60), 10)
    assert (found.pairs == 120).all()
    assert_same(found, *best(fitted, np.arange(60), 10))


@pytest.mark.parametrize("name", ["cider", "tfidf_cosine"])
def test_real_captions_have_the_same_tops_with_few_pairs(coco: Captions, name: str) -> None:
    fitted = fit(name, coco)
    images = np.arange(0, coco.n_images, 40)
    found = finder(fitted, ties(coco.n_captions)).tops(images, 64)
    assert_same(found, *best(fitted, images, 64))
    assert found.pairs.mean() < coco.n_captions / 10


def test_bounds_that_are_too_low_would_be_seen(coco: Captions) -> None:
    """The comparison can fail: with the parts of common n-grams forgotten, some tops differ."""
    fitted = fit("cider", coco)
    images = np.arange(0, coco.n_images, 40)
    broken = CiderTops(fitted, ties(fitted))  # type: ignore[arg-type]
    index = broken.index
    empty = {name: np.zeros_like(getattr(index, name)) for name in ("common", "most", "most_of_range")}
    nothing = index._replace(**empty)
    object.__setattr__(broken, "__dict__", {**broken.__dict__, "index": nothing})
    found = broken.tops(images, 64)
    assert not np.array_equal(found.rows, best(fitted, images, 64)[0])

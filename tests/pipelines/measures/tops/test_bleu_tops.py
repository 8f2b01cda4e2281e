"""Tops of BLEU by common n-grams are those of all pairs: the same captions, the same bits, ties included."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.measures.bleu import Bleu
from capgrade.pipelines.measures.tops.bleu import BleuTops
from capgrade.pipelines.measures.tops.every import every_pair
from capgrade.pipelines.measures.tops.find import finder
from capgrade.pipelines.measures.tops.listed import listed_values
from capgrade.schemas.captions import Captions
from capgrade.schemas.params import BleuParams
from tests.conftest import make_captions, random_sets
from tests.pipelines.measures.tops.same import assert_same, ties


def sets_of_phrases(images: int, seed: int, words: int) -> list[list[str]]:
    """Captions of a large vocabulary that share phrases now and then; an empty one, short ones, equal ones, one that
    nothing shares with."""
    rng = np.random.default_rng(seed)
    vocabulary = [f"w{k}" for k in range(words)]
    phrases = [" ".join(rng.choice(vocabulary, 5)) for _ in range(images // 4 + 1)]
    sets = [
        [
            " ".join([*rng.choice(vocabulary, rng.integers(1, 9)), *rng.choice(phrases, rng.integers(0, 2))])
            for _ in range(rng.integers(2, 6))
        ]
        for _ in range(images)
    ]
    sets[0][0], sets[1] = "", ["alone here", "alone"]
    for k in range(2, images, 5):
        sets[k][0] = sets[2][1]
    return sets


@settings(max_examples=40, deadline=None)
@given(
    st.integers(20, 120), st.integers(0, 10_000), st.integers(1, 12), st.booleans(), st.integers(1, 4),
    st.sampled_from([5, 60, 2000]),
)  # fmt: skip
def test_tops_are_those_of_all_pairs(images: int, seed: int, k: int, left_out: bool, n: int, words: int) -> None:
    params = BleuParams(n=n, self_reference="left_out" if left_out else "included")
    fitted = Bleu(params).fit(make_captions(sets_of_phrases(images, seed, words)))
    n_captions, some = len(fitted.words), np.arange(0, images, 2)
    find = finder(fitted, ties(n_captions))
    assert isinstance(find, BleuTops)
    assert_same(find, n_captions, some, k)
    rows = np.sort(np.random.default_rng(seed).permutation(n_captions)[:20])
    found = listed_values(find, some, 20 * np.arange(len(some) + 1), np.tile(rows, len(some)))
    assert found.tobytes() == np.ascontiguousarray(fitted.score(some)[:, rows]).tobytes()


def test_an_image_that_shares_no_n_gram_with_enough_captions_is_scored_in_full() -> None:
    fitted = Bleu(BleuParams()).fit(make_captions(sets_of_phrases(60, 1, 2000)))
    pairs = assert_same(finder(fitted, ties(len(fitted.words))), len(fitted.words), np.array([1]), 5)
    assert pairs.tolist() == [len(fitted.words)]


def test_more_captions_than_there_are() -> None:
    fitted = Bleu(BleuParams()).fit(make_captions(random_sets(12, seed=4)))
    assert_same(finder(fitted, ties(fitted)), len(fitted.words), np.arange(12), 500)


@pytest.mark.parametrize("k", [1, 64])
def test_real_captions_have_the_same_tops_with_few_pairs(coco: Captions, k: int) -> None:
    fitted = Bleu(BleuParams()).fit(coco)
    pairs = assert_same(finder(fitted, ties(coco.n_captions)), coco.n_captions, np.arange(0, coco.n_images, 40), k)
    assert pairs.mean() < coco.n_captions / 10


def test_captions_that_were_not_looked_at_would_be_seen(coco: Captions, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: with n-grams of four words taken for ones of three, values differ."""
    find, images = BleuTops(Bleu(BleuParams()).fit(coco), ties(coco)), np.arange(0, coco.n_images, 40)
    full = every_pair(find.fitted, images, 16, ties(coco.n_captions))
    order = np.where(find.fitted.order == 3, 2, find.fitted.order).astype(np.int8)
    broken = find._index._replace(order=order)
    monkeypatch.setattr(BleuTops, "_index", property(lambda self: broken))
    assert not np.array_equal(find.tops(images, 16).values, full.values)

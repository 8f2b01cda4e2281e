"""Tops of scene graphs are those of all pairs: the same captions, the same bits, ties included."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.measures.scene_graph import FittedSceneGraph, SceneGraph
from capgrade.pipelines.measures.tops.every import every_pair
from capgrade.pipelines.measures.tops.find import finder
from capgrade.pipelines.measures.tops.listed import listed_values
from capgrade.pipelines.measures.tops.scene_graph import SceneGraphTops
from capgrade.schemas.captions import Captions
from capgrade.schemas.params import SceneGraphParams
from tests.conftest import make_captions, random_sets
from tests.pipelines.measures.tops.same import assert_same, ties

TEXTS = [
    "a brown dog on a table", "two dogs play", "a dog", "", "of the", "a man rides a red bicycle",
    "a woman in a red shirt", "a zebra", "people near a table with a dog",
    "a small brown puppy sleeping on a red couch",
]  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(
    st.integers(12, 60), st.integers(0, 10_000), st.integers(1, 9), st.booleans(),
    st.sampled_from([1e-6, 0.2, 1, 3, 1e6]),
)  # fmt: skip
def test_tops_are_those_of_all_pairs(images: int, seed: int, k: int, left_out: bool, beta: float) -> None:
    rng = np.random.default_rng(seed)
    sets = [[str(text) for text in rng.choice(TEXTS, rng.integers(2, 5))] for _ in range(images)]
    params = SceneGraphParams(beta=beta, self_reference="left_out" if left_out else "included")
    fitted = SceneGraph(params).fit(make_captions(sets))
    n, some = len(fitted.total), np.arange(0, images, 2)
    find = finder(fitted, ties(n))
    assert isinstance(find, SceneGraphTops)
    assert_same(find, n, some, k)
    rows = np.sort(rng.permutation(n)[:15])
    found = listed_values(find, some, 15 * np.arange(len(some) + 1), np.tile(rows, len(some)))
    assert found.tobytes() == np.ascontiguousarray(fitted.score(some)[:, rows]).tobytes()


def test_more_captions_than_there_are() -> None:
    fitted = SceneGraph(SceneGraphParams()).fit(make_captions(random_sets(12, seed=4)))
    assert_same(finder(fitted, ties(fitted)), len(fitted.total), np.arange(12), 500)


@pytest.fixture(scope="module")
def scenes_of_coco(coco: Captions) -> FittedSceneGraph:
    return SceneGraph(SceneGraphParams()).fit(coco)


@pytest.mark.parametrize("k", [1, 64])
def test_real_captions_have_the_same_tops_with_few_pairs(scenes_of_coco: FittedSceneGraph, k: int) -> None:
    n = len(scenes_of_coco.total)
    pairs = assert_same(finder(scenes_of_coco, ties(n)), n, np.arange(0, 5000, 40), k)
    assert pairs.mean() < n / 20


def test_a_question_that_is_too_strict_would_be_seen(scenes_of_coco: FittedSceneGraph) -> None:
    """The comparison can fail: with captions said to weigh more than they do, some tops differ."""
    n, images = len(scenes_of_coco.total), np.arange(0, 5000, 40)
    broken = SceneGraphTops(dataclasses.replace(scenes_of_coco, total=1.1 * scenes_of_coco.total), ties(n))
    full = every_pair(scenes_of_coco, images, 16, ties(n))
    assert not np.array_equal(broken.tops(images, 16).values, full.values)

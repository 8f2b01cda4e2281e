"""Windows of a random share of the captions: against an obvious reference, and estimates without bias."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.sampling import among_kernel as kernel
from capgrade.pipelines.sampling.among import INSIDE, OF_UNIFORM, TOP, SomeSamples
from capgrade.pipelines.sampling.plan import Kept, Plan, id_keys, image_seeds, keep
from capgrade.schemas.ties import Ties
from tests.pipelines.sampling.test_offering import key
from tests.pipelines.sampling.test_plan import setting

PLAN = Plan((0.0, -1.0), (10.0, 1.0), top=5, width=0.25, stride=0.125, per_window=2, uniform=6, seed=3, among=0.3)


def best(plan: Plan, images: np.ndarray, captions: np.ndarray, values: np.ndarray) -> np.ndarray:
    ties = Ties(image_seeds(plan.seed, images), captions)
    rows = np.tile(np.arange(len(captions)), (len(images), 1))
    return np.stack([np.lexsort((ties.of(np.arange(len(images)), rows), -one))[:, : plan.top] for one in values])


def keep_some(plan: Plan, images: np.ndarray, captions: np.ndarray, own: list[np.ndarray], values: np.ndarray) -> Kept:
    samples = SomeSamples(plan, images, own, len(values))
    found = samples.listed(captions, best(plan, images, captions, values))
    owner = np.repeat(np.arange(len(images)), np.diff(found.ptr))
    samples.offer_listed(captions, found, np.ascontiguousarray(values[:, owner, found.rows]))
    return samples.kept_of(captions)


def same(a: Kept, b: Kept) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(vars(a).values(), vars(b).values(), strict=True))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(5, 300), st.integers(0, 1000), st.integers(0, 20), st.integers(0, 3))
def test_a_whole_share_keeps_what_all_captions_give(
    images: int, n: int, seed: int, uniform: int, per_window: int
) -> None:
    own = setting(images, max(n, 2 * images), seed)
    plan = replace(PLAN, among=1.0, uniform=uniform, per_window=per_window, seed=seed)
    full, found = keep(plan, *own), keep_some(plan, *own)
    assert same(replace(full, weight=found.weight), found)
    possible = np.isfinite(full.weight)
    np.testing.assert_allclose(found.weight[possible], full.weight[possible], rtol=1e-12)


def test_the_uniform_sample_is_that_of_all_captions() -> None:
    images, captions, own, values = setting(n=2000)
    full, found = keep(PLAN, images, captions, own, values), keep_some(PLAN, images, captions, own, values)
    for kept in (full, found):
        assert (np.bincount(np.repeat(np.arange(3), np.diff(kept.ptr))[kept.reasons & 2 > 0]) == 6).all()
    assert np.array_equal(full.caption[full.reasons & 2 > 0], found.caption[found.reasons & 2 > 0])


def test_fewer_captions_than_the_best_that_are_wanted() -> None:
    images, captions, own, values = setting(n=12)
    plan = replace(PLAN, top=50, uniform=50)
    full, found = keep(plan, images, captions, own, values), keep_some(plan, images, captions, own, values)
    assert np.array_equal(full.caption, found.caption) and (np.diff(found.ptr) == 12).all()


def test_nan_is_refused() -> None:
    images, captions, own, values = setting(n=200)
    values[1, 2, own[2][0]] = np.nan
    with pytest.raises(ValueError, match="NaN among the values of listed captions"):
        keep_some(PLAN, images, captions, own, values)


def test_what_is_listed() -> None:
    images, captions, own, values = setting(n=5000)
    samples = SomeSamples(PLAN, images, own, 2)
    found = samples.listed(captions, best(PLAN, images, captions, values))
    for i in range(3):
        rows, marks = found.rows[found.ptr[i] : found.ptr[i + 1]], found.marks[found.ptr[i] : found.ptr[i + 1]]
        assert (np.diff(rows) > 0).all()
        assert np.isin(own[i], rows).all()
        assert (marks & OF_UNIFORM > 0).sum() == 6
        assert abs((marks & INSIDE > 0).sum() - 1500) < 5 * np.sqrt(5000 * 0.3 * 0.7)
        for m in range(2):
            assert set(rows[marks & (TOP << m) > 0]) == set(best(PLAN, images, captions, values)[m, i])


@pytest.mark.parametrize(
    "plan", [PLAN, replace(PLAN, uniform=0), replace(PLAN, per_window=0), replace(PLAN, among=0.02)]
)
def test_means_over_all_pairs_are_estimated_without_bias(plan: Plan) -> None:
    """Over seeds the average estimate of each measure's mean, and of the number of captions, is the truth within four
    standard errors."""
    images, captions, own, values = setting(1, n=120)
    truth = np.array([1.0, *values[:, 0].astype(float).mean(1)])
    estimates = []
    for seed in range(2000):
        kept = keep_some(replace(plan, seed=seed, top=2), images, captions, own, values)
        estimates.append([kept.weight.sum() / 120, *(kept.values * kept.weight).sum(1) / 120])
    error = np.std(estimates, axis=0) / np.sqrt(len(estimates))
    assert (np.abs(np.mean(estimates, axis=0) - truth) < 4 * error).all()
    unweighted = np.mean([len(kept.caption) / 120])
    assert abs(unweighted - 1) > 4 * error[0]  # the weights are needed


def test_weights_without_the_share_would_be_seen() -> None:
    images, captions, own, values = setting(1, n=120)
    sums = []
    for seed in range(200):
        kept = keep_some(replace(PLAN, seed=seed, uniform=0), images, captions, own, values)
        certain = kept.reasons & 0b010101 > 0
        sums.append(certain.sum() + (kept.weight[~certain] * 0.3).sum())
    assert np.mean(sums) < 100


def test_more_is_drawn_than_there_is_room_for_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    images, captions, own, values = setting(n=3000)
    expected = keep_some(PLAN, images, captions, own, values)
    monkeypatch.setattr("capgrade.pipelines.sampling.among.SIGMAS", 0)
    assert same(keep_some(PLAN, images, captions, own, values), expected)
    assert len(id_keys(["a"])) == 1


def test_the_share_is_of_the_keys_that_are_written_down() -> None:
    ids = [f"c{k}" for k in range(700)]
    for image in ("i0", "i1"):
        samples = SomeSamples(replace(PLAN, seed=9), id_keys([image]), [np.zeros(1, np.int64)], 2)
        found = samples.listed(id_keys(ids), np.empty((2, 1, 0), np.int64))
        expected = [k for k, name in enumerate(ids) if key(9, image, name, 1) <= int(0.3 * 2**64)]
        assert found.rows[found.marks & INSIDE > 0].tolist() == expected


def test_hashes_are_computed_once_however_few_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms, low = [], kernel.low
    monkeypatch.setattr(kernel, "low", lambda *given: (rooms.append(given[-5]), low(*given)))
    keys = np.random.default_rng(0).integers(2**63, size=3_000_000, dtype=np.uint64)
    samples = SomeSamples(
        replace(PLAN, among=1e-4), id_keys([f"i{k}" for k in range(40)]), [np.zeros(1, np.int64)] * 40, 2
    )
    listed = samples.listed(keys, np.empty((2, 40, 0), np.int64))
    assert len({id(rows) for rows in rooms}) == 1
    assert (listed.marks & OF_UNIFORM).sum() == 40 * PLAN.uniform

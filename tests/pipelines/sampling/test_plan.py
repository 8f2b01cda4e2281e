"""The sampler: what it keeps, against an obvious reference, and that its weights estimate without bias."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.sampling.plan import Kept, Plan, Samples, id_keys, image_seeds, keep, reason_names, windows_of
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import ShardsParams, validated
from tests.pipelines.sampling.test_offering import WORD, tie

PLAN = Plan((0.0, -1.0), (10.0, 1.0), top=5, width=0.25, stride=0.125, per_window=2, uniform=6, seed=3)


def setting(
    n_images: int = 3, n: int = 200, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray], np.ndarray]:
    """Keys, own captions and two measures' values, one skewed towards 0 and one with many ties."""
    random = np.random.default_rng(seed)
    values = np.stack(
        [np.minimum(10, random.exponential(1.5, (n_images, n))), random.integers(-10, 11, (n_images, n)) / 10]
    ).astype(np.float32)
    images, captions = id_keys([f"i{k}" for k in range(n_images)]), id_keys([f"c{k}" for k in range(n)])
    return images, captions, [np.arange(2) + 2 * k for k in range(n_images)], values


def row(kept: Kept, i: int) -> slice:
    return slice(kept.ptr[i], kept.ptr[i + 1])


def best_of(plan: Plan, image: int, values: np.ndarray) -> list[int]:
    """The captions of the highest values, equal ones by what docs/shards.md says."""
    hashes = [tie(plan.seed, f"i{image}", f"c{c}") for c in range(len(values))]
    return sorted(range(len(values)), key=lambda c: (-values[c], hashes[c]))[: plan.top]


def test_halves_of_a_hash_decide_together() -> None:
    """Captions of one value whose hashes agree in the upper half: however they come, the lower half decides."""
    keys = id_keys([f"c{k}" for k in range(6)])
    values = np.zeros((1, 1, 6), np.float32)
    plan = Plan((0.0,), (1.0,), top=3, width=1.0, stride=1.0, per_window=0, uniform=0, seed=0)
    hashes = np.array([5, 3, 9, 1, 7, 2], np.uint64) + np.uint64(77 << 32)
    image = id_keys(["image"])
    keys = np.array([unmixed(int(h)) for h in hashes], np.uint64) - image_seeds(0, image)
    for order in np.random.default_rng(0).permuted(np.tile(np.arange(6), (10, 1)), axis=1):
        for cut in (3, 6):
            samples = Samples(plan, image, [np.array([], np.int64)], 1)
            for first, part in ((0, order[:cut]), (cut, order[cut:])):
                if len(part):
                    samples.offer(first, keys[part], np.ascontiguousarray(values[:, :, part]))
            assert set(order[samples.kept(6).caption]) == {1, 3, 5}


def unmixed(x: int) -> int:
    """What `splitmix` makes this of."""
    x ^= x >> 31 ^ x >> 62
    x = x * pow(0x94D049BB133111EB, -1, WORD) % WORD
    x ^= x >> 27 ^ x >> 54
    x = x * pow(0xBF58476D1CE4E5B9, -1, WORD) % WORD
    return x ^ x >> 30 ^ x >> 60


def test_own_and_top_are_kept_with_certainty() -> None:
    images, captions, own, values = setting()
    kept = keep(PLAN, images, captions, own, values)
    names = reason_names(["a", "b"])
    for i in range(3):
        rows, reasons, weight = kept.caption[row(kept, i)], kept.reasons[row(kept, i)], kept.weight[row(kept, i)]
        assert np.array_equal(rows, np.unique(rows))
        assert set(rows[reasons & 1 > 0]) == set(own[i])
        for m, name in enumerate(["a", "b"]):
            best = best_of(PLAN, i, values[m, i])
            bit = names.index(f"top_{name}")
            assert set(rows[reasons >> bit & 1 > 0]) == set(best)
        assert (weight[reasons & 0b010101 > 0] == 1).all()


def test_each_window_gives_its_share() -> None:
    images, captions, own, values = setting()
    kept = keep(PLAN, images, captions, own, values)
    for m in range(2):
        windows = PLAN.windows(m)
        assert len(windows) == 7
        for i in range(3):
            chosen = kept.caption[row(kept, i)][kept.reasons[row(kept, i)] >> (3 + 2 * m) & 1 > 0]
            for lower, upper in windows:
                inside = np.flatnonzero((values[m, i] >= lower) & (values[m, i] < upper))
                assert np.isin(chosen, inside).sum() >= min(PLAN.per_window, len(inside))


def test_weights_are_inverse_probabilities() -> None:
    """Without chance reasons but windows and uniform: 1 - prod(1 - n / N) over the samples a pair is eligible for."""
    images, captions, own, values = setting(1)
    kept = keep(PLAN, images, captions, own, values)
    for c, reasons, weight in zip(kept.caption, kept.reasons, kept.weight, strict=True):
        missed = 1 - PLAN.uniform / 200
        for m in range(2):
            for lower, upper in PLAN.windows(m):
                if lower <= values[m, 0, c] < upper:
                    members = ((values[m, 0] >= lower) & (values[m, 0] < upper)).sum()
                    missed *= 1 - min(1, PLAN.per_window / members)
        expected = 1.0 if reasons & 0b010101 else 1 / (1 - missed)
        assert weight == pytest.approx(expected)


def test_means_over_all_pairs_are_estimated_without_bias() -> None:
    """Over 3,000 seeds the average estimate of each measure's mean, and of the number of captions, is the truth
    within four standard errors."""
    images, captions, own, values = setting(1)
    estimates = []
    for seed in range(3000):
        kept = keep(replace(PLAN, seed=seed), images, captions, own, values)
        estimates.append([kept.weight.sum(), *(values[:, 0, kept.caption] * kept.weight).sum(axis=1)])
    estimates = np.array(estimates) / 200
    truth = [1, *values[:, 0].mean(axis=1)]
    error = estimates.std(axis=0) / np.sqrt(len(estimates))
    assert (np.abs(estimates.mean(axis=0) - truth) < 4 * error).all(), (estimates.mean(axis=0), truth, error)


def test_a_row_depends_on_its_ids_alone() -> None:
    """Not on the other images of the block, nor on the order of the captions."""
    images, captions, own, values = setting()
    kept = keep(PLAN, images, captions, own, values)
    alone = keep(PLAN, images[1:2], captions, own[1:2], np.ascontiguousarray(values[:, 1:2]))
    assert np.array_equal(alone.caption, kept.caption[row(kept, 1)])
    order = np.random.default_rng(1).permutation(200)
    back = np.argsort(order)
    shuffled = keep(PLAN, images, captions[order], [back[o] for o in own], np.ascontiguousarray(values[:, :, order]))
    assert set(order[shuffled.caption[row(shuffled, 0)]]) == set(kept.caption[row(kept, 0)])


def test_another_seed_draws_others() -> None:
    images, captions, own, values = setting()
    one, other = (keep(replace(PLAN, seed=s), images, captions, own, values) for s in (0, 1))
    assert not np.array_equal(one.caption, other.caption)


@given(st.integers(1, 40), st.integers(0, 50), st.integers(0, 5), st.integers(0, 50), st.sampled_from([1.0, 0.5, 0.3]))
@settings(max_examples=50, deadline=None)
def test_more_asked_for_than_there_is(n: int, top: int, per_window: int, uniform: int, width: float) -> None:
    images, captions, own, values = setting(2, n + 4)
    plan = replace(PLAN, top=top, per_window=per_window, uniform=uniform, width=width, stride=width / 2)
    kept = keep(plan, images, captions, own, values)
    assert len(kept.caption) == kept.ptr[-1]
    assert (kept.weight >= 1).all()
    if uniform >= n + 4:
        assert len(kept.caption) == 2 * (n + 4)
        assert (kept.weight == 1).all()


def test_values_at_and_beyond_the_bounds() -> None:
    images, captions, own, _ = setting(1, 8)
    edge = np.array([0, 10, -1e-6, 10.00001, 2.5, 1.25, 9.999999, 5], np.float32)
    values = np.stack([edge, edge / 10])[:, None, :]
    kept = keep(replace(PLAN, top=0, uniform=0, per_window=8), images, captions, own, np.ascontiguousarray(values))
    assert len(kept.caption) == 8
    assert (kept.weight == 1).all()


@pytest.mark.parametrize("cut", [1, 4, 2048])
@given(zeros=st.lists(st.sampled_from([0.0, -0.0, -1.0]), min_size=8, max_size=8), seed=st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_chunks_keep_what_all_captions_together_keep(cut: int, zeros: list[float], seed: int) -> None:
    """0.0 and -0.0 are equal values, of which the hash decides, wherever the captions are cut."""
    n = cut + len(zeros)
    images, captions, own, _ = setting(1, n)
    values = np.full((2, 1, n), -1, np.float32)
    values[:, 0, :4] = -0.0
    values[:, 0, -len(zeros) :] = np.array(zeros, np.float32)
    plan = replace(PLAN, low=(-1.0, -1.0), high=(1.0, 1.0), top=4, uniform=0, per_window=0, seed=seed)
    together = keep(plan, images, captions, own, values)
    chunks = Samples(plan, images, own, 2)
    chunks.offer(0, captions[:cut], np.ascontiguousarray(values[:, :, :cut]))
    chunks.offer(cut, captions[cut:], np.ascontiguousarray(values[:, :, cut:]))
    apart = chunks.kept(n)
    assert np.array_equal(apart.caption, together.caption) and np.array_equal(apart.reasons, together.reasons)
    assert set(best_of(plan, 0, values[0, 0])) <= set(together.caption)


ACCEPTED = [
    {"uniform": 1, "windows": {"width": 0.1, "stride": 1.0}},
    {"uniform": 1, "windows": {"per_window": 0}},
    {"uniform": 0, "windows": {"width": 0.1, "stride": 0.1, "per_window": 2}},
    {"uniform": 0, "windows": {"width": 0.3, "stride": 0.07, "per_window": 1}, "top": 0},
    {"uniform": 3, "windows": {"width": 0.2, "stride": 0.6}, "top": 0},
    {"uniform": 0, "windows": {"width": 1.0, "stride": 1.0, "per_window": 1}, "top": 0},
]


def plan_of(params: ShardsParams, seed: int = 0) -> Plan:
    w = params.windows
    return Plan(
        (0.0, -1.0), (10.0, 1.0), params.top, w.width, w.stride, w.per_window, uniform=params.uniform, seed=seed
    )


@pytest.mark.parametrize("given", ACCEPTED, ids=str)
def test_the_expected_sum_of_weights_is_the_number_of_captions(given: dict) -> None:
    """Of plans at the edge of what is accepted, over 500 seeds, within four standard errors."""
    params = ShardsParams.model_validate({"top": 3, **given})
    images, captions, own, values = setting(1, 80)
    sums = [
        keep(plan_of(params, seed), images, captions, own, values).weight.sum() for seed in range(500)
    ]  # fmt: skip
    assert abs(np.mean(sums) - 80) <= 4 * np.std(sums) / np.sqrt(len(sums)) + 1e-9, (np.mean(sums), np.std(sums))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"uniform": 0, "windows": {"width": 0.1, "stride": 0.2}}, "stride 0.2 above width 0.1"),
        ({"uniform": 0, "windows": {"per_window": 0}}, "no windows"),
    ],
)
def test_a_plan_that_leaves_pairs_without_a_chance_is_refused(given: dict, why: str) -> None:
    with pytest.raises(InputError, match=f"uniform 0 with {why} leaves pairs without a chance.*set shards.uniform"):
        validated(ShardsParams, given)


@given(
    st.floats(0.01, 1), st.floats(0.01, 1), st.floats(-10, 10, width=32), st.floats(0.015625, 20, width=32),
    st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_windows_without_gaps_hold_every_number(width: float, share: float, low: float, span: float, seed: int) -> None:
    """Also the float32 numbers at their bounds, where a bound computed in two ways may differ by a rounding."""
    stride = width if seed % 2 else width * share
    plan = replace(PLAN, low=(low,), high=(low + span,), width=width, stride=stride)
    windows = windows_of(plan.windows(0)[None])
    lower, upper = windows.lower[0, :-1], windows.upper[0, :-1]
    edges = np.concatenate([lower[1:], upper[:-1]])
    near = np.concatenate([edges, np.nextafter(edges, np.float32(-np.inf)), np.nextafter(edges, np.float32(np.inf))])
    values = np.concatenate([near, np.random.default_rng(seed).uniform(low, low + span, 50).astype(np.float32)])
    assert ((values[:, None] >= lower) & (values[:, None] < upper)).any(axis=1).all()

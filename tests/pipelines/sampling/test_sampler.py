"""The sampler: what it keeps, against the rule written out, and that its weights estimate without
bias."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.kernels import id_keys
from capgrade.measures.base import Fill
from capgrade.pipelines.sampling import sampler
from capgrade.pipelines.sampling.sampler import KnownValues, Plan, Sampler
from capgrade.pipelines.stages.shards import ShardsParams
from capgrade.schemas.block import validated
from capgrade.schemas.errors import InputError
from capgrade.schemas.pairs import PairLists
from tests.pipelines.sampling.brute_force import samples_of

PLAN = Plan(
    (0.0, -1.0), (10.0, 1.0), top=5, width=0.25, stride=0.125, per_window=2, uniform=6, seed=3
)


class InBlocks(KnownValues):
    """It has blocks, and pairs of other values, which are nobody's then."""

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        return super().pairs(images, captions) + 1

    def filler(self, images: np.ndarray, start: int) -> Fill:
        raise NotImplementedError


def values_of(
    random: np.random.Generator, kind: str, plan: Plan, m: int, shape: tuple[int, int]
) -> np.ndarray:
    """float32: continuous values; few different ones, zeros of both signs among them; those at and
    beside the edges of windows, and beyond the measure's range; or nearly all of one cell, with
    infinite ones."""
    low, span = plan.low[m], plan.high[m] - plan.low[m]
    if kind == "skewed":
        return (low + span * np.minimum(1, random.exponential(0.03, shape))).astype(np.float32)
    if kind == "ties":
        return random.choice(np.array([0.0, -0.0, 0.1, 0.25, 0.3, 0.5], np.float32), shape)
    edges = plan.windows(m).ravel()
    edges = np.append(edges[np.isfinite(edges)], low)
    near = np.concatenate([edges, edges - 5e-6 * span]).astype(np.float32)
    near = np.concatenate(
        [near, np.nextafter(near, np.float32(-99)), np.nextafter(near, np.float32(99))]
    )
    return random.choice(np.append(near, np.float32([low - 0.5, low + span + 0.5])), shape)


def keep(plan: Plan, images: np.ndarray, captions: np.ndarray, own: list, values: np.ndarray):
    return sampler.keep(plan, images, captions, own, named(values))


def named(measures: Iterable) -> dict[str, Any]:
    """Values or measures by a name."""
    return {f"m{k}": one for k, one in enumerate(measures)}


def values_in(kept: PairLists) -> np.ndarray:
    """float32 [measures, kept]."""
    return np.stack(list(kept.values.values()))


def same(kept: PairLists, other: PairLists) -> bool:
    columns = ("start", "caption", "weight", "reasons")
    equal = all(np.array_equal(getattr(kept, one), getattr(other, one)) for one in columns)
    return equal and np.array_equal(values_in(kept), values_in(other), equal_nan=True)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["skewed", "ties", "edges"]), min_size=1, max_size=3),
    st.sampled_from(
        [(0.1, 0.05), (0.2, 0.2), (0.1, 0.3), (0.35, 0.07), (0.01, 0.005), (1.0, 1.0), (0.6, 0.4)]
    ),
    st.sampled_from([(5, 2, 6), (0, 4, 0), (40, 0, 3), (3, 1, 70)]),
    st.sampled_from([1, 2, 17, 300, 600]),
    st.sampled_from([1.0, 1.0, 0.4, 0.05]),
    st.sampled_from([KnownValues, InBlocks]),
    st.integers(0, 2**32),
)
def test_what_is_kept_is_what_the_rule_says(
    kinds: list[str],
    widths: tuple[float, float],
    rooms: tuple[int, int, int],
    n: int,
    among: float,
    kind_of_measure: type[KnownValues],
    seed: int,
) -> None:
    """However many images are looked at together, and in whatever order the captions stand;
    measures with blocks or without."""
    random, images = np.random.default_rng(seed), min(3, n)
    low, high = (-1.0, 0.0, 0.0)[: len(kinds)], (1.0, 1.0, 10.0)[: len(kinds)]
    plan = Plan(low, high, rooms[0], *widths, rooms[1], rooms[2], seed=seed, among=among)
    values = np.stack(
        [values_of(random, kind, plan, m, (images, n)) for m, kind in enumerate(kinds)]
    )
    ids = [f"c{k}" for k in range(n)]
    own = np.sort(random.permutation(n)[: 2 * images] if n > 5 else np.arange(n))
    ptr = np.linspace(0, len(own), images + 1).astype(int)
    measures = named(kind_of_measure(one) for one in values)
    names = id_keys([f"i{k}" for k in range(images)])
    kept = Sampler(plan, measures, names, id_keys(ids), ptr, own).sample(np.arange(images))
    for i in range(images):
        here = slice(kept.start[i], kept.start[i + 1])
        rule = samples_of(plan, f"i{i}", id_keys(ids), own[ptr[i] : ptr[i + 1]], values[:, i])
        assert np.array_equal(kept.caption[here], rule.captions) and np.array_equal(
            kept.reasons[here], rule.reasons
        )
        np.testing.assert_allclose(kept.weight[here], rule.weight, rtol=1e-9)
        assert np.array_equal(values_in(kept)[:, here], values[:, i, rule.captions])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "MEMORY", 1)
        assert same(
            Sampler(plan, measures, names, id_keys(ids), ptr, own).sample(np.arange(images)), kept
        )
    order = random.permutation(n)
    back = np.argsort(order)
    shuffled = named(kind_of_measure(one[:, order]) for one in values)
    other = Sampler(plan, shuffled, names, id_keys(ids)[order], ptr, back[own]).sample(
        np.arange(images)
    )
    again = np.lexsort((order[other.caption], np.repeat(np.arange(images), np.diff(other.start))))
    assert np.array_equal(order[other.caption][again], kept.caption) and np.array_equal(
        other.start, kept.start
    )
    assert np.array_equal(other.reasons[again], kept.reasons) and np.array_equal(
        values_in(other)[:, again], values_in(kept)
    )
    assert np.array_equal(other.weight[again], kept.weight)


class OfPairs(KnownValues):
    """Of which only single pairs may be asked for."""

    def score(self, images: np.ndarray, captions: np.ndarray | None = None) -> np.ndarray:
        raise AssertionError("all pairs were scored")


def test_without_a_top_only_what_was_drawn_is_scored() -> None:
    image_keys, caption_keys, own, values = setting()
    plan = replace(PLAN, top=0, among=0.1)
    ptr, rows = np.append(0, np.cumsum([len(one) for one in own])), np.concatenate(own)
    drawn = Sampler(
        plan, named(OfPairs(one) for one in values), image_keys, caption_keys, ptr, rows
    ).sample(np.arange(3))
    assert same(drawn, keep(plan, image_keys, caption_keys, own, values))


def setting(
    n_images: int = 3, n: int = 200, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray], np.ndarray]:
    """Keys, own captions and two measures' values, one skewed towards 0 and one with many ties."""
    random = np.random.default_rng(seed)
    values = np.stack(
        [
            np.minimum(10, random.exponential(1.5, (n_images, n))),
            random.integers(-10, 11, (n_images, n)) / 10,
        ]
    ).astype(np.float32)
    images = id_keys([f"i{k}" for k in range(n_images)])
    captions = id_keys([f"c{k}" for k in range(n)])
    return images, captions, [np.arange(2) + 2 * k for k in range(n_images)], values


@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, among=0.3), replace(PLAN, top=0, among=0.3)])
def test_nan_is_refused(plan: Plan) -> None:
    images, captions, own, values = setting()
    values[1, 2, own[2][0]] = np.nan
    with pytest.raises(
        ValueError, match="NaN among the values of measure 2, KnownValues, of images 0 to 2"
    ):
        keep(plan, images, captions, own, values)


@dataclass(frozen=True)
class OfSome(OfPairs):
    """Which scores the pairs of a mask, bool [images, captions], alone."""

    mask: np.ndarray

    def scored(self, images: np.ndarray) -> np.ndarray:
        return np.flatnonzero(self.mask[images])


@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, among=0.3), replace(PLAN, top=0, among=0.1)])
def test_of_a_measure_of_some_pairs_all_that_it_scores_is_kept(plan: Plan) -> None:
    """With weight 1, so that their weights add up to what it scores; all else is as without it."""
    images, captions, own, values = setting()
    random = np.random.default_rng(1)
    mask, third = random.random((2, *values.shape[1:]), np.float32)
    mask = mask < 0.08
    for image, rows in enumerate(own):
        mask[image, rows] = True
    ptr, rows = np.append(0, np.cumsum([len(one) for one in own])), np.concatenate(own)
    measures = named([*(KnownValues(one) for one in values), OfSome(third, mask)])
    bounds = {"low": (*plan.low, 0.0), "high": (*plan.high, 1.0)}
    some = replace(plan, **bounds, partial=frozenset([2]))
    found = Sampler(some, measures, images, captions, ptr, rows).sample(np.arange(3))
    without = keep(plan, images, captions, own, values)
    for i in range(3):
        here, before = (slice(one.start[i], one.start[i + 1]) for one in (found, without))
        caption, earlier = found.caption[here], without.caption[before]
        assert np.array_equal(caption, np.union1d(earlier, np.flatnonzero(mask[i])))
        known = mask[i, caption]
        assert np.array_equal(found.reasons[here] >> 6, known.astype(int))
        known_before = mask[i, earlier]
        kept = np.isin(caption, earlier)
        assert np.array_equal(found.reasons[here][kept] & 63, without.reasons[before])
        assert not (found.reasons[here][~kept] & 63).any()
        assert (found.weight[here][known] == 1).all()
        assert np.array_equal(found.weight[here][~known], without.weight[before][~known_before])
        expected = np.where(known, third[i, caption], np.float32(np.nan))
        np.testing.assert_array_equal(values_in(found)[2, here], expected)
        assert np.array_equal(values_in(found)[:2, here], values[:, i, caption])
    assert (~mask).any() and (found.weight > 1).any()


def test_infinite_values_are_beyond_all_windows() -> None:
    images, captions, own, values = setting(1, 600)
    values[0, 0, ::50], values[1, 0, ::40], values[1, 0, 1::40] = np.inf, -np.inf, np.inf
    kept = keep(PLAN, images, captions, own, values)
    rule = samples_of(PLAN, "i0", captions, own[0], values[:, 0])
    assert np.array_equal(kept.caption, rule.captions) and np.array_equal(
        kept.reasons, rule.reasons
    )


def test_windows_that_may_give_more_than_there_is_give_all() -> None:
    images, captions, own, values = setting(1, 80)
    kept = keep(replace(PLAN, per_window=2**53), images, captions, own, values)
    assert kept.caption.tolist() == list(range(80)) and (kept.weight == 1).all()


ACCEPTED = [
    {"uniform": 6, "windows": {"width": 0.25, "stride": 0.125, "per_window": 2}},
    {"uniform": 1, "windows": {"width": 0.1, "stride": 1.0}},
    {"uniform": 1, "windows": {"per_window": 0}},
    {"uniform": 0, "windows": {"width": 0.1, "stride": 0.1, "per_window": 2}},
    {"uniform": 0, "windows": {"width": 0.3, "stride": 0.07, "per_window": 1}, "top": 0},
    {"uniform": 3, "windows": {"width": 0.2, "stride": 0.6}, "top": 0},
    {"uniform": 0, "windows": {"width": 1.0, "stride": 1.0, "per_window": 1}, "top": 0},
    {"uniform": 0, "windows": {"width": 0.25, "stride": 0.125, "per_window": 2, "among": 0.3}},
    {"uniform": 6, "windows": {"width": 0.25, "stride": 0.125, "per_window": 2, "among": 0.1}},
]  # fmt: skip


@pytest.mark.parametrize("given", ACCEPTED, ids=str)
def test_sums_over_all_captions_are_estimated_without_bias(given: dict) -> None:
    """Of 1 and of each measure's values, over 1,000 seeds, within four standard errors; of plans at
    the edge of what is accepted. Without the weights they would not be."""
    params = ShardsParams.model_validate({"top": 3, **given})
    among = given["windows"].get("among", 1.0)
    images, captions, own, values = setting(1, 80)
    w, sums, unweighted = params.windows, [], []
    plan = Plan(
        (0.0, -1.0),
        (10.0, 1.0),
        params.top,
        w.width,
        w.stride,
        w.per_window,
        params.uniform,
        0,
        among,
    )
    for seed in range(1000):
        kept = keep(replace(plan, seed=seed), images, captions, own, values)
        sums.append([kept.weight.sum(), *(values[:, 0, kept.caption] * kept.weight).sum(axis=1)])
        unweighted.append(len(kept.caption))
    truth, error = [80, *values[:, 0].sum(axis=1)], np.std(sums, axis=0) / np.sqrt(len(sums))
    assert (np.abs(np.mean(sums, axis=0) - truth) <= 4 * error + 1e-4).all(), (
        np.mean(sums, axis=0),
        truth,
        error,
    )
    assert np.mean(unweighted) < 80 - 4 * error[0]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"uniform": 0, "windows": {"width": 0.1, "stride": 0.2}}, "stride 0.2 above width 0.1"),
        ({"uniform": 0, "windows": {"per_window": 0}}, "no windows"),
    ],
)
def test_a_plan_that_leaves_pairs_without_a_chance_is_refused(given: dict, why: str) -> None:
    with pytest.raises(
        InputError, match=f"uniform 0 with {why} leaves pairs without a chance.*set shards.uniform"
    ):
        validated(ShardsParams, given)


@given(
    st.floats(0.01, 1), st.floats(0.01, 1), st.floats(-10, 10, width=32), st.floats(0.015625, 20, width=32),
    st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_windows_without_gaps_hold_every_number(
    width: float, share: float, low: float, span: float, seed: int
) -> None:
    """Also those at their bounds, where a bound computed in two ways may differ by a rounding."""
    stride = width if seed % 2 else width * share
    plan = replace(PLAN, low=(low,), high=(low + span,), width=width, stride=stride)
    windows = plan.windows(0)
    edges = np.concatenate([windows[1:, 0], windows[:-1, 1]])
    ends = [low, low + span, np.nextafter(low, -np.inf), np.nextafter(low + span, np.inf)]
    values = np.concatenate(
        [edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf), ends]
    )
    last = np.searchsorted(windows[:, 0], values, side="right") - 1  # that begins there or before
    assert (
        (np.diff(windows, axis=0) >= 0).all()
        and (last >= 0).all()
        and (values < windows[last, 1]).all()
    )

"""What is kept of chunks of captions, against the definition in docs/shards.md, written out in Python's own numbers."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.sampling.plan import Plan, Samples, id_keys

WORD, GOLDEN = 2**64, 0x9E3779B97F4A7C15
IDS = [f"c{k}" for k in range(2600)]


def digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def splitmix(x: int) -> int:
    """Steele, Lea and Flood 2014, `mix64variant13`: the finaliser of splitmix64."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB % WORD
    return x ^ x >> 31


def seed_of(seed: int, image: str, caption: str) -> int:
    """Where a pair's generator starts."""
    return splitmix(digest(image) ^ digest(f"seed {seed}")) + digest(caption)


def tie(seed: int, image: str, caption: str) -> int:
    """What decides between captions of the same relevance."""
    return splitmix(seed_of(seed, image, caption) % WORD)


def key(seed: int, image: str, caption: str, number: int) -> int:
    """Key `number` of a pair: 15 bits of a lane of a word, and 49 of a hash of the word and the number."""
    pair = seed_of(seed, image, caption)
    word = splitmix((pair + (number // 4 + 1) * GOLDEN) % WORD)
    lane = word >> 16 * (number % 4) & 0x7FFF
    return lane << 49 | splitmix((word + (number + 1) * GOLDEN) % WORD) >> 15


def most_together(plan: Plan, measures: int) -> int:
    """How many windows of a measure hold a value, at most: those that hold the first float32 of one."""
    most = 1
    for m in range(measures):
        windows = plan.windows(m)
        for lower in windows[1:, 0]:
            value = np.float32(lower)
            value = value if value >= lower else np.nextafter(value, np.float32(np.inf))
            most = max(most, int(((windows[:, 0] <= value) & (value < windows[:, 1])).sum()))
    return most


def chosen(plan: Plan, image: str, ids: list[str], own: list[int], values: np.ndarray) -> tuple[dict, dict]:
    """By caption that the image keeps, its reasons and its weight. values [measures, captions]."""
    n, reasons, missed = len(ids), dict.fromkeys(own, 1), [1 - min(1, plan.uniform / len(ids))] * len(ids)

    def draw(rows: list[int], size: int, number: int, bit: int) -> None:
        for c in sorted(rows, key=lambda c: key(plan.seed, image, ids[c], number))[:size]:
            reasons[c] = reasons.get(c, 0) | bit

    draw(list(range(n)), plan.uniform, 0, 2)
    together = most_together(plan, len(values))
    for m, row in enumerate(values.astype(float).tolist()):
        for c in sorted(range(n), key=lambda c: (-row[c], tie(plan.seed, image, ids[c])))[: plan.top]:
            reasons[c] = reasons.get(c, 0) | 4 << 2 * m
        for w, (lower, upper) in enumerate(plan.windows(m).tolist()):
            inside = [c for c in range(n) if lower <= row[c] < upper]
            draw(inside, plan.per_window, 2 + m * together + w % together, 8 << 2 * m)
            for c in inside:
                missed[c] *= 1 - min(1, plan.per_window / len(inside))
    certain = 1 | sum(4 << 2 * m for m in range(len(values)))
    return reasons, {c: 1.0 if bits & certain else 1 / (1 - missed[c]) for c, bits in reasons.items()}


def drawn(random: np.random.Generator, kind: str, plan: Plan, m: int, n: int) -> np.ndarray:
    """float32 [n]: continuous values; few different ones, zeros of both signs among them; or those at and beside the
    bounds of windows, and beyond the measure's range."""
    low, span = plan.low[m], plan.high[m] - plan.low[m]
    if kind == "skewed":
        return (low + span * np.minimum(1, random.exponential(0.03, n))).astype(np.float32)
    if kind == "ties":
        return random.choice(np.array([0.0, -0.0, 0.1, 0.25, 0.3, 0.5], np.float32), n)
    edges = plan.windows(m).ravel()
    near = edges[np.isfinite(edges)].astype(np.float32)
    near = np.concatenate([near, np.nextafter(near, np.float32(-9)), np.nextafter(near, np.float32(9))])
    return random.choice(np.concatenate([near, np.array([low - 0.5, low + span + 0.5], np.float32)]), n)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(["skewed", "ties", "bounds"]), min_size=1, max_size=3),
    st.sampled_from([(0.1, 0.05), (0.2, 0.2), (0.1, 0.3), (0.35, 0.07), (0.01, 0.005), (1.0, 1.0), (0.6, 0.4)]),
    st.sampled_from([(5, 2, 6), (0, 4, 0), (40, 0, 3), (3, 1, 70)]),
    st.sampled_from([1, 17, 1024, 1100, 2600]),
    st.integers(0, 2**32),
)
def test_what_is_kept_is_what_the_definition_says(
    kinds: list[str], windows: tuple[float, float], rooms: tuple[int, int, int], n: int, seed: int
) -> None:
    random, measures = np.random.default_rng(seed), len(kinds)
    low, high = (-1.0, 0.0, 0.0)[:measures], (1.0, 1.0, 10.0)[:measures]
    plan = Plan(low, high, rooms[0], *windows, rooms[1], rooms[2], seed=seed)
    values = np.stack([drawn(random, kind, plan, m, n) for m, kind in enumerate(kinds)])
    own, cut = sorted(random.choice(n, min(n, 3), replace=False).tolist()), int(random.integers(0, n))
    check(plan, values, own, cut)


@pytest.mark.parametrize(("width", "stride"), [(0.35, 0.1), (0.6, 0.4), (0.25, 0.1), (0.2, 0.1)])
def test_values_of_a_slice_in_a_small_part_of_the_range(width: float, stride: float) -> None:
    """Such as lie between the end of a window and the next beginning of one."""
    random = np.random.default_rng(0)
    plan = Plan((-1.0,), (1.0,), 2, width, stride, 3, 2, seed=0)
    for middle in np.arange(-0.95, 1, 0.1):
        values = np.concatenate([random.uniform(-1, 1, 1024), random.normal(middle, 0.01, 1576)])
        check(plan, values.astype(np.float32)[None], [0], 1024)


def check(plan: Plan, values: np.ndarray, own: list[int], cut: int) -> None:
    """values [measures, captions] of one image, offered in two chunks."""
    n, values = values.shape[1], values[:, None]
    samples, keys = Samples(plan, id_keys(["image"]), [np.array(own)], len(values)), id_keys(IDS[:n])
    for a, b in ((0, cut), (cut, n)):
        if a < b:
            samples.offer(a, keys[a:b], np.ascontiguousarray(values[:, :, a:b]))
    kept = samples.kept(n)
    reasons, weight = chosen(plan, "image", IDS[:n], own, values[:, 0])
    assert dict(zip(kept.caption.tolist(), kept.reasons.tolist(), strict=True)) == reasons
    np.testing.assert_allclose(kept.weight, [weight[c] for c in kept.caption.tolist()], rtol=1e-9)
    assert np.array_equal(kept.values, values[:, 0, kept.caption])
    held = [[((lo <= row) & (row < up)).sum() for lo, up in plan.windows(m)] for m, row in enumerate(values[:, 0])]
    assert np.array_equal(samples.members[0], held)


def test_nan_is_refused() -> None:
    plan = Plan((0.0,), (1.0,), 5, 0.1, 0.05, 2, 6, 0)
    for at in (0, 700, 1500):
        values = np.full((1, 2, 1501), 0.25, np.float32)
        values[0, 1, at] = np.nan
        with pytest.raises(ValueError, match="NaN among the values of captions 7 to 1507"):
            Samples(plan, id_keys(["a", "b"]), [np.array([], int)] * 2, 1).offer(7, id_keys(IDS[:1501]), values)


def test_nan_is_refused_where_most_values_are_high() -> None:
    """In the highest cells, above which there is nothing."""
    plan = Plan((0.0,), (1.0,), 5, 0.1, 0.05, 4, 6, 0)
    values = np.random.default_rng(0).uniform(0.7, 1, (1, 1, 12_000)).astype(np.float32)
    samples, keys = Samples(plan, id_keys(["image"]), [np.array([], int)], 1), id_keys([f"c{k}" for k in range(12_000)])
    samples.offer(0, keys[:6000], np.ascontiguousarray(values[:, :, :6000]))
    values[0, 0, 11_000] = np.nan
    with pytest.raises(ValueError, match="NaN among the values of captions 6000 to 11999"):
        samples.offer(6000, keys[6000:], np.ascontiguousarray(values[:, :, 6000:]))


def test_infinite_values_where_most_values_are_high() -> None:
    """They are above the highest window, though the highest cells are not rare."""
    random, plan = np.random.default_rng(0), Plan((0.0,), (1.0,), 5, 0.1, 0.05, 4, 6, 0)
    values = random.uniform(0.7, 1, (1, 2600)).astype(np.float32)
    values[0, ::50] = np.inf  # more than the top holds
    check(plan, values, [0], 1024)


def test_the_least_negative_values_are_below_zero() -> None:
    """Times the inverse of a wide window they are rounded to zero."""
    random, plan = np.random.default_rng(0), Plan((-40.0,), (40.0,), 5, 0.1, 0.05, 4, 6, 0)
    values = random.normal(0, 8, (1, 2600)).astype(np.float32)
    values[0, 2000:2400] = -1e-45
    check(plan, values, [0], 1024)


def test_many_slices_of_values_that_pile_up() -> None:
    """So many that most are in a core, with others around it and rare ones, infinite ones among these."""
    random, n = np.random.default_rng(1), 12_000
    plan = Plan((0.0, 0.0, -1.0), (10.0, 1.0, 1.0), 20, 0.1, 0.05, 4, 20, seed=4)
    zeros = np.where(random.random(n) < 0.97, 0, random.exponential(0.6, n))
    values = np.stack([zeros, random.beta(4, 14, n), np.clip(random.normal(0.1, 0.12, n), -1, 1)]).astype(np.float32)
    values[0, 9000], values[1, 9500], values[2, 100] = np.inf, -np.inf, -np.inf
    values[2, ::40] = -0.0  # at an edge, as 0.0 is
    ids, cut = [f"c{k}" for k in range(n)], 7001
    samples, keys = Samples(plan, id_keys(["image"]), [np.array([5])], 3), id_keys(ids)
    for a, b in ((0, cut), (cut, n)):
        samples.offer(a, keys[a:b], np.ascontiguousarray(values[:, None, a:b]))
    kept = samples.kept(n)
    reasons, weight = chosen(plan, "image", ids, [5], values)
    assert dict(zip(kept.caption.tolist(), kept.reasons.tolist(), strict=True)) == reasons
    np.testing.assert_allclose(kept.weight, [weight[c] for c in kept.caption.tolist()], rtol=1e-9)
    held = [[((lo <= row) & (row < up)).sum() for lo, up in plan.windows(m)] for m, row in enumerate(values)]
    assert np.array_equal(samples.members[0], held)

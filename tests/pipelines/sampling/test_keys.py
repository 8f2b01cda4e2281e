"""Keys of pairs: uniform, and independent of one another, as samples and weights take them to be."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from capgrade.pipelines.sampling.keys import ANY, LANES, key_below, word
from capgrade.pipelines.sampling.plan import Plan, id_keys, key_numbers, windows_of
from capgrade.schemas.bits import GOLDEN, mix
from capgrade.schemas.compiled import njit
from capgrade.schemas.ties import mix_all
from tests.pipelines.sampling.test_offering import key

NUMBERS = 10


@njit
def keys_of(seeds, numbers):
    """uint64 [numbers, pairs]: every key."""
    out = np.empty((numbers, seeds.shape[0]), np.uint64)
    for k in range(seeds.shape[0]):
        for number in range(numbers):
            out[number, k] = key_below(word(seeds[k], number // LANES), number, ANY)
    return out


def seeds(image: str, captions: int, seed: int = 0) -> np.ndarray:
    base = mix_all(id_keys([image]) ^ id_keys([f"seed {seed}"]))
    return base + id_keys([f"c{k}" for k in range(captions)])


@pytest.fixture(scope="module")
def drawn() -> np.ndarray:
    """Of two images, side by side, and numbers of both."""
    return np.concatenate([keys_of(seeds(image, 300_000), NUMBERS) for image in ("i0", "i1")])


def test_keys_are_those_that_are_written_down() -> None:
    found = keys_of(seeds("image", 50, 7), NUMBERS)
    for number in range(NUMBERS):
        assert found[number].tolist() == [key(7, "image", f"c{k}", number) for k in range(50)]


def test_every_key_is_uniform(drawn: np.ndarray) -> None:
    """By the highest 10 bits, the 10 below those of the lane, and the lowest 10: 60 tests."""
    for shift in (54, 39, 0):
        for one in drawn:
            counts = np.bincount((one >> np.uint64(shift) & np.uint64(1023)).astype(np.int64), minlength=1024)
            assert stats.chisquare(counts).pvalue > 1e-5


def test_keys_of_a_pair_and_of_two_images_are_independent(drawn: np.ndarray) -> None:
    """Every two of them: in the highest 4 bits; and how often both are among the lowest 1 %, as in two windows."""
    high, low = (drawn >> np.uint64(60)).astype(np.int64), drawn < np.uint64(2**64 // 100)
    chance = stats.binom(drawn.shape[1], float(np.float64(2**64 // 100) / 2**64) ** 2)
    for one, other in combinations(range(len(drawn)), 2):
        table = np.bincount(16 * high[one] + high[other], minlength=256).reshape(16, 16)
        assert stats.chi2_contingency(table).pvalue > 1e-6, (one, other)
        both = int((low[one] & low[other]).sum())
        assert min(chance.cdf(both), chance.sf(both - 1)) > 1e-6, (one, other)


def test_a_lane_and_the_rest_of_its_key_are_independent(drawn: np.ndarray) -> None:
    """So are the rests of two keys of a word, and the lanes of a key and of another's rest."""
    for one in range(4):
        for other in range(4):
            lane, rest = drawn[one] >> np.uint64(60), drawn[other] >> np.uint64(45) & np.uint64(15)
            table = np.bincount((np.uint64(16) * lane + rest).astype(np.int64), minlength=256).reshape(16, 16)
            assert stats.chi2_contingency(table).pvalue > 1e-6, (one, other)


def test_keys_that_are_not_independent_would_be_seen(drawn: np.ndarray) -> None:
    same = np.where(np.arange(drawn.shape[1]) % 50 == 0, drawn[1], drawn[0])
    high = (drawn[1] >> np.uint64(60)).astype(np.int64), (same >> np.uint64(60)).astype(np.int64)
    assert stats.chi2_contingency(np.bincount(16 * high[0] + high[1], minlength=256).reshape(16, 16)).pvalue < 1e-6


def test_windows_that_share_a_key_share_no_value() -> None:
    random = np.random.default_rng(0)
    for _ in range(300):
        width, stride = random.uniform(0.02, 1), random.uniform(0.02, 1)
        plan = Plan((-1.0, 0.0), (1.0, 10.0), 3, width, stride, 2, 5, 0)
        windows = windows_of(np.stack([plan.windows(m) for m in range(2)]))
        keys = key_numbers(windows)
        assert (keys[:3] == 0).all() and (keys[3:] > 1).all()  # 1 is that of the share
        for m, of_windows in enumerate(keys[3:].reshape(2, -1)):
            for a, b in combinations(range(len(of_windows)), 2):
                if windows.lower[m, b] < windows.upper[m, a]:
                    assert of_windows[a] != of_windows[b]
        assert not set(keys[3:].reshape(2, -1)[0]) & set(keys[3:].reshape(2, -1)[1])


def test_eight_keys_in_two_words_with_the_default_windows_of_three_measures() -> None:
    plan = Plan((0.0, 0.0, -1.0), (10.0, 1.0, 1.0), 64, 0.1, 0.05, 4, 64, 0)
    keys = key_numbers(windows_of(np.stack([plan.windows(m) for m in range(3)])))
    assert sorted(set(keys.tolist())) == [0, 2, 3, 4, 5, 6, 7]


def test_words_are_the_numbers_of_splitmix64() -> None:
    state = 2**63 + 12345
    for number in range(5):
        state = (state + int(GOLDEN)) % 2**64
        assert word(np.uint64(2**63 + 12345), number) == mix(np.uint64(state))

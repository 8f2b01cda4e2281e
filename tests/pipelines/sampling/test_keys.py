"""Keys of pairs: uniform, and independent of one another, as samples and weights take them to be."""

from hashlib import blake2b
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from capgrade.bits import mix_all
from capgrade.pipelines.sampling.keys import ANY, GUARD, bound_of, keys_of, limit_for, mark
from capgrade.pipelines.sampling.plan import id_keys

NUMBERS = 10


def all_keys(pairs: np.ndarray) -> np.ndarray:
    """uint64 [numbers, pairs]."""
    return np.stack([keys_of(pairs, number) for number in range(NUMBERS)])


def seeds(image: str, captions: int, seed: int = 0) -> np.ndarray:
    base = mix_all(id_keys([image]) ^ id_keys([f"seed {seed}"]))
    return base + id_keys([f"c{k}" for k in range(captions)])


@pytest.fixture(scope="module")
def drawn() -> np.ndarray:
    """Of two images, side by side, and numbers of both."""
    return np.concatenate([all_keys(seeds(image, 300_000)) for image in ("i0", "i1")])


def test_ids_are_known_by_their_hash() -> None:
    """The rest of a key, and the draws by it, are written out in brute_force.py."""
    expected = [int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") for text in ("i0", "ü")]
    assert id_keys(["i0", "ü"]).tolist() == expected


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


@pytest.mark.parametrize("limit", [0, 1, 2**49, 2**49 + 1, 2**57, 2**64 - 1])
@pytest.mark.parametrize("number", [0, 3, 5])
def test_no_caption_with_a_key_below_its_limit_is_left_unmarked(limit: int, number: int) -> None:
    """And of those without, only those whose lane is that of the limit are marked."""
    pairs, limits = seeds("image", 5000), np.uint64(limit)
    marks = np.zeros(5000, np.uint64)
    mark(np.uint64(0), pairs, number // 4, np.full(5000, bound_of(limits, number)), marks)
    found = keys_of(pairs, number)
    assert (marks[found < limits] > 0).all() and (marks & ~GUARD == 0).all()
    assert np.array_equal(marks > 0, (found >> np.uint64(49) <= limits >> np.uint64(49)) & (limit > 0))


def test_enough_keys_are_below_a_limit() -> None:
    found = keys_of(seeds("image", 300_000), 0).reshape(100, 3000)
    for wanted in (1, 4, 64, 2000):
        assert (found < limit_for(wanted, 3000)).sum(axis=1).min() >= wanted
    assert limit_for(5, 5) == limit_for(1, 0) == ANY

"""Keys of pairs: uniform, and independent of one another, as samples and weights take them to
be."""

from hashlib import blake2b
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from capgrade.kernels import id_keys, mix_all, njit
from capgrade.pipelines.sampling.draws import key_of, take

NUMBERS = 10


@njit
def all_keys(pairs):
    """uint64 [numbers, pairs]."""
    found = np.empty((NUMBERS, pairs.shape[0]), np.uint64)
    for number in range(NUMBERS):
        for k in range(pairs.shape[0]):
            found[number, k] = key_of(pairs[k], number)
    return found


def seeds(image: str, captions: int, seed: int = 0) -> np.ndarray:
    base = mix_all(id_keys([image]) ^ id_keys([f"seed {seed}"]))
    return base + id_keys([f"c{k}" for k in range(captions)])


@pytest.fixture(scope="module")
def drawn() -> np.ndarray:
    """Of two images, side by side, and numbers of both."""
    return np.concatenate([all_keys(seeds(image, 300_000)) for image in ("i0", "i1")])


def test_ids_are_known_by_their_hash() -> None:
    """The rest of a key, and the draws by it, are written out in brute_force.py."""
    expected = [
        int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
        for text in ("i0", "ü")
    ]
    assert id_keys(["i0", "ü"]).tolist() == expected


def test_keys_are_numbers_of_splitmix64() -> None:
    """The first five of seed 1234567, as Rosetta Code and Java's SplittableRandom have them."""
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert all_keys(np.array([1234567], np.uint64))[:5, 0].tolist() == expected


def test_every_key_is_uniform(drawn: np.ndarray) -> None:
    """By the highest 10 bits, 10 in the middle, and the lowest 10: 60 tests."""
    for shift in (54, 39, 0):
        for one in drawn:
            counts = np.bincount(
                (one >> np.uint64(shift) & np.uint64(1023)).astype(np.int64), minlength=1024
            )
            assert stats.chisquare(counts).pvalue > 1e-5


def test_keys_of_a_pair_and_of_two_images_are_independent(drawn: np.ndarray) -> None:
    """Every two of them: in the highest 4 bits; and how often both are among the lowest 1 %, as in
    two windows."""
    high, low = (drawn >> np.uint64(60)).astype(np.int64), drawn < np.uint64(2**64 // 100)
    chance = stats.binom(drawn.shape[1], float(np.float64(2**64 // 100) / 2**64) ** 2)
    for one, other in combinations(range(len(drawn)), 2):
        table = np.bincount(16 * high[one] + high[other], minlength=256).reshape(16, 16)
        assert stats.chi2_contingency(table).pvalue > 1e-6, (one, other)
        both = int((low[one] & low[other]).sum())
        assert min(chance.cdf(both), chance.sf(both - 1)) > 1e-6, (one, other)


@pytest.mark.parametrize("size", [1, 2, 7, 64, 999, 1000])
def test_the_captions_of_the_lowest_keys_are_taken(size: int) -> None:
    """As sorting finds them; a heap of any size."""
    found = all_keys(seeds("image", 1000))[3]
    keys = np.empty(size, np.uint64)
    rows = np.empty(size, np.int64)
    taken = 0
    for row, key in enumerate(found):
        taken = take(key, row, keys, rows, taken)
    assert taken == size and set(rows.tolist()) == set(np.argsort(found)[:size].tolist())
    assert np.array_equal(found[rows], keys)

"""Words of 64 pairs at once show the keys that are below a limit."""

from __future__ import annotations

import numpy as np
import pytest

from capgrade.pipelines.sampling.keys import pack
from capgrade.pipelines.sampling.plan import id_keys
from capgrade.pipelines.sampling.words import low_words
from capgrade.schemas.bits import GOLDEN
from capgrade.schemas.compiled import njit
from tests.pipelines.sampling.test_keys import keys_of

BASE, CAPTIONS = np.uint64(123), id_keys([f"c{k}" for k in range(20_000 // 64 * 64)])


@njit
def of_both(base, captions, bounds):
    """uint64 [levels, captions / 64], by two words."""
    out = np.empty((2, captions.shape[0] // 64), np.uint64)
    for g in range(out.shape[1]):
        levels = ((bounds[0, 0], bounds[0, 1]), (bounds[1, 0], bounds[1, 1]))
        out[0, g], out[1, g] = low_words((base + GOLDEN, base + np.uint64(2) * GOLDEN), captions, 64 * g, levels)
    return out


@njit
def of_one(base, captions, bound):
    out = np.empty(captions.shape[0] // 64, np.uint64)
    for g in range(out.shape[0]):
        out[g] = low_words((base + GOLDEN,), captions, 64 * g, ((bound,),))[0]
    return out


def marked(bits: np.ndarray) -> np.ndarray:
    return np.unpackbits(bits.astype("<u8").view(np.uint8), bitorder="little") > 0


@pytest.mark.parametrize("limits", [[0, 0, 0, 0, 0], [1, 2**49, 2**49 + 1, 5, 0], [0, 0, 0, 0, 2**64 - 1],
                                    [2**64 - 1, 0, 0, 0, 0], [2**57, 2**58, 0, 2**61, 2**57]])  # fmt: skip
def test_no_caption_with_a_key_below_its_limit_is_left_unmarked(limits: list[int]) -> None:
    """And of those without, few are marked: whose lane is that of a limit."""
    low, bounds = np.array(limits, np.uint64), np.empty((2, 2), np.uint64)
    pack(np.zeros(5, np.uint64), bounds[0])
    pack(low, bounds[1])
    none, found = of_both(BASE, CAPTIONS, bounds)
    assert not none.any()
    keys = keys_of(BASE + CAPTIONS, 5)[:5]
    assert marked(found)[(keys < low[:, None]).any(axis=0)].all()
    near = ((keys >> np.uint64(49)) <= (low[:, None] >> np.uint64(49))) & (low[:, None] > 0)
    assert np.array_equal(marked(found), near.any(axis=0))
    assert np.array_equal(marked(of_one(BASE, CAPTIONS, bounds[1, 0])), near[:4].any(axis=0))

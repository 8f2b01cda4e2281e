"""Packed postings keep the rank, and a norm that is not below what it was."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.measures.tops import cider
from capgrade.pipelines.measures.tops.cider import CiderTops
from capgrade.pipelines.measures.tops.cider_packed import COARSEST, norm_of, packed_for, posting_of, rank_of
from capgrade.pipelines.measures.tops.find import EveryPair, finder
from tests.conftest import make_captions, random_sets
from tests.pipelines.measures.tops.same import ties
from tests.pipelines.measures.tops.test_cider_tops import fit


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=20), st.integers(1, 2**24), st.data())
def test_a_posting_keeps_its_rank_and_rounds_its_norm_up(norms: list[float], n_ranks: int, data: st.DataObject) -> None:
    packed = packed_for(np.array([*norms, 0.0]), n_ranks)
    rank = data.draw(st.integers(0, n_ranks - 1))
    for norm in np.array(norms, np.float32):
        posting = posting_of(rank, norm, *packed)
        assert rank_of(posting, packed.bits) == rank
        assert norm <= norm_of(posting, *packed) <= norm * (1 + 2.0 ** (packed.shift - 23))


def test_norms_lose_no_more_bits_than_ranks_need() -> None:
    """Of a million ranks, 12 bits are left: 17 octaves of norms have 128 codes each, 16 less one code 256."""
    assert packed_for(np.array([1.0, 2.0**17]), 10**6) == (12, 23 - 7, 0x3F800000)
    assert packed_for(np.array([1.0, 2.0**15]), 10**6).shift == 23 - 8


def test_captions_of_norms_too_far_apart_are_left_to_all_pairs() -> None:
    fitted = fit("cider", make_captions(random_sets(30, seed=6)))
    assert isinstance(finder(fitted, ties(fitted)), CiderTops)
    far = packed_for(np.array([1e-30, 1e30]), 2**26)
    assert far.shift > COARSEST
    with patch.object(cider, "packed_norms", lambda _: SimpleNamespace(shift=far.shift)):
        assert isinstance(finder(fitted, ties(fitted)), EveryPair)

"""Gains of 16 postings at once are those of each: the class's share times the norm, in whole units, rounded up."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.measures.tops.cider_gains import POSTINGS, gain_of, gains_of
from capgrade.pipelines.measures.tops.cider_index import BLOCK, index
from capgrade.schemas.compiled import njit
from tests.conftest import make_captions, random_sets
from tests.pipelines.measures.tops.test_cider_tops import fit

ANY = index(fit("cider", make_captions(random_sets(4, seed=1))))


@njit
def each_and_together(table, first, ix):
    each, together = np.empty(POSTINGS, np.uint16), np.empty(POSTINGS, np.uint16)
    for x in range(POSTINGS):
        each[x] = gain_of(table, ix.post[first + np.uint64(x)], ix)
    gains_of(table, first, ix, together)
    return each, together


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 5]), st.integers(0, 5),
    st.sampled_from([(6, 12, 17), (26, 0, 6), (16, 9, 10)]), st.booleans(),
)  # fmt: skip
def test_gains_are_share_times_norm_in_whole_units(seed, n_classes, first, sizes, of_few_captions) -> None:
    """Postings of one list, of a few blocks of some length classes; norms from 0.5 on, shares below 20,000 units."""
    rng, (bits, shift, rank_bits) = np.random.default_rng(seed), sizes
    base = int(np.float32(0.5).view(np.uint32))
    n_ranks = min(2**rank_bits, 4 * BLOCK if of_few_captions else 64 * BLOCK)
    class_of_block = np.sort(rng.integers(n_classes, size=n_ranks // BLOCK)).astype(np.uint8)
    ranks = np.sort(rng.permutation(n_ranks)[: POSTINGS + 5])
    codes = rng.integers(min(2**bits, 2**24 >> shift), size=len(ranks))
    table = rng.uniform(0, 20_000, n_classes).astype(np.float32)
    postings = (ranks << bits | codes).astype(np.uint32)
    here = {"post": postings, "class_of_block": class_of_block, "bits": bits, "shift": shift, "base": base}
    each, together = each_and_together(table, np.uint64(first), ANY._replace(**here))
    codes, ranks = codes[first : first + POSTINGS], ranks[first : first + POSTINGS]
    norms = ((codes << shift) + base).astype(np.uint32).view(np.float32)
    wanted = np.floor(table[class_of_block[ranks // BLOCK]] * norms).astype(np.int64) + 1
    assert each.tolist() == together.tolist() == wanted.tolist()

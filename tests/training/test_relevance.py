import numpy as np
import pytest
from conftest import make_captions
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.measures import choose
from schemas.errors import InputError
from schemas.params import MeasuresParams, RougeParams
from schemas.shards import pair_columns, read_shards
from trainer.relevance import ExactRelevance, SampledRelevance, _look_up, own_spread


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_look_up_is_a_dictionary(seed):
    rng = np.random.default_rng(seed)
    kept = [np.sort(rng.choice(30, rng.integers(0, 12), replace=False)) for _ in range(6)]
    table = {(i, c): float(rng.random()) for i, row in enumerate(kept) for c in row}
    start = np.concatenate([[0], np.cumsum([len(row) for row in kept])])
    stored = np.array(list(table.values()), np.float32)
    images, captions = rng.integers(0, 6, 7), rng.integers(0, 30, 9)
    values, known = np.zeros((7, 9), np.float32), np.zeros((7, 9), bool)
    _look_up(images, captions, start, np.concatenate(kept).astype(np.int32), stored, values, known)
    for a, i in enumerate(images):
        for b, c in enumerate(captions):
            assert known[a, b] == ((i, c) in table)
            assert values[a, b] == np.float32(table.get((i, c), 0))


def test_shards_give_what_they_hold_and_own_captions_always(small):
    shards = read_shards(small.data.shards)
    sampled = SampledRelevance(shards, small.train, "rouge_l")
    fitted = choose(["rouge_l"], MeasuresParams())["rouge_l"].fit(small.train)
    images, rows = np.arange(24), np.arange(48)
    values, known = sampled.block(images, rows)
    exact, everywhere = ExactRelevance(fitted).block(images, rows)
    assert everywhere is None
    assert known.sum() == sum(len(pair_columns(batch)[0]) for batch in shards.batches()) < known.size
    assert np.array_equal(values[known], exact[known])
    assert known[small.train.owner[rows], rows].all()


def test_shards_of_other_captions_and_an_unknown_measure_are_refused(small):
    shards = read_shards(small.data.shards)
    with pytest.raises(InputError, match="another captions table"):
        SampledRelevance(shards, make_captions([["a b"]]), "cider")
    with pytest.raises(InputError, match="no measure 'sbert'"):
        SampledRelevance(shards, small.train, "sbert")


def test_spread_of_own_captions():
    captions = make_captions([["a b c d", "a b c e"], ["x y", "x y"]])
    fitted = choose(["rouge_l"], MeasuresParams(rouge_l=RougeParams(self_reference="left_out")))["rouge_l"].fit(
        captions
    )
    values = [0.75, 0.75, 1.0, 1.0]
    assert own_spread(fitted, captions) == pytest.approx(np.std(values), abs=1e-6)

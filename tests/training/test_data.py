import numpy as np
import pytest
import torch
from conftest import make_captions, random_sets

from schemas.captions import read_captions
from schemas.errors import InputError
from schemas.region_store import RegionStore
from schemas.regions import write_regions
from schemas.shards import read_shards
from trainer.data import BatchPlan, DataShare, Pairs, ahead
from trainer.relevance import SampledRelevance
from trainer.text import Words


@pytest.fixture(scope="module")
def pairs(small):
    return Pairs(small.train, RegionStore(small.data.regions), Words.fit(small.train).encode(small.train))


def test_a_smaller_share_is_part_of_a_larger_one():
    captions = make_captions(random_sets(50, least=5))
    before: set = set()
    for share in (0.1, 0.3, 1.0):
        rows = DataShare(images=share, seed=3).rows(captions)
        assert len(np.unique(captions.owner[rows])) == round(50 * share)
        assert before <= set(rows)
        before = set(rows)
    assert len(before) == captions.n_captions
    some = set(DataShare(captions_per_image=2, seed=3).rows(captions))
    assert np.bincount(captions.owner[sorted(some)]).tolist() == [2] * 50
    assert some <= set(DataShare(captions_per_image=3, seed=3).rows(captions))
    assert set(DataShare(captions_per_image=2, seed=4).rows(captions)) != some


def test_a_batch_holds_what_the_tables_hold(pairs, small):
    rows = np.array([3, 40, 0, 17])
    batch = pairs.collate(rows)
    store = RegionStore(small.data.regions)
    for k, row in enumerate(rows):
        regions = store[small.train.image_ids[small.train.owner[row]]]
        n = len(regions)
        assert batch.images.mask[k].sum() == n
        assert np.array_equal(batch.images.features[k, :n], regions.features)
        assert not batch.images.features[k, n:].any()
        share = regions.boxes / np.array([100, 50, 100, 50])
        assert np.allclose(batch.images.boxes[k, :n, :4], share)
        assert np.allclose(batch.images.boxes[k, :n, 4], 25 * 40 / 5000)
        assert batch.texts.tokens[k][batch.texts.mask[k]].tolist() == pairs.tokens[row].tolist()
    assert batch.image_numbers.tolist() == small.train.owner[rows].tolist()


def test_parts_of_a_batch_are_padded_as_the_whole(pairs):
    rows = np.arange(0, 48, 4)
    whole, parts = pairs.collate(rows), [pairs.collate(rows, slice(a, a + 6)) for a in (0, 6)]
    for side in ("images", "texts"):
        for name, tensor in vars(getattr(whole, side)).items():
            assert torch.equal(tensor, torch.cat([getattr(getattr(p, side), name) for p in parts]))


def test_every_pair_once_an_epoch_and_the_same_again(pairs):
    plan = BatchPlan(pairs, 7, seed=5)
    first = plan.epoch(0)
    assert [len(rows) for rows in first] == [7] * 6
    assert len(set(np.concatenate(first))) == 42
    assert all(np.array_equal(a, b) for a, b in zip(first, BatchPlan(pairs, 7, seed=5).epoch(0), strict=True))
    assert not np.array_equal(np.concatenate(first), np.concatenate(plan.epoch(1)))
    assert not np.array_equal(np.concatenate(first), np.concatenate(BatchPlan(pairs, 7, seed=6).epoch(0)))


def test_seeded_batches_hold_relevant_captions_of_other_images(pairs, small):
    sampled = SampledRelevance(read_shards(small.data.shards), small.train, "cider")

    def graded(plan):
        found = []
        for rows in (rows for epoch in range(10) for rows in plan.epoch(epoch)):
            values, known = sampled.block(small.train.owner[rows], rows)
            other = small.train.owner[rows][:, None] != small.train.owner[rows][None, :]
            found.append((values * known * other).sum())
        return sum(found)

    seeded = BatchPlan(pairs, 8, "seeded", seed=0, partners=sampled)
    for rows in seeded.epoch(0):
        assert len(set(rows)) == 8
    assert all(np.array_equal(a, b) for a, b in zip(seeded.epoch(3), seeded.epoch(3), strict=True))
    assert graded(seeded) > 1.03 * graded(BatchPlan(pairs, 8, seed=0))


def test_what_cannot_be_batched_is_refused(pairs, small, tmp_path):
    with pytest.raises(InputError, match="a batch of 100 from 48 pairs"):
        BatchPlan(pairs, 100)
    with pytest.raises(InputError, match="seeded batches need"):
        BatchPlan(pairs, 8, "seeded")
    store = RegionStore(small.data.regions)
    write_regions(tmp_path, [store[k] for k in range(5)], dtype="float32")
    captions = read_captions(small.data.captions, "train")
    with pytest.raises(InputError, match="no regions of image 'train-i5', 19 such of 24"):
        Pairs(captions, RegionStore(tmp_path), pairs.tokens)


def test_batches_made_ahead_keep_their_order_and_errors(pairs):
    rows = [np.arange(k, k + 3) for k in range(20)]
    assert [batch.caption_rows[0] for batch in ahead(pairs.collate, rows)] == list(range(20))
    stopped = ahead(pairs.collate, rows)
    next(stopped)
    stopped.close()
    with pytest.raises(IndexError):
        list(ahead(pairs.collate, [np.array([0]), np.array([999])]))

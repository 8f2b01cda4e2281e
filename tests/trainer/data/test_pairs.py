"""Which pairs make a batch, and what is in it."""

import dataclasses
import threading

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.labels import Labels
from capgrade.labels.batches import BatchPlan
from capgrade.processes import Process
from capgrade.schemas.captions import SCHEMA
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import RegionStore, write_regions
from capgrade.trainer.data.pairs import SplitPairs, prefetch, sample_rows
from capgrade.trainer.data.relevance import LookedUp, find_neighbours
from capgrade.trainer.data.text import Vocabulary
from tests.conftest import make_captions, random_sets


@pytest.fixture(scope="module")
def pairs(small) -> SplitPairs:
    store, captions = RegionStore(small.data.regions), small.train
    return SplitPairs(captions, store, Vocabulary.fit(captions).encode(captions))


@pytest.fixture(scope="module")
def sampled(small) -> LookedUp:
    return LookedUp(
        Labels.load(small.sampled.shards, captions=small.data.captions), "rouge_l", "mask"
    )


def plan(
    pairs: SplitPairs, size: int, labels: LookedUp | None = None, seed: int = 0, **options: bool
) -> BatchPlan:
    beside = None if labels is None else find_neighbours(pairs.captions, pairs.rows, labels)
    return BatchPlan(pairs.captions.owner, pairs.rows, size, seed, beside, **options)


@pytest.fixture(params=["random", "seeded"])
def company(request, sampled) -> LookedUp | None:
    return sampled if request.param == "seeded" else None


def some(pairs: SplitPairs, rows: np.ndarray) -> SplitPairs:
    return SplitPairs(pairs.captions, pairs.store, pairs.tokens, rows)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 99), st.floats(0.01, 1), st.floats(0.01, 1), st.integers(1, 5), st.integers(1, 5)
)
def test_a_smaller_share_is_part_of_a_larger_one(seed, a, b, c, d):
    captions = make_captions(random_sets(30))
    small = sample_rows(captions, min(a, b), min(c, d), seed)
    large = sample_rows(captions, max(a, b), max(c, d), seed)
    assert set(small) <= set(large) <= set(sample_rows(captions, max(a, b), None, seed))
    assert (np.diff(small) > 0).all()
    turned = dataclasses.replace(captions, table=captions.table[::-1])
    # by ids, in whatever order they stand
    again = sample_rows(turned, min(a, b), min(c, d), seed)
    assert {turned.caption_ids[row] for row in again} == {
        captions.caption_ids[row] for row in small
    }
    kept, all_of = np.bincount(captions.owner[small], minlength=30), np.diff(captions.ref_ptr)
    assert (kept > 0).sum() == max(1, int(min(a, b) * 30 + 1e-9))
    assert all(n in (0, min(min(c, d), m)) for n, m in zip(kept, all_of, strict=True))


def test_a_batch_holds_what_the_tables_hold(pairs):
    rows = np.array([3, 40, 0, 17, 4, 9])
    batch = pairs.collate(rows)
    for k, row in enumerate(rows):
        regions = pairs.store[pairs.captions.image_ids[pairs.captions.owner[row]]]
        n = len(regions)
        assert batch.images.mask[k].tolist() == [j < n for j in range(batch.images.mask.shape[1])]
        assert np.array_equal(batch.images.features[k, :n], regions.features.astype(np.float32))
        for j, (x1, y1, x2, y2) in enumerate(regions.boxes):
            w, h = 100, 50
            share = (
                [x1 / w, y1 / h, x2 / w, y2 / h, (x2 - x1) * (y2 - y1) / (w * h)]
                if regions.width
                else [0] * 5
            )
            assert np.allclose(batch.images.boxes[k, j], share, atol=1e-6)
        assert not batch.images.features[k, n:].any() and not batch.images.boxes[k, n:].any()
        assert batch.texts.tokens[k][batch.texts.mask[k]].tolist() == pairs.tokens[row].tolist()
    assert batch.images.features.dtype == batch.images.boxes.dtype == torch.float32
    assert batch.image_numbers.tolist() == pairs.captions.owner[rows].tolist()
    part = pairs.collate(rows, Process(1, 3))  # the third and fourth pair
    assert part.image_numbers.tolist() == batch.image_numbers.tolist()
    for side, name in (
        ("images", "features"),
        ("images", "boxes"),
        ("images", "mask"),
        ("texts", "tokens"),
    ):
        assert torch.equal(
            getattr(getattr(part, side), name), getattr(getattr(batch, side), name)[2:4]
        )


def test_a_whole_split_comes_in_order(pairs):
    sizes = [int(n) for batch in pairs.image_batches(7) for n in batch.mask.sum(1)]
    assert sizes == [len(pairs.store[image_id]) for image_id in pairs.captions.image_ids]
    rows = [
        t[m].tolist()
        for batch in pairs.caption_batches(9)
        for t, m in zip(batch.tokens, batch.mask, strict=True)
    ]
    assert rows == [row.tolist() for row in pairs.tokens]


def test_what_fills_no_batch_is_a_smaller_one_or_left_out(pairs, company):
    """As a DataLoader with `drop_last` or without, but for a rest of one pair, which has no
    negative."""
    n = len(pairs.rows)
    whole, smaller = plan(pairs, 9, company), plan(pairs, 9, company, drop_last=False)
    for number in (0, 1):
        dropped, kept = whole.epoch(number), smaller.epoch(number)
        assert [len(rows) for rows in kept] == [9] * (n // 9) + [n % 9]
        assert all(np.array_equal(a, b) for a, b in zip(dropped, kept, strict=False)) and n % 9 > 1
        assert (
            len(kept) == smaller.batches_an_epoch and sum(map(len, kept)) == smaller.pairs_an_epoch
        )
        assert not set(kept[-1]) & set(np.concatenate(dropped)) or company
    one = plan(some(pairs, pairs.rows[:19]), 9, drop_last=False)
    assert [len(rows) for rows in one.epoch(0)] == [9, 9] and one.batches_an_epoch == 2
    images = plan(pairs, 9, unique_images=True, drop_last=False)
    rests = [rows for rows in images.epoch(0) if len(rows) < 9]
    assert len(rests) == len(images.rests) > 1
    assert all(len(set(pairs.captions.owner[rows])) == len(rows) for rows in rests)


@pytest.mark.parametrize("unique_images", [False, True])
def test_an_epoch_follows_from_its_number_and_the_seed(pairs, company, unique_images):
    first, again, other = (
        plan(pairs, 9, company, seed, unique_images=unique_images) for seed in (3, 3, 4)
    )
    first.epoch(0)
    for number in (4, 1):
        batches = again.epoch(number)
        assert len(batches) == again.batches_an_epoch
        assert all(
            np.array_equal(a, b) for a, b in zip(first.epoch(number)[2:], batches[2:], strict=True)
        )
        for rows in batches:
            assert len(rows) == len(set(rows)) == 9
            assert not unique_images or len(set(pairs.captions.owner[rows])) == 9
    assert not np.array_equal(first.epoch(0), first.epoch(1))
    assert not np.array_equal(first.epoch(0), other.epoch(0))


def test_what_cannot_be_batched_is_refused(pairs, sampled, tmp_path):
    with pytest.raises(InputError, match="a batch of 25 from 24 images"):
        plan(pairs, 25, unique_images=True)
    with pytest.raises(
        InputError, match="seeded batches need the sampled captions of each image -> give --shards"
    ):
        find_neighbours(pairs.captions, pairs.rows, None)
    with pytest.raises(InputError, match="no caption is sampled as relevant to another image"):
        find_neighbours(pairs.captions, np.array([0, 1]), sampled)
    write_regions(tmp_path, [pairs.store[k] for k in range(5)])
    with pytest.raises(
        InputError, match="no regions of 19 of the 24 images of split 'train': 'train-i5'"
    ):
        SplitPairs(pairs.captions, RegionStore(tmp_path), pairs.tokens)


def test_row_numbers_of_another_split_are_no_ids(pairs, tmp_path):
    """Precomputed features whose ids are 0, 1, ... in every split; ids that say more are looked up
    as they are."""
    table = pairs.captions.table.to_pydict()
    table["image_id"] = [name.removeprefix("train-i") for name in table["image_id"]]
    captions = dataclasses.replace(
        pairs.captions, table=pa.table(table, schema=SCHEMA), split="dev"
    )
    images = [pairs.store[k] for k in range(len(pairs.store))]
    numbered = [dataclasses.replace(regions, image_id=str(k)) for k, regions in enumerate(images)]
    for split, ids in (("dev", numbered), ("test", numbered), ("test", images)):
        write_regions(tmp_path / split / ids[0].image_id, ids, metadata={"split": split})
    assert (
        SplitPairs(captions, RegionStore(tmp_path / "dev" / "0"), pairs.tokens).store.metadata[
            "split"
        ]
        == "dev"
    )
    with pytest.raises(
        InputError,
        match="regions of split 'test' for captions of 'dev', and ids that are row numbers",
    ):
        SplitPairs(captions, RegionStore(tmp_path / "test" / "0"), pairs.tokens)
    SplitPairs(pairs.captions, RegionStore(tmp_path / "test" / "train-i0"), pairs.tokens)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_what_is_made_ahead_keeps_its_order_and_errors(workers):
    """So many threads work at once."""
    together = threading.Barrier(max(workers, 1), timeout=30)
    assert list(prefetch(lambda k: (together.wait(), k)[1], range(12), workers)) == list(range(12))
    made = prefetch([5, 6, 7, 8].__getitem__, range(5), workers)
    assert [next(made) for _ in range(4)] == [5, 6, 7, 8]
    with pytest.raises(IndexError):
        next(made)


def test_closing_early_stops_the_threads():
    begun: list[int] = []
    before = set(threading.enumerate())
    made = prefetch(lambda k: begun.append(k) or k, range(100), workers=2)
    next(made)
    made.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
    assert len(begun) <= 4
    assert set(threading.enumerate()) <= before


def test_closing_waits_for_no_thread() -> None:
    """The garbage collector may close it, under a lock that the thread needs to end."""
    begun, go_on = threading.Event(), threading.Event()
    late = threading.Timer(20, go_on.set)
    late.start()
    made = prefetch(lambda k: k and (begun.set(), go_on.wait()), range(3))
    assert next(made) == 0 and begun.wait(20)
    made.close()
    assert not go_on.is_set()
    late.cancel()
    go_on.set()

"""Relevance of batches beside dictionaries and loops."""

import numpy as np
import pytest

from capgrade.labels import Labels
from capgrade.labels.batches import Neighbours
from capgrade.labels.unsampled import Unknown
from capgrade.measures import choose
from capgrade.measures.params import MeasuresParams
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.shards import Shards, read_shards
from capgrade.trainer.data.pairs import sample_rows
from capgrade.trainer.data.relevance import (
    ExactRelevance,
    LookedUp,
    against_captions,
    learnt_from,
    own_spread,
)
from tests.conftest import call, make_captions, random_sets


@pytest.fixture
def sampled(small) -> tuple[Captions, Shards]:
    return small.train, read_shards(small.sampled.shards)


def looked_up(found: Shards, measure: str, unknown: Unknown = "estimate") -> LookedUp:
    labels = Labels.load(
        found.folder, measures=[measure], captions=found.folder.parent / "captions"
    )
    return LookedUp(labels, measure, unknown)


def dictionary(found: Shards, column: str) -> dict[tuple[int, int], float]:
    rows = [row for batch in found.batches() for row in batch.to_pylist()]
    return {(r["image"], c): v for r in rows for c, v in zip(r["captions"], r[column], strict=True)}


def test_partners_are_kept_for_the_measure_of_other_images_and_allowed(sampled):
    captions, found = sampled
    names = found.metadata["reasons"]
    allowed = np.arange(captions.n_captions) % 3 > 0
    neighbours = Neighbours.kept_for(looked_up(found, "rouge_l").labels, "rouge_l", allowed)
    start, partners = neighbours.start, neighbours.captions
    reasons = dictionary(found, "reasons")
    for i in range(captions.n_images):
        why = {
            c: {name for k, name in enumerate(names) if r >> k & 1}
            for (at, c), r in reasons.items()
            if at == i
        }
        wanted = {
            c
            for c, w in why.items()
            if w & {"top_rouge_l", "window_rouge_l"} and "own" not in w and allowed[c]
        }
        assert partners[start[i] : start[i + 1]].tolist() == sorted(wanted)
    assert len(partners)


@pytest.mark.parametrize("unknown", ["estimate", "bound"])
def test_a_loss_sees_every_pair_as_known_where_something_stands_for_it(sampled, unknown):
    captions, found = sampled
    relevance = looked_up(found, "cider", unknown)
    values, known, weights = relevance.block(np.arange(9), np.arange(0, captions.n_captions, 3))
    assert known is None and weights is None and (values > 0).any()
    table = dictionary(found, "cider")
    assert relevance.span == (min(table.values()), max(table.values()))


def test_dense_labels_are_looked_up_too(sampled, tmp_path):
    captions, found = sampled
    options = [
        "--captions",
        str(found.folder.parent / "captions"),
        "--split",
        "train",
        "--measures",
        "rouge_l",
    ]
    assert call("relevance", *options, "--out", str(tmp_path / "dense")) == 0
    dense = LookedUp(
        Labels.load(tmp_path / "dense", captions=found.folder.parent / "captions"),
        "rouge_l",
        "mask",
    )
    rows = np.arange(captions.n_captions)
    values, *others = dense.block(np.arange(captions.n_images), rows)
    assert others == [None, None] and dense.span == (values.min(), values.max())
    with pytest.raises(InputError, match="labels of every pair name no captions .* give shards"):
        Neighbours.kept_for(dense.labels, "rouge_l", rows >= 0)


def between(
    measure: str, captions: Captions, rows: np.ndarray, measures: MeasuresParams
) -> np.ndarray:
    """Relevance of a batch of these captions, each standing for its image."""
    relevance = ExactRelevance(
        choose([measure], measures)[measure], captions, between_captions=True
    )
    values, known, _ = relevance.block(captions.owner[rows], rows)
    assert known is None
    return values


@pytest.mark.parametrize("measure", ["cider", "rouge_l"])
@pytest.mark.parametrize("self_reference", ["included", "left_out"])
def test_relevance_between_captions_takes_each_as_the_only_reference(measure, self_reference):
    captions = make_captions(random_sets(12, seed=2, least=2))
    block = getattr(MeasuresParams(), measure).model_copy(update={"self_reference": self_reference})
    rows = np.array([0, 7, 3, 20, 3])
    found = between(measure, captions, rows, MeasuresParams(**{measure: block}))
    assert np.array_equal(found, found.T)
    if measure == "rouge_l":  # needs no corpus: each caption an image of its own
        alone = choose([measure], MeasuresParams())[measure].fit(
            make_captions([[text] for text in captions.texts])
        )
        one_way = alone.score(rows, rows)
        assert np.abs(found - (one_way + one_way.T) / 2).max() < 1e-6
    assert np.allclose(np.diag(found), 10 if measure == "cider" else 1, atol=1e-5)


@pytest.mark.parametrize("measure", ["cider", "tfidf_cosine", "rouge_l"])
def test_labels_are_of_the_captions_that_are_learnt_from(measure):
    """As many labels as if nothing else had ever been there, images that come in mixed order
    too."""
    sets = random_sets(12, seed=5, least=2)
    whole = make_captions(sets)
    order = np.random.default_rng(0).permutation(whole.n_captions)
    mixed = Captions(whole.table.take(order), "train", whole.tokenizer, "mixed")
    rows = sample_rows(mixed, 0.7, 1)
    alone = make_captions([[mixed.texts[r]] for r in rows])
    exact = ExactRelevance(choose([measure], MeasuresParams())[measure], mixed, rows)
    batch = rows[[3, 0, 5]]
    values, *_ = exact.block(mixed.owner[batch], batch)
    wanted = (
        choose([measure], MeasuresParams())[measure]
        .fit(alone)
        .score(np.array([3, 0, 5]), np.array([3, 0, 5]))
    )
    assert np.abs(values - wanted).max() < 1e-5
    every, *_ = ExactRelevance(choose([measure], MeasuresParams())[measure], mixed).block(
        mixed.owner[batch], batch
    )
    assert np.abs(values - every).max() > 0.01, "the other captions would have changed the labels"
    assert (
        learnt_from(mixed, rows).digest != mixed.digest
        and learnt_from(mixed, np.arange(len(order))) is mixed
    )


def test_spread_of_own_captions_two_by_two():
    captions = make_captions(random_sets(70, seed=1))  # more than are scored together
    fitted = choose(["rouge_l"], MeasuresParams())["rouge_l"].fit(captions)
    exact = against_captions(fitted)(np.arange(captions.n_captions))
    pairs = [
        (a, b)
        for a in range(captions.n_captions)
        for b in range(a)
        if captions.owner[a] == captions.owner[b]
    ]
    assert own_spread(fitted, captions) == pytest.approx(
        np.std([exact[p] for p in pairs]), abs=1e-6
    )
    lonely = make_captions([["a b"], ["c d"]])
    with pytest.raises(InputError, match="no image has two captions"):
        own_spread(choose(["rouge_l"], MeasuresParams())["rouge_l"].fit(lonely), lonely)


def test_an_imported_matrix_has_neither_side_alone(tmp_path):
    captions = make_captions([["a b", "a"], ["c d"]])
    np.save(tmp_path / "m.npy", np.eye(2, 3, dtype=np.float32))
    measures = MeasuresParams(imported={"mine": str(tmp_path / "m.npy")})
    exact = ExactRelevance(choose(["mine"], measures)["mine"], captions)
    assert exact.block(np.array([1]), np.array([1, 2]))[0].tolist() == [[1, 0]]
    with pytest.raises(InputError, match="an imported matrix has images and captions only"):
        ExactRelevance(choose(["mine"], measures)["mine"], captions, between_captions=True)

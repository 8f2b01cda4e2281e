"""Losses for the loops of open_clip: whose labels they take, and loaders with keys. Their values:
tests/peers."""

import copy
import pickle
from pathlib import Path

import pytest
import torch

from capgrade import Labels
from capgrade.losses import GradedClipLoss
from capgrade.schemas.errors import InputError

PAIRS = 8


@pytest.fixture(scope="module")
def labels(made: Path) -> Labels:
    return Labels.load(made / "relevance", captions=made / "captions")


@pytest.fixture
def loss(labels: Labels) -> GradedClipLoss:
    return GradedClipLoss(labels, "rouge_l", softness=0.2)


@pytest.fixture(scope="module")
def vectors() -> torch.Tensor:
    return torch.randn(2, PAIRS, 4, generator=torch.Generator().manual_seed(0))


def test_targets_follow_the_keys(labels, loss, vectors):
    """The loss of pairs in one order is that of the same pairs in another order."""
    keys, order = list(range(0, 5 * PAIRS, 5)), [3, 1, 0, 2, 7, 6, 5, 4]
    ids = [labels.caption_ids[keys[k]] for k in order]
    one, two, other = (float(loss(*x, 1.0, keys=k)) for x, k in (
        (vectors, keys), (vectors[:, order], ids), (vectors[:, order], keys)))  # fmt: skip
    assert one == pytest.approx(two, rel=1e-6) and one != pytest.approx(other, rel=1e-3)


def test_what_does_not_fit_is_refused(labels, loss, vectors):
    with pytest.raises(
        InputError, match="8 pairs, and the captions of 0 are known -> train on loss.keyed"
    ):
        loss(*vectors, 1.0)
    with pytest.raises(InputError, match="no 2 processes -> start them"):
        GradedClipLoss(labels, "cider", world_size=2)(*vectors, 1.0, keys=range(PAIRS))
    for option, message in (
        ({"margin": 0.2}, "has no option 'margin'"),
        ({"weight": 2.0}, "has no option 'weight'"),
        ({"temperature": 0.07}, "the temperature is the model's -> leave it out"),
    ):
        with pytest.raises(InputError, match=message):
            GradedClipLoss(labels, "cider", **option)


def test_a_loop_that_fetches_ahead_does_not_learn_from_the_next_batch_s_labels(
    labels, loss, vectors
):
    first = vectors[:, :4]
    batches = [(0, 0, labels.caption_ids[:4]), (0, 0, labels.caption_ids[4:8])]
    loader = loss.keyed(batches)
    ahead = iter(loader)
    next(ahead), next(ahead)
    with pytest.raises(
        InputError, match="8 pairs were fetched before the loss of 4 -> fetch a batch when"
    ):
        loss(*first, 1.0)
    for _ in loader:  # what the loop before left over does not count
        loss(*first, 1.0)
    for (*_, keys), _ in zip(
        batches, loader, strict=True
    ):  # keys that are given are those of what was fetched
        loss(*first, 1.0, keys=keys)
    loss(*first, 1.0)


def test_a_loop_that_never_asks_for_the_loss_is_told(labels, loss, vectors):
    """As open_clip 4's training loop does where `main.create_loss` is replaced."""
    loader = loss.keyed([(0, 0, labels.caption_ids[:4])] * 3)
    with pytest.raises(InputError, match="3 batches were fetched, and this loss was never asked"):
        for _ in loader:
            pass
    for _ in loader:
        loss(*vectors[:, :4], 1.0)
    next(iter(loader))  # a loop that is left says nothing


def test_batches_by_name_as_those_of_open_clip_4(labels, loss, vectors):
    keys = [labels.caption_ids[row] for row in (3, 0, 2, 1)]
    batches = [{"image": vectors[0, :4], "text": vectors[1, :4], "keys": keys}]
    for batch in loss.keyed(batches):
        assert set(batch) == {"image", "text"}
        value = loss(batch["image"], batch["text"], 1.0)
    assert value == loss(*vectors[:, :4], 1.0, keys=keys)
    with pytest.raises(InputError, match="a batch of image, text has no keys -> add the ids"):
        next(iter(loss.keyed([{"image": 0, "text": 0}])))


def test_a_loader_with_keys_may_be_copied_and_pickled(loss):
    loader = loss.keyed([("image", "text", [0])])
    loader.loader = torch.utils.data.DataLoader(range(3))
    for again in (copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        assert len(again) == 3 and again.batch_size == 1

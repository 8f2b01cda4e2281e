"""The share of active hinges of each loss that has some, against loops that list every hinge's cost."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.losses import LOSSES, ScoredBatch, Terms

SIZE = 6


def batch_of(seed: int) -> ScoredBatch:
    """Six pairs, each image once; some relevance is not known."""
    rng = np.random.default_rng(seed)
    own = np.eye(SIZE, dtype=bool)
    relevance = np.where(own, 1, rng.uniform(-0.5, 0.95, own.shape))
    tensors = rng.uniform(-1, 1, own.shape), own, relevance, own | (rng.random(own.shape) < 0.6)
    return ScoredBatch(*map(torch.from_numpy, tensors))


def queries(batch: ScoredBatch):
    """Of both directions: the pair's number, and its scores, relevance, and what is known."""
    S, R, K = (x.numpy() for x in (batch.scores, batch.relevance, batch.known))
    for i in range(SIZE):
        yield i, S[i], R[i], K[i]
        yield i, S[:, i], R[:, i], K[:, i]


def triplet(batch, negatives="hard"):
    for i, s, _, _ in queries(batch):
        costs = [0.2 + s[j] - s[i] for j in range(SIZE) if j != i]
        yield from [max(costs)] if negatives == "hard" else costs


def sam(batch, tau=10.0):
    S, R, K = (x.numpy() for x in (batch.scores, batch.relevance, batch.known))
    for i in range(SIZE):
        if others := [j for j in range(SIZE) if j != i and K[i, j]]:
            for s in (S[i], S[:, i]):  # both margins are by the positive image's captions
                n = max(others, key=lambda j: s[j])
                yield (R[i, i] - R[i, n]) / tau + s[n] - s[i]


def triplet_sn(batch):
    for i, s, r, k in queries(batch):
        if less := [math.exp(50 * s[j]) for j in range(SIZE) if k[j] and r[j] < r[i]]:
            yield math.log(sum(less)) / 50 - s[i] + 0.2


def kendall(batch):
    for _, s, r, k in queries(batch):
        known = np.flatnonzero(k)
        yield from (s[b] - s[a] for a in known for b in known if r[a] > r[b] + 0.2)


def kendall_windows(batch):
    for _, s, r, k in queries(batch):
        for low in (-1 + m * 0.1 for m in range(1, 19)):
            positive, negative = s[k & (r >= low + 0.2 - 1e-6)], s[k & (r <= low + 1e-6)]
            if len(positive) and len(negative):
                yield negative.max() - positive.min()


def ladder(batch):
    for i, s, r, k in queries(batch):
        for threshold, margin in ((math.inf, 0.2), (0.63, 0.01)):
            above = k & (r >= threshold) | (np.arange(SIZE) == i)
            if (below := k & ~above).any():
                yield margin + s[below].max() - s[above].min()


LOOPS = {
    "triplet": triplet, "sam": sam, "triplet_sn": triplet_sn, "kendall": kendall, "kendall_windows": kendall_windows,
    "ladder": ladder,
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_share_of_active_hinges_is_the_loops(name, seed):
    loss, batches = Terms([{"name": name}]), [batch_of(seed), batch_of(seed + 1)]
    for batch in batches:
        loss(batch)
    costs = np.array([cost for batch in batches for cost in LOOPS[name](batch)])
    found = loss.active_hinges()
    assert found == {f"active_{name}": pytest.approx((costs > 0).mean())}
    assert loss.active_hinges() == {}, "counted afresh"


def test_every_negative_of_a_sum_is_a_hinge():
    batch, loss = batch_of(0), Terms([{"name": "triplet", "negatives": "sum"}])
    loss(batch)
    costs = np.array(list(triplet(batch, "sum")))
    assert len(costs) == 2 * SIZE * (SIZE - 1)
    assert loss.active_hinges() == {"active_triplet": pytest.approx((costs > 0).mean())}


def test_sam_of_the_authors_has_a_hinge_for_each_image_and_each_caption():
    """Of two items the second least similar, by cost, is the own one or the other: S_ii - S_ii + a margin of 0 .. 1.
    Here each row's cost is 0 at the own item and less at the other, so the own one is chosen and the cost is 0."""
    scores, relevance = torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([[1.0, 0.5], [0.0, 1.0]])
    loss = Terms([{"name": "sam", "form": "authors"}])
    assert float(loss(ScoredBatch(scores, torch.eye(2) > 0, relevance))) == 0
    assert loss.active_hinges() == {"active_sam": 0.0}
    loss(ScoredBatch(1 - scores, torch.eye(2) > 0, relevance))
    assert loss.active_hinges()["active_sam"] > 0


def test_other_losses_have_no_hinges_and_two_terms_count_together():
    batch = batch_of(1)
    for name in LOSSES.keys() - LOOPS.keys() - {"centre", "classify", "captioning", "divergence"}:
        loss = Terms([{"name": name}])
        loss(batch)
        assert loss.active_hinges() == {}, name
    both = Terms([{"name": "triplet"}, {"name": "triplet", "negatives": "sum"}, {"name": "sam"}])
    both(batch)
    costs = np.array([*triplet(batch), *triplet(batch, "sum")])
    assert both.active_hinges() == {
        "active_triplet": pytest.approx((costs > 0).mean()),
        "active_sam": pytest.approx(np.mean([cost > 0 for cost in sam(batch)])),
    }


def test_no_hinge_at_all_is_none_active():
    loss = Terms([{"name": "sam"}])
    loss(ScoredBatch(torch.eye(2), torch.eye(2) > 0, torch.eye(2), torch.zeros(2, 2) > 0))
    assert loss.active_hinges() == {"active_sam": 0.0}

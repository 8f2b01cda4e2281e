"""Every loss against a loop that says what it is, on random batches with and without unknown relevance."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import InputError
from trainer.losses import LOSSES, make_loss, needs
from trainer.losses.base import ScoredBatch
from trainer.losses.daa import soft_ranks
from trainer.metrics import asp

GRADED = ["sam", "triplet_sn", "kendall", "kendall_windows", "daa", "ladder"]


def batch_of(seed, B=6, masked=False, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    scores = torch.tensor(rng.uniform(-1, 1, (B, B)), dtype=dtype)
    relevance = rng.uniform(-0.5, 0.95, (B, B))
    np.fill_diagonal(relevance, 1)
    known = rng.random((B, B)) < 0.6
    np.fill_diagonal(known, True)
    owner = rng.integers(0, max(1, B - 1), B)
    own = torch.tensor(owner[:, None] == owner[None, :])
    vectors = [torch.tensor(rng.normal(size=(B, 4)), dtype=dtype) for _ in range(4)]
    return ScoredBatch(
        scores, own, torch.tensor(relevance, dtype=dtype), torch.tensor(known) if masked else None,
        images=vectors[0], captions=vectors[1], image_logits=vectors[2], caption_logits=vectors[3],
        labels=torch.tensor(owner % 4),
    )  # fmt: skip


def ways(batch):
    """(scores, relevance, known, own) as nested lists, queries in rows, both directions."""
    known = torch.ones_like(batch.own) if batch.known is None else batch.known
    for turn in (False, True):
        yield [(x.T if turn else x).tolist() for x in (batch.scores, batch.relevance, known, batch.own)]


def loop_triplet(batch, margin=0.2, negatives="hard", spare_own=False):
    total = 0.0
    for S, _, _, own in ways(batch):
        for i in range(len(S)):
            others = [j for j in range(len(S)) if (not own[i][j] if spare_own else j != i)]
            costs = {j: max(0.0, margin + S[i][j] - S[i][i]) for j in others}
            if not others:
                continue
            if negatives == "sum":
                total += sum(costs.values())
            else:
                total += costs[(max if negatives == "hard" else min)(others, key=lambda j: S[i][j])]
    return total


def loop_sam(batch, tau=10.0, negatives="hard"):
    total = 0.0
    for S, R, known, _ in ways(batch):
        for i in range(len(S)):
            others = [j for j in range(len(S)) if j != i and known[i][j]]
            if others:
                j = (max if negatives == "hard" else min)(others, key=lambda j: S[i][j])
                total += max(0.0, (R[i][i] - R[i][j]) / tau + S[i][j] - S[i][i])
    return total


def loop_sam_authors(batch, tau=3.0, negatives="soft"):
    """Line by line what formulas of the authors' code say."""
    S, R, B = batch.scores.tolist(), batch.relevance.tolist(), len(batch.scores)

    def second(cost):
        order = sorted(range(B), key=lambda j: -cost[j] if negatives == "soft" else cost[j])
        return order[1]

    n = [second([S[i][j] - S[i][i] for j in range(B)]) for i in range(B)]
    k = [second([S[i][j] - S[j][j] for j in range(B)]) for i in range(B)]
    m1 = [min(1.0, (R[q][q] - R[q][k[q]]) / tau) for q in range(B)]
    m0 = [min(1.0, (R[q][q] - R[q][n[q]]) / tau) for q in range(B)]
    first = sum(max(0.0, S[i][n[i]] - S[i][i] + m1[n[i]]) for i in range(B))
    return first + sum(max(0.0, S[i][k[i]] - S[k[i]][k[i]] + m0[k[i]]) for i in range(B))


def loop_triplet_sn(batch, margin=0.2, gamma=50.0):
    total = 0.0
    for S, R, known, _ in ways(batch):
        for i in range(len(S)):
            some = [S[i][j] for j in range(len(S)) if known[i][j] and R[i][j] < 1 - 1e-6]
            if some:
                soft = math.log(sum(math.exp(gamma * (s - max(some))) for s in some)) / gamma + max(some)
                total += max(0.0, soft - S[i][i] + margin)
    return total


def loop_kendall(batch, alpha=0.2):
    total = 0.0
    for S, R, known, _ in ways(batch):
        B = range(len(S))
        total += sum(
            max(0.0, S[i][k] - S[i][j])
            for i in B for j in B for k in B
            if known[i][j] and known[i][k] and R[i][j] > R[i][k] + alpha
        )  # fmt: skip
    return total


def loop_windows(batch, alpha=0.2, beta=0.1):
    total, count = 0.0, round((2 - alpha) / beta)
    for S, R, known, _ in ways(batch):
        for i in range(len(S)):
            seen = [j for j in range(len(S)) if known[i][j]]
            for m in range(1, count + 1):
                low = -1 + m * beta
                positive = [S[i][j] for j in seen if R[i][j] >= low + alpha - 1e-6]
                negative = [S[i][j] for j in seen if R[i][j] <= low + 1e-6]
                if positive and negative:
                    total += max(0.0, max(negative) - min(positive)) / count
    return total


def loop_daa(batch, temperature=0.05, form="paper"):
    total = 0.0
    for S, R, known, _ in ways(batch):
        B = range(len(S))

        def rank(X, b, c, known=known, B=B):
            z = [((X[a][b] if form == "authors" else X[b][a]) - X[b][c]) / temperature for a in B]
            return 1 + sum(1 / (1 + math.exp(-max(-50, min(50, z[a])))) for a in B if a != c and known[b][a])

        pairs = [(rank(S, b, c), rank(R, b, c)) for b in B for c in B if known[b][c]]
        total += 1 - sum(min(p) / max(p) for p in pairs) / len(pairs)
    return total


def loop_ladder(batch, thresholds=(0.63,), margins=(0.2, 0.01), weights=(1.0, 0.25)):
    total = 0.0
    for S, R, known, _ in ways(batch):
        for i in range(len(S)):
            for threshold, margin, weight in zip((math.inf, *thresholds), margins, weights, strict=True):
                above = [j for j in range(len(S)) if j == i or (known[i][j] and R[i][j] >= threshold)]
                below = [j for j in range(len(S)) if j not in above and known[i][j]]
                if below:
                    total += weight * max(0.0, margin + max(S[i][j] for j in below) - min(S[i][j] for j in above))
    return total


def loop_info_nce(batch, temperature=0.05, targets="own", softness=0.1):
    total = 0.0
    for S, R, known, _ in ways(batch):
        B = len(S)
        for i in range(B):
            seen = [j for j in range(B) if targets == "own" or known[i][j] or j == i]
            log = math.log(sum(math.exp(S[i][j] / temperature) for j in seen))
            weight = {j: float(j == i) for j in seen}
            if targets == "relevance":
                sum_ = sum(math.exp(R[i][j] / softness) for j in seen)
                weight = {j: math.exp(R[i][j] / softness) / sum_ for j in seen}
            total += sum(weight[j] * (log - S[i][j] / temperature) for j in seen) / B
    return total / 2


CASES = [
    ("triplet", {}, loop_triplet),
    ("triplet", {"negatives": "soft", "margin": 0.4}, loop_triplet),
    ("triplet", {"negatives": "sum", "spare_own": True}, loop_triplet),
    ("sam", {}, loop_sam),
    ("sam", {"negatives": "soft", "tau": 2.0}, loop_sam),
    ("triplet_sn", {}, loop_triplet_sn),
    ("kendall", {}, loop_kendall),
    ("kendall_windows", {}, loop_windows),
    ("kendall_windows", {"alpha": 0.4, "beta": 0.2}, loop_windows),
    ("daa", {"temperature": 0.05}, loop_daa),
    ("ladder", {}, loop_ladder),
    ("ladder", {"thresholds": [0.7, 0.3], "margins": [0.2, 0.1, 0.05], "weights": [1.0, 0.5, 0.25]}, loop_ladder),
    ("info_nce", {}, loop_info_nce),
    ("info_nce", {"targets": "relevance"}, loop_info_nce),
]


@pytest.mark.parametrize(("name", "options", "loop"), CASES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 7), masked=st.booleans())
def test_a_loss_is_its_loop(name, options, loop, seed, size, masked):
    batch = batch_of(seed, size, masked)
    found = make_loss([{"name": name, **options}])(batch)
    assert float(found) == pytest.approx(loop(batch, **options), rel=2e-4, abs=2e-4)


@pytest.mark.parametrize(("name", "loop"), [("sam", loop_sam_authors), ("daa", loop_daa)])
@pytest.mark.parametrize("seed", range(5))
def test_authors_forms_are_their_loops(name, loop, seed):
    batch = batch_of(seed)
    options = {"tau": 3.0, "negatives": "soft"} if name == "sam" else {"temperature": 0.05}
    extra = {} if name == "sam" else {"form": "authors"}
    found = make_loss([{"name": name, "form": "authors", **options}])(batch)
    assert float(found) == pytest.approx(loop(batch, **options, **extra), rel=2e-4)


def test_centre_and_classes_by_hand():
    batch = batch_of(3)
    features = torch.cat([batch.images, batch.captions]).numpy()
    labels = np.tile(batch.labels.numpy(), 2)
    total = sum(0.5 * ((features[labels == c] - features[labels == c].mean(0)) ** 2).sum() for c in set(labels))
    assert float(make_loss([{"name": "centre"}])(batch)) == pytest.approx(total, rel=1e-4)
    logits = torch.cat([batch.image_logits, batch.caption_logits])
    wanted = -logits.log_softmax(1)[torch.arange(12), torch.tensor(labels)].mean()
    assert float(make_loss([{"name": "classify"}])(batch)) == pytest.approx(float(wanted), rel=1e-4)


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_are_finite_differences(name, masked):
    """In float32 as the losses compute, so with steps of 1e-2 where they are smooth enough."""
    options = {"temperature": 0.5} if name in ("daa", "smooth_ap", "info_nce") else {}
    options |= {"gamma": 5.0} if name == "triplet_sn" else {}
    batch = batch_of(11, 5, masked)
    wrt = {"centre": "images", "classify": "image_logits"}.get(name, "scores")
    loss = make_loss([{"name": name, **options}])

    def value(x):
        from dataclasses import replace

        return loss(replace(batch, **{wrt: x}))

    x = getattr(batch, wrt).clone().requires_grad_()
    value(x).backward()
    step = 1e-3
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            moved = torch.zeros_like(x)
            moved[i, j] = step
            numeric = float(value(x.detach() + moved) - value(x.detach() - moved)) / (2 * step)
            assert float(x.grad[i, j]) == pytest.approx(numeric, abs=6e-3 * max(1.0, abs(numeric)))


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_nothing_to_learn_from_is_zero_with_zero_gradient(name):
    rng = torch.Generator().manual_seed(0)
    scores = torch.rand(4, 4, generator=rng).requires_grad_()
    nothing = ScoredBatch(
        scores, torch.eye(4, dtype=torch.bool), torch.rand(4, 4, generator=rng), torch.zeros(4, 4, dtype=torch.bool),
        images=torch.zeros(4, 3), captions=torch.zeros(4, 3), image_logits=torch.zeros(4, 2),
        caption_logits=torch.zeros(4, 2), labels=torch.tensor([0, 1, 0, 1]),
    )  # fmt: skip
    loss = make_loss([{"name": name}])(nothing)
    assert torch.isfinite(loss)
    if name in GRADED and name != "daa":
        assert float(loss) == 0
    if loss.requires_grad:
        loss.backward()
        assert scores.grad is None or torch.isfinite(scores.grad).all()


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"sam", "triplet"}))
def test_the_order_of_a_batch_does_not_matter(name):
    batch, p = batch_of(7), torch.tensor([3, 0, 5, 1, 4, 2])
    moved = ScoredBatch(
        *(x[p][:, p] for x in (batch.scores, batch.own, batch.relevance)), None,
        images=batch.images[p], captions=batch.captions[p], image_logits=batch.image_logits[p],
        caption_logits=batch.caption_logits[p], labels=batch.labels[p],
    )  # fmt: skip
    loss = make_loss([{"name": name}])
    assert float(loss(moved)) == pytest.approx(float(loss(batch)), rel=1e-4)


def test_random_negatives_are_others_and_follow_the_generator():
    batch = batch_of(5, 20)
    loss = make_loss([{"name": "triplet", "negatives": "random", "margin": 3.0}])
    values = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        values.append(float(loss(batch)))
    assert values[0] == values[1] != values[2]
    least, most = (loop_triplet(batch, 3.0, kind) for kind in ("soft", "hard"))
    assert least < values[0] < most


def test_scores_in_the_order_of_relevance_cost_nothing():
    batch = batch_of(2)
    perfect = ScoredBatch(batch.relevance, batch.own, batch.relevance)
    for name in ("kendall", "kendall_windows"):
        assert float(make_loss([{"name": name}])(perfect)) == 0


def test_soft_asp_becomes_asp():
    batch = batch_of(4, 8)
    sharp = 1 - float(make_loss([{"name": "daa", "temperature": 1e-4}])(batch)) / 2
    scores, relevance = batch.scores.float().numpy(), batch.relevance.float().numpy()
    exact = (asp(scores, relevance).mean() + asp(scores.T, relevance.T).mean()) / 2
    assert sharp == pytest.approx(exact, abs=2e-3)


def test_soft_ranks_of_far_values_are_ranks():
    x = torch.tensor([[0.9, 0.1, 0.5]])
    assert soft_ranks(x, torch.ones(1, 3, dtype=torch.bool), 0.01)[0].tolist() == pytest.approx([1, 3, 2], abs=1e-6)


def test_bfloat16_scores_are_compared_in_float32():
    batch = batch_of(1, dtype=torch.float32)
    half = ScoredBatch(batch.scores.bfloat16(), batch.own, batch.relevance, labels=batch.labels)
    for name in ("triplet", *GRADED, "info_nce"):
        found = make_loss([{"name": name}])(half)
        rounded = ScoredBatch(half.scores.float(), batch.own, batch.relevance)
        assert float(found) == pytest.approx(float(make_loss([{"name": name}])(rounded)), rel=1e-4)


def test_terms_are_weighed_and_checked():
    batch = batch_of(0)
    one, two = make_loss([{"name": "triplet"}])(batch), make_loss([{"name": "kendall"}])(batch)
    both = make_loss([{"name": "triplet"}, {"name": "kendall", "weight": 0.5}])(batch)
    assert float(both) == pytest.approx(float(one) + 0.5 * float(two), rel=1e-5)
    assert needs([{"name": "triplet"}]) == frozenset()
    assert needs([{"name": "sam"}, {"name": "centre"}]) == {"relevance", "vectors"}
    assert needs([{"name": "info_nce"}]) == frozenset()
    assert needs([{"name": "info_nce", "targets": "relevance"}]) == {"relevance"}
    for term, message in (
        ({"name": "sma"}, "unknown loss 'sma'"),
        ({"name": "sam", "tua": 1}, "loss 'sam' has no option 'tua'"),
        ({"name": "sam", "negatives": "easy"}, "option 'negatives' of loss 'sam' is 'easy'"),
        ({"name": "triplet", "margin": "wide"}, "option 'margin' of loss 'triplet' is 'wide'"),
    ):
        with pytest.raises(InputError, match=message):
            make_loss([term])

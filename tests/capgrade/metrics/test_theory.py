"""Five similarity matrices whose scores theory knows: perfect, random, constant, reversed, anti-correlated."""

from __future__ import annotations

import numpy as np
import pytest

from capgrade.metrics import asp, collapse, semantic_map
from capgrade.metrics.base import Queries, own_positives
from capgrade.metrics.catalogue import metric, reduced, score_all

IMAGES, EACH = 60, 5
OWNER = np.repeat(np.arange(IMAGES), EACH)
RANDOM = np.random.default_rng(11)
# distinct labels, own captions on top: the order of a perfect model is unique and finds the own captions first
LABELS = RANDOM.random((IMAGES, IMAGES * EACH)) + 2.0 * (np.arange(IMAGES)[:, None] == OWNER)
CODES = (RANDOM.random((IMAGES, 12)) < 0.3).astype(np.uint8)
CODES[:, 0] = 1
N = IMAGES * EACH
NAMES = ["recall@1", "recall@10", "r@1", "r@10", "medr", "meanr", "map@r", "r_precision", "pmrp"]
NAMES += ["ncs@5", "ncs_other@5", "ncs_eq5@5", "ncs_authors@5", "ndcg@25", "ndcg_exp@25", "asp", "cs@10", "cs_tau_a@10"]
NAMES += ["kendall_tau_a", "kendall_tau_b", "sr@5(m=10)", "sr_soft@5(m=10)", "sr_other@5(m=10)"]


def scores(similarity):
    """Mean of every metric over the image queries."""
    lists = {"eccv": own_positives(np.arange(IMAGES), OWNER)}
    queries = Queries(similarity, np.arange(IMAGES), OWNER, {"": LABELS}, lists, (CODES, CODES[OWNER]))
    values = score_all(queries, [metric(name) for name in NAMES])
    return {name: reduced(name, found) for name, found in values.items()}


def test_perfect():
    found = scores(LABELS)
    whole = {"medr": 1, "meanr": 1, "r@1": 1 / EACH, "sr@5(m=10)": 0.5, "sr_other@5(m=10)": 0.5}
    top = np.sort(LABELS, axis=1)[:, ::-1][:, :10]
    whole["sr_soft@5(m=10)"] = (top[:, :5].sum(1) / top.sum(1)).mean()
    for name in NAMES:
        if name != "pmrp":  # not what these labels order by: test_perfect_for_classes
            assert found[name] == pytest.approx(whole.get(name, 1.0), abs=1e-9), name


def test_perfect_for_classes():
    """A model that orders by the number of differing classes is right at every zeta."""
    distance = (CODES[:, None] != CODES[OWNER][None]).sum(axis=2)
    assert scores(-distance.astype(np.float32))["pmrp"] == pytest.approx(1.0)


def chance():
    """What a random order scores in expectation, worked out without the metrics."""
    hit = 1 - np.prod([(N - EACH - t) / (N - t) for t in range(10)])  # any own in the first ten
    ideal = np.sort(LABELS, axis=1)[:, ::-1]
    discount = 1 / np.log2(np.arange(25) + 2)
    mean, gain = LABELS.mean(1), 2**LABELS - 1
    others = LABELS[OWNER[None] != np.arange(IMAGES)[:, None]].reshape(IMAGES, -1)
    ratio = np.minimum.outer(np.arange(1, N + 1), np.arange(1, N + 1)) / np.maximum.outer(
        np.arange(1, N + 1), np.arange(1, N + 1)
    )
    distance = (CODES[:, None] != CODES[OWNER][None]).sum(axis=2)
    rest = (EACH - 1) / (N - 1)
    average = sum(EACH / N * (1 + (r - 1) * rest) / r for r in range(1, EACH + 1)) / EACH
    return {
        "recall@1": EACH / N,
        "recall@10": hit,
        "r@1": 1 / N,
        "r@10": 10 / N,
        "medr": np.floor((N + 1) / (EACH + 1)),
        "meanr": (N + 1) / (EACH + 1),
        "map@r": average,
        "r_precision": EACH / N,
        "pmrp": np.mean([(distance <= zeta).mean() for zeta in (0, 1, 2)]),
        "ncs@5": (5 * mean / ideal[:, :5].sum(1)).mean(),
        "ncs_other@5": (5 * others.mean(1) / np.sort(others, axis=1)[:, -5:].sum(1)).mean(),
        "ncs_authors@5": (5 * others.mean(1) / np.sort(others, axis=1)[:, -5:].sum(1)).mean(),
        "ncs_eq5@5": 5 / N,
        "ndcg@25": (mean * discount.sum() / (ideal[:, :25] * discount).sum(1)).mean(),
        "ndcg_exp@25": (gain.mean(1) * discount.sum() / ((2 ** ideal[:, :25] - 1) * discount).sum(1)).mean(),
        "asp": ratio.mean(),
        "kendall_tau_a": 0.0,
        "kendall_tau_b": 0.0,
        "cs@10": 0.0,
        "cs_tau_a@10": 0.0,
        "sr@5(m=10)": 5 / N,
        "sr_soft@5(m=10)": 5 / N,
        "sr_other@5(m=10)": 5 / (N - EACH),
    }


def test_constant_scores_what_chance_scores():
    found, theory = scores(np.ones((IMAGES, N), np.float32)), chance()
    for name in NAMES:
        assert found[name] == pytest.approx(theory[name], abs=1e-9), name


def test_random_scores_what_chance_scores():
    """The mean of 60 random matrices, within four of its own standard errors."""
    random, theory = np.random.default_rng(5), chance()
    runs = [scores(random.random((IMAGES, N))) for _ in range(60)]
    for name in NAMES:
        values = np.array([run[name] for run in runs])
        if name != "medr":  # the median of 60 ranks is not a mean
            error = values.std(ddof=1) / np.sqrt(len(values))
            assert abs(values.mean() - theory[name]) < 4 * error + 1e-12, (name, values.mean(), theory[name])


@pytest.mark.parametrize("similarity", [-LABELS, 1 / LABELS], ids=["reversed", "anti-correlated"])
def test_reversed_and_anti_correlated(similarity):
    """The reverse of the labels, linearly or not: own captions last, every pair discordant."""
    found = scores(similarity)
    low, high = np.sort(LABELS, axis=1), np.sort(LABELS, axis=1)[:, ::-1]
    discount, places = 1 / np.log2(np.arange(25) + 2), np.arange(1, N + 1)
    theory = dict.fromkeys(NAMES, 0.0)
    theory |= {"medr": N - EACH + 1, "meanr": N - EACH + 1}
    theory |= {"kendall_tau_a": -1, "kendall_tau_b": -1, "cs@10": -1, "cs_tau_a@10": -1}
    theory["asp"] = (np.minimum(places, places[::-1]) / np.maximum(places, places[::-1])).mean()
    theory["ncs@5"] = (low[:, :5].sum(1) / high[:, :5].sum(1)).mean()
    others = np.sort(LABELS[OWNER[None] != np.arange(IMAGES)[:, None]].reshape(IMAGES, -1), axis=1)
    theory["ncs_other@5"] = theory["ncs_authors@5"] = (others[:, :5].sum(1) / others[:, -5:].sum(1)).mean()
    theory["ndcg@25"] = ((low[:, :25] * discount).sum(1) / (high[:, :25] * discount).sum(1)).mean()
    exponential = [(2 ** side[:, :25] - 1) * discount for side in (low, high)]
    theory["ndcg_exp@25"] = (exponential[0].sum(1) / exponential[1].sum(1)).mean()
    for name in NAMES:
        if name != "pmrp":
            assert found[name] == pytest.approx(theory[name], abs=1e-9), name


def test_reversed_for_classes_retrieves_no_match():
    """Furthest classes first: no match in the first R where the far ones are enough."""
    distance = (CODES[:, None] != CODES[OWNER][None]).sum(axis=2)
    near = [(distance <= zeta).mean(axis=1).max() for zeta in (0, 1, 2)]
    assert max(near) <= 0.5, "the test's codes leave more than half of the gallery within 2"
    assert scores(distance.astype(np.float32))["pmrp"] == 0.0


def test_asp_of_labels_with_themselves_is_one_only_without_ties():
    tied = np.round(LABELS, 1)
    assert asp(LABELS, LABELS) == pytest.approx(1.0) and (asp(tied, tied) < 1).all()


def test_semantic_map_rewards_collapse_and_says_so():
    """lambda@K of a constant cosine is that cosine; perfect 1; the check tells them apart."""
    constant = np.full((IMAGES, N), 0.99, np.float32)
    assert semantic_map(constant, k=5) == pytest.approx(0.99)
    assert collapse(constant).collapsed
    groups = {"query_group": np.arange(IMAGES), "candidate_group": OWNER}
    spread = np.where(np.arange(IMAGES)[:, None] == OWNER, 1.0, -0.5)
    assert semantic_map(spread, k=5) == pytest.approx(1.0)
    assert semantic_map(spread, k=5, **groups) == pytest.approx(-0.5)
    assert semantic_map(spread, k=10) == pytest.approx(0.25)
    assert not collapse(spread).collapsed
    assert "COLLAPSED" in str(collapse(constant))


def test_semantic_map_paper_example():
    """Fig. 3: cosines .82 .75 .69 .68 .64 give lambda@1 = .82 and lambda@5 = .716, printed .71."""
    row = np.array([[0.1, 0.64, 0.82, 0.69, 0.75, 0.68]])
    assert semantic_map(row, k=1)[0] == pytest.approx(0.82)
    assert semantic_map(row, k=5)[0] == pytest.approx(0.716)

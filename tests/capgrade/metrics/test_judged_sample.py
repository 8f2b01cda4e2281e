"""Metrics from judged samples: against ir_measures and our own dense metrics where all is judged,
against the truth where a part is; intervals hold it as often as they say."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from capgrade.labels import Labels
from capgrade.labels.stored import Sampled, SampledPart
from capgrade.metrics import (
    JudgedSample,
    Positives,
    change_places,
    draw_pool,
    estimate,
    human_lists,
    map_at_r,
    ncs,
    ndcg,
    r_precision,
    recall,
    recall_share,
)
from capgrade.metrics.base import lists_of
from capgrade.metrics.judged_sample import (
    _chance_of_gain,
    _Completions,
    _draw_gains,
    _parse_metric,
    query_values,
)
from capgrade.metrics.uncertainty import share_interval
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from studies.ranks import tfidf

BINARY = ("recall@1", "recall@5", "r@5", "precision@5", "map@r", "r_precision")
GRADED = ("ndcg@10", "ndcg_exp@10", "ncs@5")


def made(
    seed: int, queries: int = 80, width: int = 400
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Positives]:
    """Gains, of which a query has 1 to some 20 that are not 0; two systems that see them through
    noise; own items."""
    random = np.random.default_rng(seed)
    gains = np.zeros((queries, width))
    for row, count in zip(gains, 1 + random.negative_binomial(1, 0.2, queries), strict=True):
        row[random.choice(width, min(count, 20), replace=False)] = random.choice(
            [1 / 3, 2 / 3, 1], min(count, 20)
        )
    own = [[int(row.argmax())] for row in gains]
    gains[np.arange(queries), np.ravel(own)] = 1
    signal = np.where(gains > 0, 1.5 + 2 * gains, 0) + 0.6 * random.standard_normal(gains.shape)
    first, second = (signal + noise * random.standard_normal(gains.shape) for noise in (0.6, 0.9))
    return gains, first.astype(np.float32), second.astype(np.float32), Positives.from_lists(own)


def dense(scores: np.ndarray, gains: np.ndarray) -> dict[str, float]:
    """The metrics when every pair is judged."""
    right = lists_of(gains > 0, gains.shape)
    top = np.take_along_axis(gains, np.argsort(-scores, axis=1)[:, :5], axis=1)
    values = {
        "recall@1": recall(scores, right, 1),
        "recall@5": recall(scores, right, 5),
        "precision@5": (top > 0),
        "r@5": recall_share(scores, right, 5),
        "map@r": map_at_r(scores, right),
        "r_precision": r_precision(scores, right),
        "ndcg@10": ndcg(scores, gains, 10),
        "ndcg_exp@10": ndcg(scores, gains, 10, gain="exponential"),
        "ncs@5": ncs(scores, gains, 5),
    }
    return {name: float(value.mean()) for name, value in values.items()}


def judged(
    gains: np.ndarray,
    systems: list[np.ndarray],
    own: Positives,
    share: float,
    top: int,
    seed: int = 0,
):
    pool = draw_pool(systems, round(share * gains.size), top=top, own=own, seed=seed)
    sample = JudgedSample(pool.query, pool.item, gains[pool.query, pool.item], pool.probability)
    return sample + JudgedSample.certain(own)


def test_where_all_is_judged_metrics_are_the_dense_ones() -> None:
    gains, scores, _, _ = made(0, 20, 60)
    query, item = (part.ravel() for part in np.indices(gains.shape))
    mixed = np.random.default_rng(1).permutation(gains.size)
    sample = JudgedSample(query[mixed], item[mixed], gains.ravel()[mixed], np.ones(gains.size))
    found = estimate(scores, sample, (*BINARY, *GRADED))
    assert {name: one.value for name, one in found.items()} == pytest.approx(
        dense(scores, gains), abs=1e-9
    )
    assert {one.sampling_error for one in found.values()} == {0}
    turned = estimate(scores.T, sample.transposed(), ["ndcg@10"])["ndcg@10"].value
    assert turned == pytest.approx(float(ndcg(scores.T, gains.T, 10).mean()), abs=1e-9)


def test_where_all_is_judged_metrics_are_those_of_ir_measures() -> None:
    ir_measures = pytest.importorskip("ir_measures")
    from ir_measures import P, R, Rprec, Success, nDCG

    gains, scores, _, _ = made(3, 30, 80)
    gains = np.round(3 * gains)
    query, item = (part.ravel() for part in np.indices(gains.shape))
    names = [f"{c:03d}" for c in range(80)]
    qrels = {f"{q}": {names[c]: int(v) for c, v in enumerate(row)} for q, row in enumerate(gains)}
    run = {f"{q}": {names[c]: float(v) for c, v in enumerate(row)} for q, row in enumerate(scores)}
    theirs = ir_measures.calc_aggregate([P @ 5, R @ 5, Rprec, Success @ 5, nDCG @ 10], qrels, run)
    same = {
        P @ 5: "precision@5",
        R @ 5: "r@5",
        Rprec: "r_precision",
        Success @ 5: "recall@5",
        nDCG @ 10: "ndcg@10",
    }
    sample = JudgedSample(query, item, gains.ravel(), np.ones(gains.size))
    found = estimate(scores, sample, list(same.values()))
    for measure, name in same.items():
        assert found[name].value == pytest.approx(theirs[measure], abs=1e-6), name


@pytest.mark.parametrize("name", [*BINARY, *GRADED])
def test_an_exchanged_gain_is_as_if_the_ranking_had_it(name: str) -> None:
    """Each against the same function of a row that was written anew, which the tests above hold to
    the dense one."""
    random = np.random.default_rng(4)
    graded, metric = _parse_metric(name)
    for _ in range(20):
        completed = random.choice([0, 0.2, 0.5, 1] if graded else [0.0, 0, 1], (3, 12))
        row, place = random.integers(0, 3, 50), random.integers(0, 12, 50)
        gain = random.choice([0, 0.3, 0.5, 1] if graded else [0.0, 1], 50)
        most = random.integers(metric.keywords.get("k", 0), 13)  # another metric may read more
        found = metric(_Completions(completed, row, place, gain, most))[1]
        none = row[:0], place[:0], gain[:0], most
        for k in range(50):
            anew = completed[row[k]][None].copy()
            anew[0, place[k]] = gain[k]
            assert found[k] == pytest.approx(metric(_Completions(anew, *none))[0][0], abs=1e-12)


def test_a_chance_is_how_often_a_gain_is_drawn() -> None:
    """Where each place has a factor of its own, over 200,000 draws."""
    table = np.sort(np.random.default_rng(0).random((2, 4096)) < [[0.02], [0.3]], axis=1) * 1.0
    for spread in (0.0, 0.7):
        drawn = _draw_gains(
            table, np.array([0, 1]), np.ones((200_000, 2)), spread, np.random.default_rng(1)
        )
        right = _chance_of_gain(table.mean(axis=1), spread)
        assert drawn.mean(axis=0) == pytest.approx(right, abs=4e-3), spread
    assert (right < table.mean(axis=1)).all(), "some factors draw what is there already"


def test_an_interval_of_a_share_is_students_in_the_logit() -> None:
    values = np.random.default_rng(2).lognormal(-3, 0.8, 60)
    mean, error = values.mean(), stats.sem(values)
    freedom = 2 * 60 / (stats.kurtosis(values, fisher=False) - 1)
    assert 10 < freedom < 40, "a few large values make them fewer than there are queries"
    t = stats.t.ppf(0.95, freedom)
    ends = np.log(mean / (1 - mean)) + np.array([-t, t]) * error / mean / (1 - mean)
    assert share_interval(values, 0.9) == pytest.approx(tuple(1 / (1 + np.exp(-ends))))
    low, high = share_interval(values - 1, 0.9)
    assert low + high == pytest.approx(2 * (mean - 1)), "no share has this mean"
    twice = share_interval(values.repeat(2), 0.9, np.repeat(np.arange(60), 2))
    assert twice == pytest.approx(share_interval(values, 0.9))
    assert share_interval(np.full(5, 0.25)) == (0.25, 0.25)


def test_tied_scores_count_as_in_any_order() -> None:
    """A constant similarity scores what chance scores, whatever the order of the columns."""
    gains = np.zeros((400, 6))
    gains[:, -1] = 1
    query, item = (part.ravel() for part in np.indices(gains.shape))
    sample = JudgedSample(query, item, gains.ravel(), np.ones(gains.size))
    found = estimate(np.ones(gains.shape), sample, ["recall@2"])["recall@2"]
    assert found.low < 1 / 3 < found.high and found.high - found.low < 0.12


def test_labels_that_know_every_pair_give_the_dense_metrics(made: Path) -> None:
    labels = Labels.load(made / "relevance", captions=made / "captions")
    scores = np.random.default_rng(3).random((12, 60))
    gains = np.maximum(labels.block(range(12), range(60), "sbert").relevance, 0).astype(np.float64)
    found = estimate(scores, JudgedSample.from_labels(labels, "sbert"), GRADED)
    for name, right in dense(scores, gains).items():
        if name in GRADED:
            assert found[name].value == pytest.approx(right, abs=1e-9), name


def test_weights_of_shards_are_chances(made: Path) -> None:
    """The sum of weights x gains is near that of all pairs; a part of the pairs keeps its own."""
    labels = Labels.load(made / "shards")
    sample = JudgedSample.from_labels(labels, "sbert")
    every = Labels.load(made / "relevance").block(range(12), range(60), "sbert").relevance
    total = (sample.weight * sample.gain).sum()
    error = np.sqrt(((sample.weight - 1) * sample.weight * sample.gain**2).sum())
    assert 0 < error < 0.1 * every.sum() and abs(total - np.maximum(every, 0).sum()) < 4 * error
    some = sample.of(np.array([7, 2]), np.arange(60)[::-1])
    for row, image in enumerate([7, 2]):
        here, there = some.query == row, sample.query == image
        assert set(zip(59 - some.item[here], some.weight[here], strict=True)) == set(
            zip(sample.item[there], sample.weight[there], strict=True)
        )


def test_labels_without_a_chance_for_every_pair_are_refused() -> None:
    """The best two captions of each of three images, and no others."""
    part = SampledPart(
        np.array([0, 2, 4, 6]),
        np.array([0, 1, 1, 2, 3, 4], np.int32),
        np.ones(6, np.float32),
        np.ones(6, np.uint32),
        {"m": np.ones(6, np.float32)},
    )
    labels = Labels("shards", Sampled(["m"], 5, [part], ["top_m"]), ["a", "b", "c"], 5)
    with pytest.raises(InputError, match=r"stand for 6 of 15 pairs .* shards.uniform of 1"):
        JudgedSample.from_labels(labels)


def test_what_is_linear_in_the_gains_is_unbiased_whatever_stands_below() -> None:
    """precision@10 from a twelfth of the pairs, none of them certain, over 150 samples of one
    world."""
    gains, scores, _, _ = made(5, 30, 200)
    query, item = (part.ravel() for part in np.indices(gains.shape))
    top = np.take_along_axis(gains, np.argsort(-scores, axis=1)[:, :10], axis=1)
    values, errors = [], []
    for seed in range(150):
        chosen = np.random.default_rng(seed).choice(gains.size, 500, replace=False)
        sample = JudgedSample(
            query[chosen], item[chosen], gains.ravel()[chosen], np.full(500, 500 / gains.size)
        )
        found = query_values(scores, sample, ["precision@10"], seed=seed)["precision@10"]
        values.append(found.values.mean())
        errors.append(found.sampling_error)
    assert np.mean(values) == pytest.approx((top > 0).mean(), abs=4 * np.std(values) / np.sqrt(150))
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.2), (
        "the error by sampling is what samples differ by"
    )


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """40 worlds, each of other queries, a tenth judged: of 40 intervals of 95 % fewer than 33 hold
    by chance in one of 1,000 tests. Values are those of other worlds to within their own error."""
    names, size = ("r@5", "map@r", "ndcg@10"), (60, 300)
    others = [dense(*made(seed, *size)[1::-1]) for seed in range(1000, 1080)]
    right = {name: np.mean([one[name] for one in others]) for name in names}
    found = []
    for seed in range(40):
        gains, first, second, own = made(seed, *size)
        sample = judged(gains, [first, second], own, 0.1, 6, seed)
        found.append(estimate(first, sample, names, seed=seed))
    for name in names:
        held = sum(one[name].low <= right[name] <= one[name].high for one in found)
        assert held >= 33, f"{name}: {held} of 40"
        values = [one[name].value for one in found]
        assert np.mean(values) == pytest.approx(
            right[name], abs=4 * np.std(values) / np.sqrt(40)
        ), name


def test_systems_change_places() -> None:
    gains, first, second, own = made(7, 200)
    sample = judged(gains, [first, second], own, 0.1, 5)
    clear = change_places(first, second, sample, "ndcg@10")
    assert clear.difference.low > 0 and clear.change == 0
    assert change_places(second, first, sample, "ndcg@10").change == 0, (
        "the one ahead may be the second"
    )
    same = change_places(first, first, sample, "ndcg@10")
    assert (same.difference.value, same.change, same.difference.sampling_error) == (0, 0.5, 0)
    close = change_places(
        first, first + np.random.default_rng(0).normal(0, 0.05, first.shape), sample
    )
    assert 0.01 < close.change < 0.6


def test_rows_of_one_group_are_drawn_together() -> None:
    """Five equal rows an image tell no more than one."""
    gains, scores, _, _ = made(8, 60, 50)
    gains, scores = gains.repeat(5, axis=0), scores.repeat(5, axis=0)
    query, item = (part.ravel() for part in np.indices(gains.shape))
    sample = JudgedSample(query, item, gains.ravel(), np.ones(gains.size))
    apart, together = (
        estimate(scores, sample, ["ndcg@10"], groups=groups)["ndcg@10"]
        for groups in (None, np.repeat(np.arange(60), 5))
    )
    ratio = (together.high - together.low) / (apart.high - apart.low)
    assert ratio == pytest.approx(np.sqrt(5), rel=0.15) and together.value == apart.value


def test_a_twentieth_of_cocos_pairs_gives_map_at_r_by_eccv_caption(coco: Captions) -> None:
    """Every third caption that ECCV Caption has a list of, over all 5,000 images, by words of each
    image's first caption. Of four samples three intervals at least hold the value by all pairs, and
    their mean is near it."""
    pytest.importorskip("eccv_caption")
    lists = human_lists("eccv", coco.image_ids, coco.caption_ids)[1]
    rows, asked = lists.lists(), np.flatnonzero(np.diff(lists.indptr) > 0)[::3]
    right = Positives.from_lists([rows[q][rows[q] >= 0] for q in asked])
    words, first = tfidf(coco), coco.refs[coco.ref_ptr[:-1]]
    systems = [
        (some[asked] @ some[first].T).toarray().astype(np.float32)
        for some in (words, words[:, ::2])
    ]
    gains = np.zeros(systems[0].shape)
    gains[right.queries, right.indices] = 1
    own = Positives.from_lists([[image] for image in coco.owner[asked]])
    true = float(map_at_r(systems[0], right).mean())
    found = [
        estimate(systems[0], judged(gains, systems, own, 0.05, 10, seed), ["map@r"])["map@r"]
        for seed in range(4)
    ]
    print(f"map@r by all pairs {true:.4f}; by a twentieth {found}")
    assert sum(one.low <= true <= one.high for one in found) >= 3
    assert np.mean([one.value for one in found]) == pytest.approx(
        true, abs=1.5 * found[0].sampling_error
    )
    assert all(one.high - one.low < 0.1 for one in found)


def test_what_is_wrong_is_said() -> None:
    gains, scores, _, own = made(9, 10, 40)
    sample = judged(gains, [scores], own, 0.5, 4)
    columns = (sample.query, sample.item, sample.gain, sample.probability)
    for call, message in (
        (lambda: replace(sample, gain=sample.gain - 1), "below 0 or no number"),
        (lambda: replace(sample, gain=sample.gain[1:]), "four columns of one length"),
        (lambda: replace(sample, probability=0 * sample.gain), r"outside \(0, 1\]"),
        (lambda: sample + JudgedSample.certain(own), "judged twice"),
        (
            lambda: estimate(scores[:, :30], sample),
            "a pair of the sample has its item outside the 10 x 30 scores",
        ),
        (
            lambda: estimate(np.pad(scores, ((0, 90), (0, 0))), sample),
            r"stand for 400 of 4,000 pairs \(100 x 40\)",
        ),
        (lambda: estimate(scores + np.nan, sample), "NaN"),
        (lambda: estimate(scores, sample, ["asp"]), "'asp' is not known -> choose from: ndcg, "),
        (lambda: estimate(scores, sample, ["ndcg"]), "write ndcg@K"),
        (lambda: estimate(scores, sample, ["map@5"]), "'map' is not known"),
        (lambda: change_places(scores, scores[:9], JudgedSample(*columns), "map@r"), "outside"),
    ):
        with pytest.raises(InputError, match=message):
            call()

"""Coefficients against scipy and scikit-learn, intervals over images and their coverage, and the
human ceiling."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import average_precision_score, roc_auc_score

from capgrade.agreement.coefficients import (
    bootstrapped_spearman,
    coefficients,
    human,
    intervals,
    taus,
)
from capgrade.agreement.judgements import Judgements, Ratings


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 40), st.integers(2, 8))
def test_taus_are_scipys(seed: int, n: int, levels: int) -> None:
    random = np.random.default_rng(seed)
    x, y = random.integers(levels, size=n) / 3, random.integers(levels + 1, size=n) * 1.5
    scipys = [stats.kendalltau(x, y, variant=variant).statistic for variant in "bc"]
    assert taus(x, y) == pytest.approx(scipys, nan_ok=True)


def test_yes_and_no_are_judged_as_scikit_learn_does() -> None:
    random = np.random.default_rng(3)
    accepted, value = random.random(200) < 0.2, random.integers(30, size=200) / 7
    people = Judgements(np.arange(200) % 17, np.arange(200), accepted.astype(float))
    row = coefficients(value, people, np.zeros(200, bool))
    assert row["auc"]["all"] == pytest.approx(roc_auc_score(accepted, value))
    assert row["average_precision"]["all"] == pytest.approx(
        average_precision_score(accepted, value)
    )


def test_every_rating_is_an_observation_beside_the_mean() -> None:
    random = np.random.default_rng(5)
    rows = [list(random.integers(1, 5, size=3).astype(float)) for _ in range(50)]
    ratings = Ratings.of(rows)
    value = random.random(50)
    people = Judgements(np.arange(50), np.arange(50), ratings.means, ratings)
    found = coefficients(value, people, np.arange(50) < 10)["kendall_c"]
    flat = np.array(rows[10:]).ravel()
    want = stats.kendalltau(np.repeat(value[10:], 3), flat, variant="c").statistic
    assert found["non_original_ratings"] == pytest.approx(want)
    assert found["all"] == pytest.approx(
        stats.kendalltau(value, np.mean(rows, axis=1), variant="c").statistic
    )


def test_intervals_draw_images_with_their_captions() -> None:
    """A pair comes as often as its image was drawn times as often as its caption's image, an own
    pair as often as its image: with rows repeated and scipy's coefficients."""
    random = np.random.default_rng(7)
    image, owner = random.integers(12, size=(2, 80))
    owner[:20] = image[:20]
    score = random.random(80)
    value = score + random.normal(size=80)
    people = Judgements(image, np.arange(80), score)
    found = intervals(value, people, owner, samples=30, seed=1)
    values = coefficients(value, people, owner == image)
    assert {n: row.keys() for n, row in found.items()} == {n: r.keys() for n, r in values.items()}
    drawn = np.random.default_rng(1).multinomial(12, np.full(12, 1 / 12), size=30)
    times = [
        [one[i] if i == o else one[i] * one[o] for i, o in zip(image, owner, strict=True)]
        for one in drawn
    ]
    for scope, kept in (("all", np.ones(80, bool)), ("non_original", owner != image)):
        repeated = [np.repeat(np.flatnonzero(kept), np.array(one)[kept]) for one in times]
        for name, of in (
            ("pearson", stats.pearsonr),
            ("spearman", stats.spearmanr),
            ("kendall", stats.kendalltau),
        ):
            want = np.quantile(
                [of(value[rows], score[rows]).statistic for rows in repeated], (0.025, 0.975)
            )
            assert found[name][scope] == pytest.approx(list(want))


def test_intervals_cover_the_truth_where_images_and_captions_differ() -> None:
    """Both sides share effects of the pair's two images: r is 2/3. Draws of pairs alone cover it in
    half of the worlds."""
    covered = by_pairs = 0
    for seed in range(30):
        random = np.random.default_rng(seed)
        image, owner = random.integers(30, size=(2, 900))
        shared = random.normal(size=30)[image] + random.normal(size=30)[owner]
        value, score = shared + random.normal(size=(2, 900))
        low, high = intervals(value, Judgements(image, np.arange(900), score), owner, samples=60)[
            "pearson"
        ]["all"]
        covered += low <= 2 / 3 <= high
        drawn = random.integers(900, size=(60, 900))
        low, high = np.quantile(
            [np.corrcoef(value[rows], score[rows])[0, 1] for rows in drawn], (0.025, 0.975)
        )
        by_pairs += low <= 2 / 3 <= high
    assert covered >= 26 and by_pairs < 21, (covered, by_pairs)


@pytest.mark.parametrize("seed", range(12))
def test_draws_of_one_image_say_nothing(seed: int) -> None:
    """Of three images with a pair each, a draw may take one thrice: it has no correlation, whatever
    rounding leaves."""
    random = np.random.default_rng(seed)
    value, score = random.random(3), random.permutation(6)[:3].astype(float)
    people = Judgements(np.arange(3), np.arange(3), score)
    found = intervals(value, people, np.arange(3))["pearson"]["all"]
    draws = np.random.default_rng(0).multinomial(3, np.full(3, 1 / 3), size=200)
    drawn = [np.repeat(np.arange(3), draw) for draw in draws]
    want = [
        stats.pearsonr(value[rows], score[rows]).statistic
        for rows in drawn
        if len(set(rows.tolist())) > 1
    ]
    assert (
        found == pytest.approx(list(np.quantile(want, (0.025, 0.975)))) and np.abs(found).max() <= 1
    )


def test_the_ceiling_of_raters_who_agree_is_one_and_of_coins_zero() -> None:
    random = np.random.default_rng(0)
    same = Ratings.of([[float(v)] * 3 for v in random.integers(5, size=60)])
    coins = Ratings.of([list(random.integers(2, size=4).astype(float)) for _ in range(3000)])
    agreeing = human(Judgements(np.arange(60), np.arange(60), same.means, same), np.zeros(60, bool))
    tossing = human(
        Judgements(np.arange(3000), np.arange(3000), coins.means, coins), np.zeros(3000, bool)
    )
    assert agreeing["pearson"]["all"] == pytest.approx(1) and agreeing["ratings"] == 3
    assert abs(tossing["pearson"]["all"]) < 0.05 and tossing["pairs"] == 3000


def test_spearman_by_the_protocol_of_crisscrossed_captions() -> None:
    """As scipy's, draw after draw, of half of the images and a pair of each; a constant side says
    nothing."""
    random = np.random.default_rng(0)
    image, score = random.integers(40, size=300), np.round(random.random(300) * 5)
    value = score + random.normal(size=300) * 2
    people = Judgements(image, np.arange(300), score)
    drawn = []
    for _ in range(2000):
        images = random.choice(np.unique(image), 20, replace=False)
        rows = [random.choice(np.flatnonzero(image == one)) for one in images]
        drawn.append(stats.spearmanr(value[rows], score[rows]).statistic)
    found = bootstrapped_spearman(value, people)
    assert found == pytest.approx({"mean": np.mean(drawn), "sd": np.std(drawn)}, abs=0.02)
    assert bootstrapped_spearman(np.zeros(300), people) is None
    assert bootstrapped_spearman(value[:3], Judgements(image[:3], np.arange(3), score[:3])) is None

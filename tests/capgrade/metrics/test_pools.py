"""Pools by brute force: which pairs are certain, how likely the others are, and what a budget must
allow."""

import numpy as np
import pytest

from capgrade.metrics import Positives, draw_pool
from capgrade.metrics.pools import draw_strata, first_cells
from capgrade.schemas.errors import InputError

RANDOM = np.random.default_rng(0)
SYSTEMS = [RANDOM.standard_normal((12, 40)), RANDOM.standard_normal((12, 40))]
OWN = Positives.from_lists([[q] for q in range(12)])


def cells(query: np.ndarray, item: np.ndarray) -> set[tuple[int, int]]:
    return set(zip(query.tolist(), item.tolist(), strict=True))


def firsts(system: np.ndarray, top: int) -> set[tuple[int, int]]:
    """The first `top` of each row, by a sort."""
    return {(q, int(c)) for q, row in enumerate(system) for c in np.argsort(-row)[:top]}


def test_the_first_of_each_system_are_certain_and_own_pairs_are_not_asked() -> None:
    rows = firsts(SYSTEMS[0], 3) | firsts(SYSTEMS[1], 3)
    columns = {(q, c) for S in SYSTEMS for c, q in firsts(S.T, 3)}
    for by_columns, expected in ((False, rows), (True, rows | columns)):
        pool = draw_pool(SYSTEMS, 300, top=3, own=OWN, columns=by_columns)
        certain = pool.weight == 1
        assert cells(pool.image[certain], pool.caption[certain]) >= expected - {
            (q, q) for q in range(12)
        }
        assert not cells(pool.image, pool.caption) & {(q, q) for q in range(12)}
        assert len(cells(pool.image, pool.caption)) == len(pool) == 300
        assert pool.weight.sum() == pytest.approx(12 * 40 - 12), "the drawn stand for all"


def test_each_pair_is_drawn_as_often_as_its_probability_says() -> None:
    """Over 400 seeds, within five deviations; deeper ranks are drawn less often."""
    best = np.minimum(*(np.argsort(np.argsort(-S, axis=1), axis=1) for S in SYSTEMS))
    count, chance = np.zeros((12, 40)), np.zeros((12, 40))
    for seed in range(400):
        pool = draw_pool(SYSTEMS, 150, top=2, seed=seed)
        count[pool.image, pool.caption] += 1
        chance[pool.image, pool.caption] = 1 / pool.weight
    assert (np.abs(count - 400 * chance) <= 5 * np.sqrt(400 * chance * (1 - chance)) + 1e-9).all()
    levels = [
        chance[(best >= low) & (best < high)]
        for low, high in ((0, 2), (2, 4), (4, 8), (8, 16), (16, 40))
    ]
    assert all(len(set(level.tolist())) == 1 for level in levels), "a stratum has one probability"
    assert sorted((level[0] for level in levels), reverse=True) == [level[0] for level in levels]


def test_all_pairs_and_too_few() -> None:
    whole = draw_pool(SYSTEMS, 480, top=2)
    assert (whole.weight == 1).all() and len(whole) == 480
    for budget in (40, 481):
        with pytest.raises(InputError, match=f"{budget} pairs to judge: .* are among the first 2"):
            draw_pool(SYSTEMS, budget, top=2)
    with pytest.raises(InputError, match="transpose it"):
        draw_pool([SYSTEMS[0], SYSTEMS[1].T], 300)


def test_strata_share_a_budget_and_each_cell_is_of_the_first_that_has_it() -> None:
    """First cells are those of a sort; over 400 seeds each is drawn as often as its probability
    says, a small stratum whole."""
    one, three = (first_cells(SYSTEMS, depth) for depth in (1, 3))
    assert set(zip(*np.divmod(three, 40), strict=True)) == firsts(SYSTEMS[0], 3) | firsts(
        SYSTEMS[1], 3
    )
    strata = [one[:5], one, three]
    count, chance = np.zeros(480), np.zeros(480)
    for seed in range(400):
        pool = draw_strata(strata, 25, 40, seed=seed)
        at = pool.image * 40 + pool.caption
        assert len(at) == len(set(at.tolist())) == 25
        count[at] += 1
        chance[at] = 1 / pool.weight
    assert (chance[one[:5]] == 1).all() and set(np.flatnonzero(chance).tolist()) == set(
        three.tolist()
    )
    assert len(set(chance[one[5:]].tolist())) == 1 and chance[one[5:]].sum() == pytest.approx(10)
    assert (np.abs(count - 400 * chance) <= 5 * np.sqrt(400 * chance * (1 - chance)) + 1e-9).all()
    assert len(draw_strata(strata, 10_000, 40)) == len(three), "no more than there are"
    with pytest.raises(InputError, match="2 pairs to judge of 3 strata"):
        draw_strata(strata, 2, 40)

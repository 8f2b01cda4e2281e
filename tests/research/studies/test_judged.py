"""research/studies/judged.py: its worlds are what they say, its formulas those of the metrics, and a row says
how often intervals held."""

import numpy as np
import pytest

from capgrade.metrics import map_at_r, ncs, ndcg, recall, recall_share
from research.studies import judged


def test_worlds_are_of_their_kind() -> None:
    for kind, (least, most) in {"few": (1, 3), "wide": (1, 66), "dense": (60, 140)}.items():
        world = judged.draw(kind, 200, np.random.default_rng(0))
        sizes = (world.gains > 0).sum(axis=1)
        assert least <= sizes.min() <= sizes.max() <= most and sizes.max() > most / 2
        assert (world.own is None) == (kind == "few")
    world = judged.draw("clustered", 23, np.random.default_rng(0))
    assert world.groups.tolist() == [row // 5 for row in range(23)]
    assert (world.gains[0] == world.gains[4]).all() and (world.gains[4] != world.gains[5]).any()
    assert (world.systems[0][0] != world.systems[0][4]).any(), "of one set each has its own noise"


def test_formulas_written_anew_are_those_of_the_metrics() -> None:
    world = judged.draw("wide", 50, np.random.default_rng(1))
    scores, right = world.systems[0], world.gains > 0
    functions = [
        recall(scores, right, 5),
        recall_share(scores, right, 5),
        map_at_r(scores, right),
        ndcg(scores, world.gains, 10),
        ncs(scores, world.gains, 5),
    ]
    found = judged.dense(scores, world.gains)
    assert np.stack(functions, axis=1) == pytest.approx(found[:, [0, 1, 3, 4, 5]], abs=1e-6)


@pytest.mark.parametrize("name", ["few", "wide, rare"])
def test_a_row_says_how_often_intervals_held(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two worlds: a cell a metric, recall@5 exact where the first five are certain."""
    monkeypatch.setattr(judged, "TRUTH", 4_000)
    head, line, right, row = "\n".join(judged.table(2, [(name, 20, 0.06)])).splitlines()
    assert head.startswith(judged.HEAD)
    assert len({text.count("|") for text in (head, line, right, row)}) == 1
    cells = row.split(" | ")[3:]
    assert cells[0].endswith("+0.000, 0.000 (0.000)") and " of 100: " in cells[0]
    bias, error, plain = (float(part.strip("()|")) for part in cells[4].split(": ")[1].split()[:3]
                          for part in [part.rstrip(",")])  # fmt: skip
    assert abs(bias) <= error < 0.5 and plain < 0.5

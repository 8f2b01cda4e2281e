"""studies/judged.py on a world whose gains are drawn: a row for each share, and intervals that
hold."""

import numpy as np

from capgrade.metrics import Positives
from studies import judged


def test_a_row_for_each_share(monkeypatch) -> None:
    random = np.random.default_rng(0)
    gains = (random.random((50, 700)) < 0.01) * 0.9
    gains[np.arange(50), np.arange(50)] = 1
    systems = [gains + noise * random.standard_normal(gains.shape) for noise in (0.3, 0.5)]
    own = Positives.from_lists([[image] for image in range(50)])
    monkeypatch.setattr(judged, "QUERIES", 40)
    rows = "\n".join(judged.table(systems, gains, own, 3)).splitlines()
    assert rows[0].startswith(judged.HEAD) and [row.split(" | ")[0] for row in rows[2:]] == [
        "| 100%", "| 1%", "| 5%", "| 20%"
    ]  # fmt: skip
    assert len({row.count("|") for row in rows}) == 1
    right, last = (row.split(" | ") for row in (rows[2], rows[5]))
    for true, cell in zip(right[2:], last[2:], strict=True):
        value, width = cell.split(": ")[1].strip(" |").split(" ± ")
        assert abs(float(value) - float(true.strip(" |"))) < 2 * float(width) + 1e-3

"""research/studies/from_shards.py on a small world: rows for both directions, and values near the dense
ones."""

from pathlib import Path

import numpy as np

from capgrade.pipelines.captions import captions
from capgrade.pipelines.stages.captions import CaptionsParams, ScenesParams
from capgrade.schemas.captions import read_captions
from capgrade.schemas.relevance import read_relevance
from research.studies import from_shards


def test_estimates_are_near_the_dense_values(tmp_path: Path, monkeypatch) -> None:
    captions(tmp_path, CaptionsParams(scenes=ScenesParams(train=0, val=0, test=80, size=64)))
    gains = read_relevance(tmp_path / "truth-test.arrow").matrix().astype(np.float64)
    for name, value in {"QUERIES": 80, "IMAGES": 80, "DRAWN": 20, "PLANS": ((20, 20, 1),)}.items():
        monkeypatch.setattr(from_shards, name, value)
    rows = list(from_shards.table(read_captions(tmp_path, "test"), gains, 4))
    assert [row.split(" | ")[0] for row in rows[1:]] == [
        *["| image to text"] * 2,
        *["| text to image"] * 2,
    ]
    for right, found in (rows[1:3], rows[3:5]):
        for true, cell in zip(right.split(" | ")[2:], found.split(" | ")[2:], strict=True):
            value, *width = cell.split(": ")[1].strip(" |").split(" ± ")
            near = 2 * float(width[0]) + 1e-3 if width else 0.1  # a cell without an interval
            assert abs(float(value) - float(true.strip(" |"))) < near, found

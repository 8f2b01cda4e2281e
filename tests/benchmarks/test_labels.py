from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from capgrade import Labels
from capgrade.benchmarks import labels as benched
from tests.conftest import call


def test_the_stand_in_is_shards_as_the_stage_writes_them(tmp_path: Path) -> None:
    assert benched.stand_in(tmp_path, 130) == 130 * 274
    labels = Labels.load(tmp_path / "shards", captions=tmp_path / "captions")
    assert (len(labels.image_ids), labels.n_captions) == (130, 650)
    assert labels.owner.tolist() == Labels.load(tmp_path / "shards").owner.tolist() == np.repeat(range(130), 5).tolist()
    for measure, high in (("cider", 10), ("rouge_l", 1), ("sbert", 1)):
        values, known, weights = labels.block(range(130), range(650), measure)
        assert (known.sum(axis=1) == 274).all() and known[labels.owner, np.arange(650)].all()
        assert weights.sum(axis=1) == pytest.approx(650, rel=1e-5)  # each pair is stood for
        assert values.min() >= 0 and values.max() <= high


def test_the_share_of_labels_in_a_step_is_measured(capsys, monkeypatch) -> None:
    monkeypatch.setattr(benched, "of_model", lambda name, *batch: {"pairs_per_s": 100.0, "processor_s": 0.1})
    monkeypatch.setattr(benched, "RUNS", 1)
    assert call("bench", "labels", "--set", "bench.images=100", "--set", "bench.batch=8", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    labels = rows.pop("labels")
    assert (labels["pairs"], labels["step_ms"]) == (27_400, 80) and labels["open_s"] > 0
    assert labels["peak_mb"] > labels["before_mb"] > 0
    assert rows.keys() == {"random", "seeded", "range"}
    for row in rows.values():
        assert row["batches"] == 500 // 8
        assert row["share_of_step"] == pytest.approx((row["look_up_ms"] + row["draw_ms"]) / 80)
        assert row["processor_share"] == pytest.approx(row["processor_ms"] / 100) and row["processor_ms"] > 0

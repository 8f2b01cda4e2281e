"""The audit of scenes: counts of the truth, and what is printed of random and of chosen pairs."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from capgrade.benchmarks import audit_scenes


def test_what_is_printed_holds_the_truth(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Chosen pairs are accepted more often than the others of their value: the counts by P, which hold for random
    pairs, would be twice the truth."""
    monkeypatch.setattr(audit_scenes, "IMAGES", 60)
    monkeypatch.setattr(audit_scenes, "JUDGED", 6000)
    monkeypatch.setattr(audit_scenes, "NEAR", 8)
    monkeypatch.setattr(sys, "argv", ["audit", "--seeds", "10", "--measure", "rouge_l"])
    audit_scenes.main()
    found = json.loads(capsys.readouterr().out)
    for way in ("dense", "shards"):
        one, other = found["random"][way], found["chosen"][way]
        assert one["covered"] >= 0.9 and min(one["bands_covered"]) >= 0.9 and min(one["errors_covered"]) >= 0.9
        assert one["low"] < one["accepted"] < one["high"] and one["pairs"] > one["truth"] > 0
        assert other["covered"] >= 0.9 and other["low"] == 0 and not other.keys() & {"accepted", "bands_covered"}
        assert other["high"] > 1.5 * other["truth"]


def test_the_truth_is_counted_by_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_scenes, "IMAGES", 40)
    world = audit_scenes._world(0, "test", "rouge_l")
    curve = audit_scenes._curve(world, 0, "chosen")
    want = np.zeros(3)
    for image in range(40):
        for caption in range(200):
            own = world.captions.image_ids[image] == world.captions.caption_ids[caption].split("#")[0]
            if not own and world.truth[image, caption] >= 0.5:
                p = float(curve.probability(world.values[image, caption]))
                want[sum(p >= edge for edge in (0.2, 0.5))] += 1 / 40
    assert audit_scenes._accepted(world, curve) == pytest.approx(want.tolist())


def test_a_measure_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["audit", "--seeds", "1", "--measure", "nonsense"])
    with pytest.raises(SystemExit, match="unknown measure"):
        audit_scenes.main()

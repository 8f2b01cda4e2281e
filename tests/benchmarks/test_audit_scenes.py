"""The audit of scenes: counts of the truth, and the shares that are printed."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from capgrade.benchmarks import audit_scenes


def test_the_estimate_is_near_the_truth(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(audit_scenes, "IMAGES", 60)
    monkeypatch.setattr(audit_scenes, "JUDGED", 4000)
    monkeypatch.setattr(sys, "argv", ["audit", "--seeds", "2", "--measure", "rouge_l"])
    audit_scenes.main()
    found = json.loads(capsys.readouterr().out)
    truths = []
    for seed in range(2):
        world = audit_scenes._world(seed, "test", "rouge_l")
        fits = [
            (image, caption)
            for image in range(60)
            for caption in range(300)
            if world.captions.image_ids[image] != world.captions.caption_ids[caption].split("#")[0]
            and world.truth[image, caption] >= 0.5
        ]
        truths.append(len(fits) / 60)
    for way in ("dense", "shards"):
        assert found[way]["truth"] == pytest.approx(np.mean(truths))
        assert found[way]["covered"] in (0, 0.5, 1) and 0.6 < found[way]["estimate_over_truth"] < 1.6
    monkeypatch.setattr(sys, "argv", ["audit", "--seeds", "1", "--measure", "nonsense"])
    with pytest.raises(SystemExit, match="unknown measure"):
        audit_scenes.main()

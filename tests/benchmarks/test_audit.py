"""The audit beside a list of people's, counted by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from capgrade.benchmarks import audit
from capgrade.metrics import Positives
from capgrade.pipelines.relevance import relevance
from capgrade.schemas.params import MeasuresParams, RelevanceParams
from tests.conftest import caption_table, write_captions_folder

SETS = [["a dog runs", "the dog runs"], ["a dog runs", "a dog is running"], ["two red buses", "buses on a street"]]


def test_shares_are_those_of_the_two_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """People annotate images 0 and 2: beyond their own, captions 2, 4 and one that is not here; and 0."""
    captions = write_captions_folder(tmp_path / "c", [caption_table(SETS)])
    relevance(captions, tmp_path / "r", RelevanceParams(measures=("sbert",)), MeasuresParams())
    people = Positives.from_lists([np.array(row) for row in ([0, 1, 2, 4, -1], [], [4, 5, 0])])
    monkeypatch.setattr(audit, "human_lists", lambda *_: (people, people))
    words = "audit", "--captions", str(captions), "--relevance", str(tmp_path / "r"), "--measure", "sbert"
    monkeypatch.setattr(sys, "argv", list(words))
    audit.main()
    found = json.loads(capsys.readouterr().out)
    assert found["images"] == 2 and found["eccv_per_image"] == 1.5
    assert found["likely_per_image"] == 1  # captions 2 and 3 of image 0, which are its own in other words
    assert (found["eccv_that_are_likely"], found["likely_that_are_eccv"]) == (1 / 3, 1 / 2)
    assert 0 < found["expected_per_image"] < 2

"""`capgrade bench tops` gives what it promises, and sees tops that are not those of all pairs."""

from pathlib import Path

import pytest

from capgrade.benchmarks import tops
from capgrade.measures.meteor import FittedMeteor
from tests.conftest import caption_table, printed, random_sets, refusal, write_captions_folder


def test_the_search_beside_all_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tops, "MOST_CAPTIONS", 4)
    write_captions_folder(tmp_path / "captions", [caption_table(random_sets(80, seed=2))])
    command = ["bench", "tops", "--captions", tmp_path / "captions"]
    row = printed(*command)["meteor"]
    assert row["ratio"] == pytest.approx(row["all_pairs_seconds"] / row["seconds"])
    assert 0 < row["pairs_scored"] < row["pairs"] == 80 * row["captions"]
    search = FittedMeteor.tops
    monkeypatch.setattr(FittedMeteor, "tops", lambda self, images, *given: search(self, images[::-1], *given))
    assert "the tops of meteor are not those of all pairs" in refusal(*command)
    told = refusal(*command, "--measures", "cider")
    assert "cider has no search of its own -> leave --measures out, or give meteor" in told

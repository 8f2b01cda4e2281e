"""`capgrade bench tops` gives what it promises, and sees tops that are not those of all pairs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capgrade.benchmarks import tops
from tests.conftest import call, caption_table, random_sets, write_captions_folder


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(tops, "TOP", 4)
    write_captions_folder(tmp_path / "captions", [caption_table(random_sets(80, seed=2))])
    return ["bench", "tops", "--captions", str(tmp_path / "captions"), "--json"]


def test_the_search_beside_all_pairs(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*command) == 0
    meteor = json.loads(capsys.readouterr().out)["meteor"]
    assert meteor["ratio"] == pytest.approx(meteor["all_pairs_seconds"] / meteor["seconds"])
    assert 0 < meteor["pairs_touched"] <= meteor["pairs"] and meteor["same"]


def test_tops_that_differ_are_an_error(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = tops.every_pair

    def other(*args):
        found = full(*args)
        return found._replace(rows=found.rows[:, ::-1])

    monkeypatch.setattr(tops, "every_pair", other)
    assert call(*command) == 2
    assert "the tops of meteor are not those of all pairs" in capsys.readouterr().err

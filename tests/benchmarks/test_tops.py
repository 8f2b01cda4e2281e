"""`capgrade bench tops` prints what it promises, and sees tops that are not those of all pairs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from capgrade.benchmarks import tops
from tests.conftest import call, caption_table, random_sets, write_captions_folder


@pytest.fixture(scope="module")
def captions_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("tops") / "captions"
    write_captions_folder(folder, [caption_table(random_sets(80, seed=2))])
    return folder


def test_json(captions_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("bench", "tops", "--captions", str(captions_dir), "--measures", "cider", "--top", "4", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"cider", "exponent"}
    cider = found["cider"]
    assert {"seconds", "all_pairs_seconds", "ratio", "pairs_touched", "same"} <= set(cider)
    assert cider["same"] is True
    assert cider["ratio"] == pytest.approx(cider["all_pairs_seconds"] / cider["seconds"])
    assert cider["thread_ratio"] == pytest.approx(cider["all_pairs_thread_seconds"] / cider["thread_seconds"])
    assert 0 < cider["pairs_touched"] <= cider["pairs"]
    assert np.isfinite(found["exponent"]["cider"])


def test_tops_that_differ_are_an_error(captions_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = tops.every_pair

    def other(*args):
        found = full(*args)
        return found._replace(rows=found.rows[:, ::-1])

    monkeypatch.setattr(tops, "every_pair", other)
    assert call("bench", "tops", "--captions", str(captions_dir), "--measures", "cider", "--top", "4") == 2

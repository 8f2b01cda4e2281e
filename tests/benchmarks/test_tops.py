"""`capgrade bench tops` prints what it promises, and sees tops that are not those of all pairs."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from capgrade.benchmarks import tops
from tests.conftest import call, caption_table, random_sets, write_captions_folder


@pytest.fixture(scope="module")
def captions_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("tops") / "captions"
    write_captions_folder(folder, [caption_table(random_sets(80, seed=2))])
    return folder


def test_json(captions_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        call("bench", "tops", "--captions", str(captions_dir), "--measures", "meteor", "--set", "bench.top=4", "--json")
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"meteor"}
    meteor = found["meteor"]
    assert {"seconds", "all_pairs_seconds", "ratio", "pairs_touched", "same"} <= set(meteor)
    assert meteor["same"] is True
    assert meteor["ratio"] == pytest.approx(meteor["all_pairs_seconds"] / meteor["seconds"])
    assert meteor["thread_ratio"] == pytest.approx(meteor["all_pairs_thread_seconds"] / meteor["thread_seconds"])
    assert 0 < meteor["pairs_touched"] <= meteor["pairs"]


def test_seconds_of_other_threads_count() -> None:
    def spin() -> None:
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass

    def way() -> None:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(spin).result()

    assert tops.on_one_thread(way)[0] >= 0.05


def test_tops_that_differ_are_an_error(captions_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = tops.every_pair

    def other(*args):
        found = full(*args)
        return found._replace(rows=found.rows[:, ::-1])

    monkeypatch.setattr(tops, "every_pair", other)
    assert call("bench", "tops", "--captions", str(captions_dir), "--measures", "meteor", "--set", "bench.top=4") == 2

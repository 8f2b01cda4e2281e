"""`capgrade bench tops` prints what it promises, and sees tops that are not those of all pairs."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from capgrade.benchmarks import tops
from capgrade.pipelines.measures.sbert import FittedSbert, Sbert, first_of_text
from capgrade.pipelines.measures.tops import named
from capgrade.schemas.captions import read_captions
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


def test_a_mixture_is_fitted_on_shares_of_its_parts(
    captions_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its parts' bounds, however few captions there are; and no caption is encoded again."""
    captions = read_captions(captions_dir)
    vectors, same = np.random.default_rng(3).normal(size=(captions.n_captions, 256)), first_of_text(captions.texts)
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)[same]
    fitted = FittedSbert(captions.ref_ptr, captions.refs, vectors, same, "max", False)
    encoded: list[int] = []
    monkeypatch.setattr(Sbert, "fit", lambda _, captions: encoded.append(captions.n_captions) or fitted)
    monkeypatch.setattr(named, "LEAST", named.NAMED)
    command = ["bench", "tops", "--captions", str(captions_dir), "--measures", "m", "--top", "2", "--json"]
    assert call(*command, "--set", "measures.mixtures={m: {cider: 0.1, sbert: 1}}") == 0
    found = json.loads(capsys.readouterr().out)["m"]
    assert found["same"] is True
    assert 0 < found["pairs_touched"] < found["pairs"]
    assert encoded == [captions.n_captions]


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
    assert call("bench", "tops", "--captions", str(captions_dir), "--measures", "cider", "--top", "4") == 2

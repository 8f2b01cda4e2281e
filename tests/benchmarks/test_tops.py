"""`capgrade bench tops` gives what it promises, and sees tops that are not those of all pairs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from capgrade.benchmarks import tops
from capgrade.schemas.captions import read_captions
from tests.conftest import call, caption_table, random_sets, write_captions_folder


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(tops, "TOP", 4)
    write_captions_folder(tmp_path / "captions", [caption_table(random_sets(80, seed=2))])
    return ["bench", "tops", "--captions", str(tmp_path / "captions"), "--json"]


def test_the_search_beside_all_pairs_and_peers(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*command) == 0
    rows = json.loads(capsys.readouterr().out)
    meteor = rows["meteor"]
    assert meteor["ratio"] == pytest.approx(meteor["all_pairs_seconds"] / meteor["seconds"])
    assert 0 < meteor["pairs_touched"] <= meteor["pairs"] and meteor["same"]
    assert rows["faiss"]["images"] == rows["meteor"]["images"]
    assert all(row["images_per_second_and_core"] > 0 for row in rows.values())
    captions = read_captions(Path(command[3]), None)
    vectors = np.random.default_rng(0).standard_normal((captions.n_captions, tops.DIM), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = tops.faiss_tops(captions)(np.array([3, 7]))
    for row, image in zip(found, (3, 7), strict=True):
        values = (vectors[captions.owner == image] @ vectors.T).max(axis=0)
        np.testing.assert_allclose(values[row], np.sort(values)[::-1][:4], rtol=0, atol=1e-6)


def test_tops_that_differ_are_an_error(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = tops.every_pair

    def other(*args):
        found = full(*args)
        return found._replace(rows=found.rows[:, ::-1])

    monkeypatch.setattr(tops, "every_pair", other)
    assert call(*command) == 2
    assert "the tops of cider are not those of all pairs" in capsys.readouterr().err

"""The peers are the real packages; uv and bm25s do what capgrade asks of them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from capgrade.benchmarks import tops
from capgrade.schemas.captions import read_captions
from tests.conftest import caption_table, write_captions_folder
from tests.peers.conftest import PACKAGES
from tests.test_label import SCRIPT, SETS, labels_of, write_csv


@pytest.mark.parametrize("name", PACKAGES)
def test_a_peer_is_the_package_of_the_registry(name: str) -> None:
    assert "site-packages" in str(importlib.import_module(name).__file__)


def test_an_image_s_captions_are_its_best_by_bm25(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tops, "TOP", 2)
    sets = [["red dog", "big red dog"], ["two men chess", "chess men"], ["green train", "train station"]]
    write_captions_folder(tmp_path / "captions", [caption_table(sets)])
    captions = read_captions(tmp_path / "captions")
    found = tops.bm25s_tops(captions)(np.arange(3))
    assert [sorted(captions.owner[row].tolist()) for row in found] == [[0, 0], [1, 1], [2, 2]]


def test_uv_runs_the_script_in_an_environment_that_it_makes(tmp_path: Path) -> None:
    write_csv(tmp_path / "captions.csv")
    uv = str(Path(sys.executable).with_name("uv"))
    found = labels_of(uv, "run", str(SCRIPT), "captions.csv", cwd=tmp_path)
    assert found["p1"][0] == SETS["p2"][0]

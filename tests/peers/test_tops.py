"""`capgrade bench tops` times bm25s itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capgrade.benchmarks import tops
from capgrade.schemas.captions import read_captions
from tests.conftest import caption_table, write_captions_folder


def test_an_image_s_captions_are_its_best_by_bm25(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tops, "TOP", 2)
    sets = [["red dog", "big red dog"], ["two men chess", "chess men"], ["green train", "train station"]]
    write_captions_folder(tmp_path / "captions", [caption_table(sets)])
    captions = read_captions(tmp_path / "captions")
    found = tops.bm25s_tops(captions)(np.arange(3))
    assert [sorted(captions.owner[row].tolist()) for row in found] == [[0, 0], [1, 1], [2, 2]]

"""An input that is rewritten while it is read is an error, and nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capgrade.schemas.errors import InputError
from capgrade.trainer.evaluation import evaluate as stage
from capgrade.trainer.evaluation import tables
from tests.conftest import call, caption_table, random_sets, write_captions_folder


@pytest.fixture
def given(tmp_path: Path) -> list[str]:
    captions = write_captions_folder(tmp_path / "captions", [caption_table(random_sets(6, least=2, most=2))])
    np.save(tmp_path / "s.npy", np.random.default_rng(0).random((6, 12)).astype(np.float32))
    return ["evaluate", "--captions", str(captions), "--similarity", str(tmp_path / "s.npy"), "--out"]


def test_evaluate_sees_a_similarity_that_changes(
    given: list[str], tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    score = stage.score

    def meanwhile(*args: Any, **named: Any) -> Any:
        np.save(tmp_path / "s.npy", np.ones((6, 12), np.float32))
        return score(*args, **named)

    monkeypatch.setattr(stage, "score", meanwhile)
    assert call(*given, str(tmp_path / "out")) == 2
    assert "similarity: changed while this run read it" in capsys.readouterr().err
    assert not (tmp_path / "out" / "metrics.json").exists()


def test_tables_see_a_run_that_changes(given: list[str], tmp_path: Path, monkeypatch: Any) -> None:
    assert call(*given, str(tmp_path / "run")) == 0
    runs, side_by_side, file = {"mine": tmp_path / "run"}, tables.side_by_side, tmp_path / "run" / "metrics.json"

    def meanwhile(*args: Any) -> str:
        text = side_by_side(*args)
        file.write_text(file.read_text().replace("whole", "other"))  # of the same size, as its manifest asks
        return text

    assert tables.write_tables(runs, ["recall@1"], tmp_path / "tables")
    monkeypatch.setattr(tables, "side_by_side", meanwhile)
    with pytest.raises(InputError, match="mine: changed while this run read it"):
        tables.write_tables(runs, ["recall@1"], tmp_path / "other")
    assert not (tmp_path / "other" / "runs.md").exists()

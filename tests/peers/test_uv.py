"""uv itself runs the script that needs no installation."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.test_label import SCRIPT, SETS, labels_of, write_csv


def test_uv_runs_the_script_in_an_environment_that_it_makes(tmp_path: Path) -> None:
    write_csv(tmp_path / "captions.csv")
    uv = str(Path(sys.executable).with_name("uv"))
    found = labels_of(uv, "run", str(SCRIPT), "captions.csv", cwd=tmp_path)
    assert found["p1"][0] == SETS["p2"][0]

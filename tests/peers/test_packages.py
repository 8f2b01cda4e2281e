"""The peers are the real packages; uv does what capgrade asks of it."""

import importlib
import sys
from pathlib import Path

import pytest

from tests.peers.conftest import PACKAGES
from tests.test_label import SCRIPT, SETS, labels_of, write_csv


@pytest.mark.parametrize("name", PACKAGES)
def test_a_peer_is_the_package_of_the_registry(name: str) -> None:
    assert "site-packages" in str(importlib.import_module(name).__file__)


def test_uv_runs_the_script_in_an_environment_that_it_makes(tmp_path: Path) -> None:
    write_csv(tmp_path / "captions.csv")
    uv = str(Path(sys.executable).with_name("uv"))
    found = labels_of(uv, "run", str(SCRIPT), "captions.csv", cwd=tmp_path)
    assert found["p1"][0] == SETS["p2"][0]

"""Every path for a GPU on a device that says cuda:0 and computes here, in a process where it comes before torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.fake_gpu.build import LIBRARY, build, missing

FOLDER = ROOT / "tests" / "fake_gpu"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if reason := missing():
        pytest.skip(reason)
    return build(tmp_path_factory.mktemp("guard"))


@pytest.mark.parametrize("file", sorted(path.name for path in FOLDER.glob("test_*.py")))
def test_on_the_fake_gpu(file: str, library: Path) -> None:
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, LIBRARY: str(library), "PYTHONPATH": paths}
    command = [sys.executable, "-m", "pytest", "-x", "-p", "tests.fake_gpu.device", str(FOLDER / file)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and "failed" not in done.stdout

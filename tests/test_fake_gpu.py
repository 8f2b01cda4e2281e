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


def test_on_the_fake_gpu(tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(reason)
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, LIBRARY: str(build(tmp_path)), "PYTHONPATH": paths}
    command = [sys.executable, "-m", "pytest", "-p", "tests.fake_gpu.device", str(FOLDER)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and "failed" not in done.stdout

"""Memory of processes: their own, not that of who started them."""

import os
import subprocess
import sys

import numpy as np
import pytest

from capgrade.schemas.times import peak_mb

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux counts it")
CHILD = "from capgrade.schemas.times import {0}; print({0}())"


def told(name: str) -> float:
    command = [sys.executable, "-c", CHILD.format(name)]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def test_a_child_does_not_begin_with_what_its_parent_had() -> None:
    before = peak_mb()
    held = np.ones(60_000_000)  # 480 MB
    assert peak_mb() > 480 and peak_mb() >= before and peak_mb() == peak_mb(os.getpid())
    assert 5 < told("peak_mb") < 300
    assert 5 < told("_largest_mb") < 300
    assert held[0] == 1


def test_a_process_that_has_ended_has_none() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert peak_mb(process.pid) == 0

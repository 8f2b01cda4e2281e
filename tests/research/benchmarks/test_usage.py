"""Memory of processes: their own, not that of who started them."""

import os
import subprocess
import sys

import numpy as np
import pytest

from research.benchmarks.usage import peak_mb

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux counts it")
CHILD = "from research.benchmarks.usage import peak_mb; print(peak_mb())"


def told() -> float:
    command = [sys.executable, "-c", CHILD]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def test_a_child_does_not_begin_with_what_its_parent_had() -> None:
    before = peak_mb()
    held = np.ones(60_000_000)  # 480 MB
    assert peak_mb() > 480 and peak_mb() >= before and peak_mb() == peak_mb(os.getpid())
    assert 5 < told() < 300
    assert held[0] == 1


def test_a_process_that_has_ended_has_none() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert peak_mb(process.pid) == 0

"""What needs no extra works without them: tests/core, in a process that cannot import what the
extras bring."""

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT


def test_the_core_works_without_the_extras(tmp_path: Path) -> None:
    core = ROOT / "tests" / "core"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        os.devnull,
        "--rootdir",
        str(core),
        str(core),
    ]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "CAPGRADE_CORE_ALONE": ""}
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "core")],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]

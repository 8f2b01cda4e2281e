"""Every path for a GPU on a device that says cuda:0 and computes here, in a process where it comes
before torch."""

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.fake_gpu import LIBRARY

FOLDER = ROOT / "tests" / "fake_gpu"
TORCH_VERSIONS = ("2.13",)  # private interfaces: tried with these


def build(folder: Path) -> Path:
    """Compile guard.cpp (2 seconds) against the installed torch, whose build for processors then
    accepts a device cuda:0; returns the library."""
    torch, out = Path(sysconfig.get_paths()["purelib"]) / "torch", folder / "libguard.so"
    include = [f"-I{torch / part}" for part in ("include", "include/torch/csrc/api/include")]
    link = [f"-L{torch / 'lib'}", f"-Wl,-rpath,{torch / 'lib'}", "-ltorch_cpu", "-lc10"]
    flags = ["-std=c++20", "-O0", "-shared", "-fPIC"]
    subprocess.run(
        ["g++", *flags, str(FOLDER / "guard.cpp"), "-o", str(out), *include, *link], check=True
    )
    return out


def test_on_the_fake_gpu(tmp_path: Path) -> None:
    if not (found := version("torch")).startswith(TORCH_VERSIONS):
        pytest.skip(
            f"the fake GPU is written for torch {', '.join(TORCH_VERSIONS)}; this is {found}"
        )
    if not shutil.which("g++"):
        pytest.skip("no g++ to build the fake GPU with")
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, LIBRARY: str(build(tmp_path)), "PYTHONPATH": paths}
    command = [sys.executable, "-m", "pytest", "-p", "tests.fake_gpu.device", str(FOLDER)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and "failed" not in done.stdout

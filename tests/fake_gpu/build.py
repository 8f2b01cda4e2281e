"""The library that makes torch's build for processors accept a device cuda:0; without torch, which must come later."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from importlib.metadata import version
from pathlib import Path

TORCH_VERSIONS = ("2.13",)  # private interfaces: tried with these
LIBRARY = "CAPGRADE_FAKE_GPU"  # the environment variable that says where the built library is


def missing() -> str | None:
    """Why there can be no fake GPU here, or None."""
    found = version("torch")
    if not found.startswith(TORCH_VERSIONS):
        return f"the fake GPU is written for torch {', '.join(TORCH_VERSIONS)}; this is {found}"
    return None if shutil.which("g++") else "no g++ to build the fake GPU with"


def build(folder: Path) -> Path:
    """Compile guard.cpp (2 seconds) against the installed torch; returns the library."""
    torch, out = Path(sysconfig.get_paths()["purelib"]) / "torch", folder / "libguard.so"
    include = [f"-I{torch / part}" for part in ("include", "include/torch/csrc/api/include")]
    link = [f"-L{torch / 'lib'}", f"-Wl,-rpath,{torch / 'lib'}", "-ltorch_cpu", "-lc10"]
    source = str(Path(__file__).with_name("guard.cpp"))
    flags = ["-std=c++20", "-O0", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, source, "-o", str(out), *include, *link], check=True)
    return out

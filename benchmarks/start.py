"""`capgrade bench start`: what an import costs, and what the first run of a stage compiles."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from capgrade.benchmarks.shards import run

STAGES = ("relevance", "shards")
MEASURES = "cider,rouge_l"  # the encoder of sbert would take most of the time
IMPORT = """
import json, sys, time
start = time.perf_counter()
import capgrade.pipelines.{stage}
seconds = time.perf_counter() - start
print(json.dumps({{"seconds": seconds, "modules": sum(name.startswith("capgrade.") for name in sys.modules)}}))
"""


def bench(captions_dir: Path, split: str | None) -> dict[str, dict[str, Any]]:
    """Of each stage: import_seconds, modules (of this project), first_seconds of a run that finds no compiled kernels,
    seconds of the next run, and compile_seconds, their difference."""
    result = {}
    for stage in STAGES:
        command = [sys.executable, "-c", IMPORT.format(stage=stage)]
        imported = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        options = ["--captions", str(captions_dir), "--measures", MEASURES, *(["--split", split] if split else [])]
        with tempfile.TemporaryDirectory() as scratch:
            first, second = (
                run(stage, [*options, "--out", f"{scratch}/{k}"], NUMBA_CACHE_DIR=f"{scratch}/kernels")["seconds"]
                for k in range(2)
            )
        result[stage] = {
            "import_seconds": imported["seconds"], "modules": imported["modules"], "first_seconds": first,
            "seconds": second, "compile_seconds": first - second,
        }  # fmt: skip
    return result


def show(result: dict[str, dict[str, Any]]) -> str:
    """A line for each stage."""
    return "\n".join(
        f"{stage}: imports {row['modules']} modules in {row['import_seconds']:.1f} s; the first run takes "
        f"{row['first_seconds']:.1f} s, the next {row['seconds']:.1f} s: {row['compile_seconds']:.1f} s of compilation"
        for stage, row in result.items()
    )

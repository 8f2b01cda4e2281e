"""The time to import stages, and to compile kernels in their first run; give few captions."""

import json
import subprocess
import sys
import tempfile

from research.benchmarks.harness import Asked, Rows
from research.benchmarks.shards import run

_STAGES = ("relevance", "shards")
_MEASURES = "cider,rouge_l"  # The encoder of sbert would take most of the time.
IMPORT = """
import json, sys, time
start = time.perf_counter()
import capgrade.pipelines.{stage}
seconds = time.perf_counter() - start
modules = sum(name.startswith("capgrade.") for name in sys.modules)
print(json.dumps({{"seconds": seconds, "modules": modules}}))
"""


def bench(asked: Asked) -> Rows:
    """For each stage: import_seconds, modules (of this project), first_seconds of a run without
    compiled kernels, seconds of the next run, compile_seconds (their difference), and the peak
    memory of both."""
    result = {}
    options = ["--captions", str(asked.captions), "--measures", _MEASURES]
    options += ["--split", asked.bench.split] if asked.bench.split else []
    for stage in _STAGES:
        command = [sys.executable, "-c", IMPORT.format(stage=stage)]
        process = subprocess.run(command, capture_output=True, text=True, check=True)
        imported = json.loads(process.stdout)
        with tempfile.TemporaryDirectory() as scratch:
            kernels = f"{scratch}/kernels"
            first, second = (
                run(stage, [*options, "--out", f"{scratch}/{k}"], NUMBA_CACHE_DIR=kernels)
                for k in range(2)
            )
        result[stage] = {
            "import_seconds": imported["seconds"],
            "modules": imported["modules"],
            "first_seconds": first["seconds"],
            "seconds": second["seconds"],
            "compile_seconds": first["seconds"] - second["seconds"],
            "first_peak_mb": first["peak_mb"],
            "peak_mb": second["peak_mb"],
        }
    return result

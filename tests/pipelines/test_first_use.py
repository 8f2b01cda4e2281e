"""What a first run compiles: the kernels that it calls, and none beside them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, caption_table, random_sets, write_captions_folder

RUN = """
import sys
from numba.core.dispatcher import Dispatcher
from capgrade.pipelines.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code
for module in list(sys.modules.values()):
    for name, kernel in list(vars(module).items()):
        if isinstance(kernel, Dispatcher) and kernel.signatures:
            print(kernel.py_func.__module__.removeprefix("capgrade."), kernel.py_func.__name__, sep=".")
"""


@pytest.mark.parametrize("command", ["relevance", "shards"])
def test_no_kernel_that_is_not_needed(command: str, tmp_path: Path) -> None:
    captions = write_captions_folder(
        tmp_path / "captions", [caption_table(random_sets(8, seed=1, least=2))]
    )
    given = [
        "--captions",
        str(captions),
        "--measures",
        "cider,rouge_l",
        "--set",
        f"{command}.split=test",
    ]
    run = [sys.executable, "-c", RUN, command, *given, "--out", str(tmp_path / "out")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = set(
        subprocess.run(run, env=env, check=True, capture_output=True, text=True).stdout.split("\n")
    )
    assert {"measures.cider.kernel.score_images", "measures.rouge.kernel.score_block"} <= found
    assert ("pipelines.sampling.draws._draw" in found) == (command == "shards")

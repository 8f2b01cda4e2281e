"""Workers of WriteShards that are killed with -9 at file operations drawn by a seed, and started again.

    python -m tests.pipelines.execution.killed FOLDER MOMENTS SEED

FOLDER holds `captions`; files go to FOLDER/out by way of FOLDER/url. Each worker is a fork that does every element, as
a runner hands them out again: every second one from nothing, the others from what the one before has left. Prints how
many were killed, and how many file operations a run from nothing has.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from random import Random

os.environ |= {"NUMBA_THREADING_LAYER": "workqueue", "NUMBA_NUM_THREADS": "1"}  # numba's only one that may be forked

from capgrade.pipelines.beam_shards import RUN, WriteBlock, WriteShards  # noqa: E402
from tests.pipelines.execution.test_beam_files import SMALL  # noqa: E402

EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"}


def work(folder: Path) -> None:
    """All elements of the pipeline, one after the other."""
    out, there = f"file://{folder}/out", f"file://{folder}/url"
    transform = WriteShards(out, there, SMALL, captions=f"file://{folder}/captions")

    run = transform.fit.run((0, {RUN: ["one"]}))
    transform.target.claimed(run)
    writer = WriteBlock(transform.target)
    files = [one for block in range(run.job.n_blocks) for _, one in writer.process((run, block))]
    transform.target.finished(files)


def killed(folder: Path, after: int) -> bool:
    """Was it, before it had done so many file operations?"""
    child, status = os.fork(), 1
    if not child:
        try:
            counted(folder, after)
            status = 0
        finally:
            os._exit(status)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended in (0, -signal.SIGKILL), ended
    return ended != 0


def counted(folder: Path, after: int = 0) -> int:
    """How many file operations the work has; killed before the one of this number."""
    done, watching = 0, True

    def count(event: str, given: tuple) -> None:  # a hook stays for ever
        nonlocal done
        if watching and event in EVENTS and str(given[0]).startswith(str(folder)):
            done += 1
            if done == after:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    work(folder)
    watching = False
    return done


def afresh(folder: Path) -> None:
    """What earlier workers have left is gone."""
    for name in ("machine", "out", "url"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "machine").mkdir()


def main(folder: Path, moments: int, seed: int) -> None:
    """Print how many were killed, of how many file operations."""
    tempfile.tempdir = str(folder / "machine")
    afresh(folder)
    fresh, again = counted(folder), counted(folder)  # kernels are loaded here, and not in each fork
    manifest, there = (folder / "out" / "manifest.json").read_bytes(), folder / "out" / "manifest.json"
    draw, deaths = Random(seed), 0
    for k in range(moments):
        if k % 2 == 0:
            afresh(folder)
        deaths += killed(folder, draw.randint(1, again if k % 2 else fresh))
        assert not there.exists() or there.read_bytes() == manifest
    assert not killed(folder, 0)
    print(deaths, fresh)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

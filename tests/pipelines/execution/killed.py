"""Runs that are killed with -9 at file operations drawn by a seed, whose parts are damaged, and that are started again.

    python -m tests.pipelines.execution.killed FOLDER MOMENTS SEED

FOLDER holds `captions`. Each run is a fork; every third starts from nothing, the others from what the one before has
left, perhaps damaged. Whatever happens, the end is every byte of a run left alone, or one clear error whose remedy
helps; until then what was finished stays as it is. Prints a line for each way to run: its name, how many runs were
killed, how many files were damaged, and how many file operations a run from nothing has.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from unittest.mock import patch

os.environ |= {"NUMBA_THREADING_LAYER": "workqueue", "NUMBA_NUM_THREADS": "1"}  # numba's only one that may be forked

from capgrade.measures.params import MeasuresParams  # noqa: E402
from capgrade.pipelines.beam_shards import RUN, WriteBlock, WriteShards  # noqa: E402
from capgrade.pipelines.execution import job as module  # noqa: E402
from capgrade.pipelines.relevance import relevance  # noqa: E402
from capgrade.pipelines.shards import ShardsPart, join_shards, shards  # noqa: E402
from capgrade.schemas.errors import InputError  # noqa: E402
from capgrade.schemas.files import digest, open_arrow  # noqa: E402
from capgrade.schemas.params import RelevanceParams, ShardsParams, WindowsParams
from tests.conftest import contents  # noqa: E402

EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"}
SMALL = ShardsParams(measures=("rouge_l",), top=3, uniform=4, windows=WindowsParams(per_window=1), block_images=2)
DENSE = RelevanceParams(measures=("rouge_l", "cider"), block_images=4)
NEVER = 10**9
SHARDS: dict[str, dict[str, bytes]] = {}


def dense(folder: Path) -> None:
    """`capgrade relevance`."""
    relevance(folder / "captions", folder / "out", DENSE, MeasuresParams())


def sampled(folder: Path) -> None:
    """`capgrade shards`."""
    shards(folder / "captions", folder / "out", SMALL, MeasuresParams())


def exchanged(folder: Path) -> None:
    """`capgrade shards` by way of a URL, each block handed out twice, to workers of their own."""

    def twice(job: module.Job, todo: Sequence[int], _: Sequence[str]) -> None:
        for block in (*todo, *todo):
            module.Worker(job).make(block)

    there = SMALL.model_copy(update={"exchange": f"file://{folder}/url"})
    with patch.object(module, "_run", twice):
        shards(folder / "captions", folder / "out", there, MeasuresParams())


def in_parts(folder: Path) -> None:
    """`capgrade shards --part` in any order and again, then `--join`."""
    given = (folder / "captions", folder / "out", SMALL, MeasuresParams())
    for number in (2, 1, 3, 2):
        shards(*given, part=ShardsPart(number, 3))
    join_shards(*given)


def by_beam(folder: Path) -> None:
    """All elements of `WriteShards`, one after the other, as a runner hands them out again."""
    transform = WriteShards(f"file://{folder}/out", f"file://{folder}/url", SMALL, captions=f"file://{folder}/captions")
    run = transform.fit.run((0, {RUN: ["one"]}))
    transform.target.claimed(run)
    writer = WriteBlock(transform.target)
    files = [one for block in range(run.job.n_blocks) for _, one in writer.process((run, block))]
    transform.target.finished(files)


WORK: tuple[Callable[[Path], None], ...] = (dense, sampled, exchanged, in_parts, by_beam)


def ended(work: Callable[[Path], None], folder: Path, after: int = NEVER) -> int:
    """The status of a run that is killed before so many file operations. What an error advises is done."""
    child, status = os.fork(), 1
    if not child:
        try:
            counted(work, folder, after)
            status = 0
        except InputError as error:
            assert error.remedy and "\n" not in str(error), error
            status = 2
        finally:
            os._exit(status)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 2, -signal.SIGKILL), code
    if code == 2:  # "delete the folder", "make it again", "run again"
        for name in ("url", "out.parts"):
            shutil.rmtree(folder / name, ignore_errors=True)
    return code


def counted(work: Callable[[Path], None], folder: Path, after: int = NEVER) -> int:
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


def finished(folder: Path) -> dict[Path, tuple[int, int]]:
    """Inode and time of each receipt, and of each part, which is as its receipt says. Each file has all its content."""
    found = []
    for receipt in folder.rglob("*.unfinished/parts/*-.json"):
        listed = json.loads(receipt.read_text())["files"]
        parts = {receipt.parents[1] / name: entry["sha256"] for name, entry in listed.items()}
        whole = all(part.is_file() and digest(part) == sha for part, sha in parts.items())
        assert whole or (folder / "url").exists(), receipt  # from there the receipt comes first
        found += [receipt, *parts] if whole else []
    for path in folder.rglob("*.arrow"):
        open_arrow(path)
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def damaged(folder: Path, draw: Random) -> bool:
    """A part, a receipt, or what is at the URL has another byte, is cut short or is gone. False where there is none."""
    found = [sorted(path for path in folder.rglob(at) if path.is_file()) for at in ("parts/*.*", "url/**/*.*")]
    files = draw.choice([some for some in found if some] or [[]])
    if not files:
        return False
    file = draw.choice(files)
    data = bytearray(file.read_bytes())
    kind = draw.choice(("flipped", "cut", "gone"))
    if kind == "gone":
        file.unlink()
    elif kind == "cut":
        file.write_bytes(data[:-9])
    elif data:
        data[draw.randrange(len(data))] ^= 1
        file.write_bytes(data)
    return True


def afresh(folder: Path) -> None:
    """What earlier runs have left is gone."""
    for name in ("machine", "out", "out.unfinished", "out.parts", "url"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "machine").mkdir()


def killed(work: Callable[[Path], None], folder: Path, moments: int, seed: int) -> tuple[int, int, int]:
    """How many were killed, how many files were damaged, and how many file operations a run has."""
    draw = Random(seed)
    afresh(folder)
    operations = counted(work, folder)  # kernels are loaded here, and not in each fork
    whole, deaths, damages = contents(folder / "out"), 0, 0
    if work in (sampled, exchanged, in_parts):
        assert whole == SHARDS.setdefault("of all ways", whole)
    for k in range(moments):
        if k % 3 == 0:
            afresh(folder)
        before = finished(folder)
        deaths += ended(work, folder, draw.randint(1, operations)) < 0
        if not (folder / "out" / "manifest.json").exists():
            after = finished(folder)
            assert work is in_parts or before.items() <= after.items()  # a part that ends deletes its own
        else:
            assert (folder / "out" / "manifest.json").read_bytes() == whole["manifest.json"]
        if k % 3 == 1:
            damages += damaged(folder, draw)
            left = [ended(work, folder) for _ in range(2)]  # the first may be an error
            assert left[1] == 0 and contents(folder / "out") == whole, left
    return deaths, damages, operations


if __name__ == "__main__":
    tempfile.tempdir = f"{sys.argv[1]}/machine"
    for work in WORK:
        print(work.__name__, *killed(work, Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])), flush=True)

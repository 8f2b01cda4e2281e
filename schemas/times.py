"""Time and memory of a command, in files of a folder `.times` beside its outputs.

No manifest lists them, so the bytes of outputs stay the same. They are written where the folder is
there; `make repro` makes one in data/.
"""

import math
import re
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_json, write_text
from capgrade.schemas.lines import read_json
from capgrade.schemas.say import first_process

TIMES = ".times"  # folder beside an output, with a file for it
_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes that `getrusage` counts memory in
HIGH_WATER = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True)
class Time:
    """What a command took, the last time that it ended well.

    `processor_seconds` are with child processes; `peak_mb` is the largest memory of one process, in
    MB (10^6 bytes).
    """

    command: str
    seconds: float
    processor_seconds: float
    peak_mb: float


def _file(out: Path) -> Path | None:
    """The file for the times of an output, in a folder beside it or beside the folder it is in.

    None where there is no such folder.
    """
    for folder in (out.parent, out.parent.parent):
        if (folder / TIMES).is_dir():
            return folder / TIMES / f"{'+'.join(out.relative_to(folder).parts)}.json"
    return None


@contextmanager
def timed(command: str, out: Path) -> Iterator[None]:
    """Write what the block took where times are kept, if it ends well and wrote something."""
    clock, before, file = time.perf_counter(), processor_seconds(), _file(out)
    yield
    if file and out.exists() and first_process():
        seconds, spent = time.perf_counter() - clock, processor_seconds() - before
        write_json(
            file, asdict(Time(command, round(seconds, 3), round(spent, 3), round(_largest_mb(), 1)))
        )


def read_time(out: Path) -> Time | None:
    """What a command took that wrote `out`; None when it was not recorded.

    InputError for a file that is something else.
    """
    path = _file(out)
    if path is None or not path.is_file():
        return None
    try:
        return Time(**read_json(path))
    except TypeError as error:
        raise InputError(
            f"not a record of times ({error})", file=path, remedy="delete it"
        ) from None


def write_epoch_time(out: Path, epoch: int, seconds: float, pairs: int) -> None:
    """Write where times are kept what an epoch of a training took; it replaces later ones."""
    if (file := _file(out)) is None:
        return
    path, head = file.with_suffix(".epochs.csv"), "epoch,seconds,pairs_per_s\n"
    before = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
    line = f"{epoch},{seconds:.3f},{pairs / seconds:.1f}\n"
    write_text(path, "".join([*(before[:epoch] or [head]), line]))


def processor_seconds() -> float:
    """Processor seconds of this process, and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _largest_mb() -> float:
    """MB of the largest of this process and its children, whose count begins with its own."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * _UNIT / 1e6
    return max(peak_mb(), children)


def peak_mb(pid: int | None = None) -> float:
    """MB (10^6 bytes) in memory at most so far, of this process or another; 0 of one that ended.

    `getrusage` counts the parent's memory too, so Linux's own count is read. Elsewhere it is that
    of `getrusage`, and of other processes not a number.
    """
    status = Path(f"/proc/{pid or 'self'}/status")
    if Path("/proc/self/status").exists():
        try:
            match = HIGH_WATER.search(status.read_text(encoding="utf-8"))
        except (FileNotFoundError, ProcessLookupError):
            match = None
        return int(match[1]) * 1024 / 1e6 if match else 0.0
    return math.nan if pid else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT / 1e6

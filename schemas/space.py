"""Room on the disk: what a stage will write, told and refused before it starts."""

import shutil
from pathlib import Path

from capgrade.schemas.errors import InputError
from capgrade.schemas.say import tell

WORTH_SAYING = 10**9  # bytes; less is nobody's concern unless it is not there


def require_space(out: Path, result: int, *, parts: int = 0, done: int = 0) -> None:
    """Say what `out` will need at most, from a gigabyte on: bytes of the result, and of parts that
    stay beside it until the end. `done` of them are there, of a run that was stopped.

    InputError when the disk has less free.
    """
    folder = out.absolute()
    while not folder.is_dir():
        folder = folder.parent
    free, needed = shutil.disk_usage(folder).free, result + parts - done
    while_running = f"about {spoken(needed)} of disk" + (
        ", parts and result together" if parts else ""
    )
    if needed > free:
        remedy = (
            "make room, or give an --out on another disk; a smaller split or fewer measures need"
            " less"
        )
        raise InputError(
            f"needs {while_running}, and {spoken(free)} are free", file=out, remedy=remedy
        )
    if needed >= WORTH_SAYING:
        tell(f"needs {while_running}" + (f"; {spoken(result)} in the end" if parts else ""))


def spoken(size: int) -> str:
    """Bytes in a unit that is easily read: 12 kB, 3.4 GB."""
    for unit, power in (("TB", 12), ("GB", 9), ("MB", 6)):
        if size >= 10**power:
            return f"{size / 10**power:.3g} {unit}"
    return f"{size / 1000:.3g} kB"


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder; none where there is no folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

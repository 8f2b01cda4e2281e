"""One process holds a file at a time; a file of somebody else is never written over."""

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from capgrade.schemas.errors import InputError
from capgrade.schemas.locks import HeldError, locked, read_lock
from capgrade.schemas.output import LOCK, only_run, output_folder


def dead_process() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture(params=[errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
def _no_flock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks."""

    def flock(*_: object) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", flock)


def test_a_file_is_held_by_one_and_names_it(tmp_path: Path) -> None:
    file = tmp_path / "new" / "lock"
    with locked(file):
        assert read_lock(file)[0] == os.getpid()
        with pytest.raises(HeldError) as held, locked(file, 0.05):
            pass
        assert held.value.process == os.getpid() and held.value.certain
    with locked(file, 0, remove=True):
        pass
    assert not file.parent.exists()


FOREIGN: dict[str, Callable[[Path, Path], object]] = {
    "a hard link": lambda lock, mine: lock.hardlink_to(mine),
    "a link": lambda lock, mine: lock.symlink_to(mine),
    "a link to nothing": lambda lock, mine: lock.symlink_to(mine.with_name("nothing")),
    "a file of the user": lambda lock, mine: lock.write_text("my own"),
    "a folder": lambda lock, mine: lock.mkdir(),
    "a pipe": lambda lock, mine: os.mkfifo(lock),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_is_not_our_lock_is_not_written_over(kind: str, tmp_path: Path) -> None:
    mine, lock = tmp_path / "mine", tmp_path / "out.unfinished" / LOCK
    mine.write_text("12345\n" if kind == "a hard link" else "mine")
    before = mine.read_text()
    lock.parent.mkdir()
    FOREIGN[kind](lock, mine)
    with (
        pytest.raises(
            InputError, match=f"{LOCK}: it is there and capgrade did not write it -> move"
        ),
        output_folder(tmp_path / "out", "shards", {"of": 1}),
    ):
        pass
    assert mine.read_text() == before and os.path.lexists(lock)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "out.unfinished"]
    assert kind != "a file of the user" or lock.read_text() == "my own"


@pytest.mark.usefixtures("_no_flock")
def test_without_locks_no_dead_process_holds_a_folder(tmp_path: Path, capsys) -> None:
    out, lock = tmp_path / "out", tmp_path / "out.unfinished" / LOCK
    lock.parent.mkdir()
    host = os.uname().nodename
    for text in ("", f"{dead_process()}\n", f"{dead_process()} {host}\n"):
        lock.write_text(text)
        with only_run(out):
            assert read_lock(lock) == (os.getpid(), host)
        assert not lock.parent.exists()
        lock.parent.mkdir()
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "has no locks (flock), so start no second run" in said


@pytest.mark.usefixtures("_no_flock")
def test_without_locks_a_living_process_holds_it(tmp_path: Path) -> None:
    out, lock = tmp_path / "out", tmp_path / "out.unfinished" / LOCK
    program = "import sys; print('here', flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    lock.parent.mkdir()
    lock.write_text(f"{other.pid}\n")
    remedy = f"-> wait until it has ended, .* if there is no such run, delete {lock}"
    with pytest.raises(InputError, match=rf"process {other.pid}\) {remedy}"), only_run(out):
        pass
    other.communicate()
    with only_run(out), pytest.raises(InputError, match="another run"), only_run(out):
        pass
    lock.parent.mkdir()
    lock.write_text("1 another-machine\n")
    with pytest.raises(InputError, match="process 1 of another-machine"), only_run(out):
        pass

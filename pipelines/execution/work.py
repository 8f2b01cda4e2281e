"""The folder of an unfinished run, with what it has done so far."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import WORK, canonical, package_version, remove_temporaries, writing
from capgrade.schemas.inputs import folder_digest
from capgrade.schemas.output import begin, output_folder


@contextmanager
def work_folder(out: Path, stage: str, key: Any) -> Iterator[Path]:
    """`out/.work`, kept until `write_manifest` ends the run it belongs to, emptied when `key` or the code say another
    run.

    No other run may write to `out` meanwhile, and `out` has no manifest: its files may be of either run.
    Raises InputError when another stage wrote `out` or another run is writing there, when a worker was killed, when the
    disk is full, or when it may not be written.
    """
    work = out / WORK
    name = hashlib.sha256(canonical([package_version(), _code(), key]).encode()).hexdigest()
    marker = work / "key"
    with writing(out), output_folder(out, stage), _workers_watched(out), _said_once():
        remove_temporaries(out)
        begin(out)
        if not marker.is_file() or marker.read_bytes() != name.encode():
            shutil.rmtree(work, ignore_errors=True)
            (work / "parts").mkdir(parents=True)
            marker.write_text(name, encoding="utf-8")
        yield work


def _code() -> str:
    """SHA-256 over the sources that parts are made by: they may change where the version does not."""
    root = Path(__file__).parents[2]
    return folder_digest(root, (path for name in ("schemas", "pipelines") for path in (root / name).rglob("*.py")))


@contextmanager
def _workers_watched(out: Path) -> Iterator[None]:
    """InputError when one of Beam's worker processes was killed: Beam would wait for its answer for ever."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def told(found: threading.ExceptHookArgs) -> None:
        code = re.search(r"Worker subprocess exited with return code (-?\d+)", str(found.exc_value))
        if code and (int(code[1]) < 0 or int(code[1]) >= 128):  # by a signal, and not after an error of its own
            os.kill(os.getpid(), signal.SIGUSR1)
        elif not code:
            hook(found)

    def stop(*_: object) -> None:
        _end_workers(os.getpid())
        remedy = "run again, it goes on; fewer workers need less memory"
        raise InputError("a worker process was killed, perhaps for want of memory", file=out, remedy=remedy)

    hook, handler = threading.excepthook, signal.signal(signal.SIGUSR1, stop)
    threading.excepthook = told
    try:
        yield
    finally:
        threading.excepthook = hook
        signal.signal(signal.SIGUSR1, handler)


def _end_workers(process: int) -> None:
    """Kill the workers that a process has started: those that are not connected yet do not hear that all is over, and
    Beam waits for them. Only where there is /proc."""
    for listing in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # threads and processes end meanwhile
            for child in map(int, listing.read_text(encoding="ascii").split()):
                _end_workers(child)
                if b"sdk_worker_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(child, signal.SIGKILL)


@contextmanager
def _said_once() -> Iterator[None]:
    """Beam logs what a worker raises with three tracebacks before it is raised here."""
    log = logging.getLogger("apache_beam")
    level = log.level
    if not os.environ.get("CAPGRADE_DEBUG"):
        log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)

"""The folder of an unfinished run, with what it has done so far."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from schemas.files import canonical, package_version


@contextmanager
def work_folder(out: Path, key: Any) -> Iterator[Path]:
    """`out/.work`, kept while the run it belongs to is unfinished and emptied when `key` says another run."""
    work = out / ".work"
    name = hashlib.sha256(canonical([package_version(), key]).encode()).hexdigest()
    marker = work / "key"
    if not marker.is_file() or marker.read_text() != name:
        shutil.rmtree(work, ignore_errors=True)
        (work / "parts").mkdir(parents=True)
        marker.write_text(name)
    yield work
    shutil.rmtree(work)

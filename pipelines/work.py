"""The folder of an unfinished run, with what it has done so far."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from schemas.files import MANIFEST, WORK, canonical, package_version, remove_temporaries, writing
from schemas.lock import only_run


@contextmanager
def work_folder(out: Path, key: Any) -> Iterator[Path]:
    """`out/.work`, kept until `write_manifest` ends the run it belongs to, emptied when `key` says another run.

    No other run may write to `out` meanwhile, and `out` has no manifest: its files may be of either run.
    Raises InputError when another run is writing there, when the disk is full, or when it may not be written.
    """
    work = out / WORK
    name = hashlib.sha256(canonical([package_version(), key]).encode()).hexdigest()
    marker = work / "key"
    with writing(out), only_run(out):
        remove_temporaries(out)
        (out / MANIFEST).unlink(missing_ok=True)
        if not marker.is_file() or marker.read_bytes() != name.encode():
            shutil.rmtree(work, ignore_errors=True)
            (work / "parts").mkdir(parents=True)
            marker.write_text(name)
        yield work

"""The folder of an unfinished run, with what it has done so far."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from capgrade.schemas.files import KEY, WORK, canonical, package_version, remove_temporaries, remove_work, writing
from capgrade.schemas.inputs import folder_digest
from capgrade.schemas.output import begin, output_folder


@contextmanager
def work_folder(out: Path, stage: str, key: Any) -> Iterator[Path]:
    """`out/.work`, kept until `write_manifest` ends the run it belongs to, emptied when `key` or the code say another
    run.

    No other run may write to `out` meanwhile, and `out` has no manifest: its files may be of either run.
    Raises InputError when another stage wrote `out` or another run is writing there, when the disk is full, or when it
    may not be written.
    """
    work = out / WORK
    name = hashlib.sha256(canonical([package_version(), code_digest(), key]).encode()).hexdigest()
    marker = work / KEY
    with writing(out), output_folder(out, stage):
        remove_temporaries(out)
        begin(out)
        if not marker.is_file() or marker.read_bytes() != name.encode():
            remove_work(out)
            (work / "parts").mkdir(parents=True)
            marker.write_text(name, encoding="utf-8")
        yield work


def code_digest() -> str:
    """SHA-256 over the sources that parts are made by: they may change where the version does not."""
    root = Path(__file__).parents[2]
    return folder_digest(root, (path for name in ("schemas", "pipelines") for path in (root / name).rglob("*.py")))

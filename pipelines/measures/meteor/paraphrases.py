"""METEOR's paraphrase table as arrays, made once from the text that pycocoevalcap carries, and kept."""

from __future__ import annotations

import gzip
import zlib
from functools import cache
from pathlib import Path

import numpy as np

from capgrade.pipelines.measures.embeddings import cache_folder
from capgrade.pipelines.measures.meteor.phrases import Paraphrases, compiled
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import CACHE, atomic
from capgrade.schemas.inputs import file_digest
from capgrade.schemas.say import tell, warn

VERSION = 1  # of the arrays
AGAIN = "install pycocoevalcap again"


@cache
def read_paraphrases(path: Path) -> Paraphrases:
    """The table of METEOR's paraphrase file, read once a process; its arrays are kept in `$CAPGRADE_CACHE/meteor`.

    InputError when the file cannot be read or is cut short.
    """
    folder = cache_folder().parent / "meteor" / f"{file_digest(path)[:16]}-{VERSION}"
    found = _kept(folder)
    if found is None:
        found = _compile(path)
        _keep(found, folder)
    return found


def _compile(path: Path) -> Paraphrases:
    tell("reading METEOR's paraphrases, once")
    try:
        return compiled(np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8))
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot be read: {error}", file=path, remedy=AGAIN) from error
    except ValueError as error:
        raise InputError(str(error), file=path, remedy=AGAIN) from error


def _kept(folder: Path) -> Paraphrases | None:
    """None where there is none, or a file is damaged."""
    try:
        # Copy on write: kernels are compiled once, for writable arrays.
        arrays = [np.asarray(np.load(folder / f"{n}.npy", mmap_mode="c")) for n in Paraphrases._fields]
    except (OSError, ValueError, EOFError):
        return None
    found = Paraphrases(*arrays)
    whole = len(found.ptr) == len(found.phrase) + 1 and found.ptr[-1] == len(found.other) == len(found.rank)
    return found if whole else None


def _keep(table: Paraphrases, folder: Path) -> None:
    try:
        for name, array in table._asdict().items():
            with atomic(folder / f"{name}.npy", CACHE) as temporary, temporary.open("wb") as f:
                np.save(f, array, allow_pickle=False)
    except (OSError, InputError) as error:
        warn(f"METEOR's paraphrases cannot be kept, so every process reads them anew: {error} -> set CAPGRADE_CACHE")

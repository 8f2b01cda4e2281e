"""Bytes of every format changed at random: a file is read or refused with InputError, and nothing else is raised."""

from __future__ import annotations

import random
from pathlib import Path

import h5py
import numpy as np
import pytest

from pipelines.features import READERS, WRITERS
from schemas.errors import InputError

from .made import made

IMAGES = [made(str(k), 3, 8, seed=k) for k in range(3)]


def write(name: str, folder: Path) -> tuple[Path, Path]:
    """The path to read and the file to damage."""
    if name == "tsv":
        WRITERS["tsv"](folder / "a.tsv", IMAGES)
        return folder / "a.tsv", folder / "a.tsv"
    if name == "npz":
        WRITERS["npz"](folder, IMAGES[:1])
        return folder, folder / "0.npz"
    WRITERS["scan"](folder / "t_ims.npy", IMAGES)
    if name == "scan":
        return folder / "t_ims.npy", folder / "t_ims.npy"
    with h5py.File(folder / "t.h5", "w") as f:
        f.create_dataset("feat", data=np.stack([image.features for image in IMAGES]), compression="gzip")
    return folder / "t.h5", folder / "t.h5"


@pytest.mark.parametrize("name", ["tsv", "npz", "scan", "h5"])
def test_changed_bytes(tmp_path: Path, name: str) -> None:
    path, target = write(name, tmp_path)
    whole = target.read_bytes()
    rng = random.Random(0)
    refused = 0
    for k in range(500):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 3])):
            data[rng.randrange(min(len(data), 400) if k % 2 else len(data))] = rng.randrange(256)
        target.write_bytes(data)
        try:
            list(READERS[name](path))
        except InputError as error:
            assert str(tmp_path) in str(error) and "\n" not in str(error)
            refused += 1
    assert refused > 50

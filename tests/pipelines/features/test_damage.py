"""Bytes changed at random: a file is read or refused with InputError, and nothing else is raised.

HDF5 is damaged at chosen places instead: on a few random changes its library itself never returns.
"""

from __future__ import annotations

import random
from pathlib import Path

import h5py
import numpy as np
import pytest

from capgrade.pipelines.features import READERS, WRITERS
from capgrade.schemas.errors import InputError

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
    return folder / "t_ims.npy", folder / "t_ims.npy"


@pytest.mark.parametrize("name", ["tsv", "npz", "scan"])
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


@pytest.mark.parametrize("part", [b"HDF", b"TREE", b"SNOD", b"HEAP", b"feat"])
def test_damaged_parts_of_h5(tmp_path: Path, part: bytes) -> None:
    path = tmp_path / "t.h5"
    (tmp_path / "t_ids.txt").write_text("0\n1\n2\n")
    with h5py.File(path, "w") as f:
        f.create_dataset("feat", data=np.stack([image.features for image in IMAGES]))
    assert len(list(READERS["h5"](path))) == 3
    data = path.read_bytes()
    assert part in data
    path.write_bytes(data.replace(part, b"\xff" * len(part)))
    with pytest.raises(InputError, match="t.h5: (cannot be read|no dataset 'feat')"):
        list(READERS["h5"](path))

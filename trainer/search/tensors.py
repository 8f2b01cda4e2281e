"""A safetensors file that is filled row by row: what it holds need never be in memory as a whole."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from capgrade.trainer.models.base import Encoded

PARTS = ("vector", "parts", "mask")
NAMES = {"F32": np.float32, "BOOL": np.bool_}


def create(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Write the header of a safetensors file and return its tensors, zeros, as arrays on disk: masks bool, others
    float32."""
    entries, at = {}, 0
    for name, shape in shapes.items():
        kind = "BOOL" if name.endswith(".mask") else "F32"
        size = math.prod(shape) * np.dtype(NAMES[kind]).itemsize
        entries[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries).encode()
    header = text + b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + at)
    start = 8 + len(header)
    return {name: _mapped(path, entry, start) for name, entry in entries.items()}


def _mapped(path: Path, entry: dict, start: int) -> np.ndarray:
    offset, end = entry["data_offsets"]
    shape, kind = tuple(entry["shape"]), NAMES[entry["dtype"]]
    return np.memmap(path, kind, "r+", start + offset, shape) if end > offset else np.zeros(shape, kind)


def shapes_of(side: str, encoded: Encoded, rows: int, longest: int) -> dict[str, tuple[int, ...]]:
    """The shapes of `rows` items encoded as these, sets padded to `longest`."""
    found = {}
    for name in PARTS:
        tensor = getattr(encoded, name)
        if tensor is not None:
            inner = tuple(tensor.shape[1:]) if name == "vector" else (longest, *tensor.shape[2:])
            found[f"{side}.{name}"] = (rows, *inner)
    return found


def fill(tensors: Mapping[str, np.ndarray], side: str, at: int, encoded: Encoded) -> None:
    """Put encoded items at rows `at`..; what is behind a set stays zero."""
    for name in PARTS:
        tensor = getattr(encoded, name)
        if tensor is not None:
            values = tensor.detach().cpu().numpy()
            target = tensors[f"{side}.{name}"][at : at + len(values)]
            target[:, : values.shape[1]] = values

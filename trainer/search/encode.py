"""A split through a trained model: encodings of every image and caption, in memory and on disk, and their scores.

On disk they are a safetensors file that is filled row by row: what it holds need never be in memory as a whole.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from capgrade.trainer.data.pairs import Pairs
from capgrade.trainer.models.base import Encoded, Images, RetrievalModel, Texts

_T = TypeVar("_T", Images, Texts)
SIZE = 256  # images or captions encoded at a time


@torch.inference_mode()
def encode_images(model: RetrievalModel, batches: Iterable[Images]) -> Encoded:
    """Every image in order, on the model's device."""
    device = next(model.parameters()).device
    return joined([model.encode_images(to_device(batch, device)) for batch in batches])


@torch.inference_mode()
def encode_captions(model: RetrievalModel, batches: Iterable[Texts]) -> Encoded:
    """Every caption in order, on the model's device."""
    device = next(model.parameters()).device
    return joined([model.encode_captions(to_device(batch, device)) for batch in batches])


@torch.inference_mode()
def similarity(model: RetrievalModel, pairs: Pairs) -> np.ndarray:
    """Scores of every caption of a split for every image, float32 [n_images, n_captions]."""
    images = encode_images(model, pairs.image_batches(SIZE))
    captions = encode_captions(model, pairs.caption_batches(SIZE))
    return scores(model, images, captions)


@torch.inference_mode()
def scores(model: RetrievalModel, images: Encoded, captions: Encoded) -> np.ndarray:
    """float32 [images, captions]; models bound the memory it takes themselves."""
    return model.scores(images, captions).float().cpu().numpy()


def rows(encoded: Encoded, start: int, stop: int) -> Encoded:
    """Some of the items."""
    return Encoded(*(None if x is None else x[start:stop] for x in (encoded.vector, encoded.parts, encoded.mask)))


def taken(encoded: Encoded, at: np.ndarray) -> Encoded:
    """The items at these places, int64 [n]."""
    places = torch.from_numpy(at)
    return Encoded(
        *(None if x is None else x[places.to(x.device)] for x in (encoded.vector, encoded.parts, encoded.mask))
    )


def joined(parts: list[Encoded]) -> Encoded:
    """Encodings of one batch after the other, padded to the longest set."""
    longest = max(0 if p.mask is None else p.mask.shape[1] for p in parts)

    def all_of(name: str) -> torch.Tensor | None:
        found = [getattr(p, name) for p in parts]
        if found[0] is None:
            return None
        if name == "vector":
            return torch.cat(found)
        return torch.cat([_padded(x, longest) for x in found])

    return Encoded(all_of("vector"), all_of("parts"), all_of("mask"))


def _padded(x: torch.Tensor, length: int) -> torch.Tensor:
    """[B, L, ...] -> [B, length, ...], zeros or False behind."""
    return torch.cat([x, x.new_zeros(x.shape[0], length - x.shape[1], *x.shape[2:])], dim=1)


def to_device(batch: _T, device: torch.device) -> _T:
    """The batch on another device. Its memory is not pinned, so the copy is waited for."""
    return type(batch)(**{name: tensor.to(device) for name, tensor in vars(batch).items() if tensor is not None})


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

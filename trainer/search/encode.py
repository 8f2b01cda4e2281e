"""A split through a trained model: encodings of every image and caption, in memory and on disk, and their scores.

On disk they are a safetensors file that is filled row by row: what it holds need never be in memory as a whole.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch.nn.functional import pad

from capgrade.schemas.files import reserve
from capgrade.trainer.data.pairs import Pairs
from capgrade.trainer.models.base import CaptionTokens, Encoded, Images, RetrievalModel

_T = TypeVar("_T", Images, CaptionTokens)
SIZE = 256  # images or captions encoded at a time


def encode_images(model: RetrievalModel, batches: Iterable[Images]) -> Encoded:
    """Every image in order, on the model's device."""
    return _encoded(model, model.encode_images, batches)


def encode_captions(model: RetrievalModel, batches: Iterable[CaptionTokens]) -> Encoded:
    """Every caption in order, on the model's device."""
    return _encoded(model, model.encode_captions, batches)


@torch.inference_mode()
def _encoded(model: RetrievalModel, encode: Callable[[_T], Encoded], batches: Iterable[_T]) -> Encoded:
    device = next(model.parameters()).device
    return joined([encode(to_device(batch, device)) for batch in batches])


def encode_split(model: RetrievalModel, pairs: Pairs) -> tuple[Encoded, Encoded]:
    """Every image and every caption of a split."""
    return encode_images(model, pairs.image_batches(SIZE)), encode_captions(model, pairs.caption_batches(SIZE))


@torch.inference_mode()
def scores(model: RetrievalModel, images: Encoded, captions: Encoded) -> np.ndarray:
    """float32 [images, captions]; models bound the memory it takes themselves."""
    return model.scores(images, captions).float().cpu().numpy()


def joined(parts: list[Encoded]) -> Encoded:
    """Encodings of one batch after the other, padded to the longest set."""
    longest = max(0 if part.mask is None else part.mask.shape[1] for part in parts)

    def of(name: str) -> torch.Tensor | None:
        tensors = [getattr(part, name) for part in parts]
        if tensors[0] is None:
            return None
        if name != "vector":
            tensors = [pad(x, (0, 0) * (x.ndim - 2) + (0, longest - x.shape[1])) for x in tensors]
        return torch.cat(tensors)

    return Encoded(*map(of, PARTS))


def to_device(batch: _T, device: torch.device) -> _T:
    """The batch on another device. Its memory is not pinned, so the copy is waited for."""
    return type(batch)(**{name: tensor.to(device) for name, tensor in vars(batch).items() if tensor is not None})


PARTS = ("vector", "parts", "mask")
NAMES = {"F32": np.float32, "BOOL": np.bool_}


def create(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Write the header of a safetensors file and return its tensors, zeros, as arrays on disk: masks bool, others
    float32."""
    entries: dict[str, Any] = {}
    at = 0
    for name, shape in shapes.items():
        kind = "BOOL" if name.endswith(".mask") else "F32"
        size = math.prod(shape) * np.dtype(NAMES[kind]).itemsize
        entries[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries).encode()
    header = text + b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
    reserve(path, 8 + len(header) + at)
    data = np.memmap(path, np.uint8, "r+", 8 + len(header))
    return {
        name: data[slice(*one["data_offsets"])].view(NAMES[one["dtype"]]).reshape(one["shape"])
        for name, one in entries.items()
    }


def shapes_of(side: str, encoded: Encoded, rows: int, longest: int) -> dict[str, tuple[int, ...]]:
    """The shapes of `rows` items encoded as these, sets padded to `longest`."""
    there = {name: tensor for name in PARTS if (tensor := getattr(encoded, name)) is not None}
    inner = {name: x.shape[1:] if name == "vector" else (longest, *x.shape[2:]) for name, x in there.items()}
    return {f"{side}.{name}": (rows, *shape) for name, shape in inner.items()}


def fill(tensors: Mapping[str, np.ndarray], side: str, at: int, encoded: Encoded) -> None:
    """Put encoded items at rows `at`..; what is behind a set stays zero."""
    for name in PARTS:
        if (tensor := getattr(encoded, name)) is not None:
            values = tensor.detach().cpu().numpy()
            tensors[f"{side}.{name}"][at : at + len(values), : values.shape[1]] = values

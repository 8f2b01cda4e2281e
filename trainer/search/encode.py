"""A split through a trained model: encodings of every image and caption, in memory and on disk, and
their scores.

On disk they are .npy files that are filled row by row: what they hold need never be in memory as a
whole.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

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
def _encoded(
    model: RetrievalModel, encode: Callable[[_T], Encoded], batches: Iterable[_T]
) -> Encoded:
    device = next(model.parameters()).device
    return joined([encode(to_device(batch, device)) for batch in batches])


def encode_split(model: RetrievalModel, pairs: Pairs) -> tuple[Encoded, Encoded]:
    """Every image and every caption of a split."""
    return encode_images(model, pairs.image_batches(SIZE)), encode_captions(
        model, pairs.caption_batches(SIZE)
    )


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

    return Encoded(*map(of, ENCODED_PARTS))


def to_device(batch: _T, device: torch.device) -> _T:
    """The batch on another device. Its memory is not pinned, so the copy is waited for."""
    return type(batch)(
        **{name: tensor.to(device) for name, tensor in vars(batch).items() if tensor is not None}
    )


ENCODED_PARTS = ("vector", "parts", "mask")


def create_array(path: Path, shape: tuple[int, ...], dtype: type = np.float32) -> np.memmap:
    """An .npy file of zeros as an array on disk, of which nothing is in memory. Its room is taken
    first: OSError on a full disk, where the array would end the process."""
    array = np.lib.format.open_memmap(path, "w+", dtype, shape)
    reserve(path, path.stat().st_size)
    return array


def create_arrays(
    folder: Path, side: str, encoded: Encoded, rows: int, longest: int
) -> dict[str, np.memmap]:
    """Arrays on disk for `rows` items encoded as these, sets padded to `longest`: "images.vector"
    is in images.vector.npy; masks are bool, others float32. OSError as `create_array`."""
    arrays = {}
    for name in ENCODED_PARTS:
        if (tensor := getattr(encoded, name)) is not None:
            inner = tensor.shape[1:] if name == "vector" else (longest, *tensor.shape[2:])
            file, dtype = folder / f"{side}.{name}.npy", np.bool_ if name == "mask" else np.float32
            arrays[f"{side}.{name}"] = create_array(file, (rows, *inner), dtype)
    return arrays


def fill(arrays: Mapping[str, np.ndarray], side: str, at: int, encoded: Encoded) -> None:
    """Put encoded items at rows `at`..; what is behind a set stays zero."""
    for name in ENCODED_PARTS:
        if (tensor := getattr(encoded, name)) is not None:
            values = tensor.detach().cpu().numpy()
            arrays[f"{side}.{name}"][at : at + len(values), : values.shape[1]] = values

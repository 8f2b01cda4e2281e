"""A split through a trained model: encodings of every image and caption, in memory and on disk, and
their scores. On disk they are .npy files that are filled row by row, so that they need not fit in
memory."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import pad

from capgrade.schemas.files import reserve
from capgrade.trainer.data.pairs import SplitPairs
from capgrade.trainer.models.base import CaptionTokens, Encoded, Images, RetrievalModel

SIZE = 256  # images or captions encoded at a time


@torch.inference_mode()
def encode_batches(
    model: RetrievalModel, batches: Iterable[Images] | Iterable[CaptionTokens]
) -> Encoded:
    """Encodings of every image or of every caption, in order, on the model's device."""
    device, parts = next(model.parameters()).device, []
    for batch in batches:
        if isinstance(batch, Images):
            parts.append(model.encode_images(batch.to(device)))
        else:
            parts.append(model.encode_captions(batch.to(device)))
    return _join_encodings(parts)


def encode_split(model: RetrievalModel, pairs: SplitPairs) -> tuple[Encoded, Encoded]:
    """Encodings of every image and of every caption of a split."""
    images = encode_batches(model, pairs.image_batches(SIZE))
    return images, encode_batches(model, pairs.caption_batches(SIZE))


@torch.inference_mode()
def compute_scores(model: RetrievalModel, images: Encoded, captions: Encoded) -> np.ndarray:
    """Similarities, float32 [images, captions]. Each model bounds the memory that it takes."""
    return model.scores(images, captions).float().cpu().numpy()


def _join_encodings(parts: list[Encoded]) -> Encoded:
    """The encodings of several batches as one, padded to the longest set."""
    longest = max(0 if part.mask is None else part.mask.shape[1] for part in parts)
    joined: dict[str, torch.Tensor | None] = dict.fromkeys(ENCODED_PARTS)
    for name in ENCODED_PARTS:
        tensors = [getattr(part, name) for part in parts]
        if tensors[0] is None:
            continue
        if name != "vector":
            tensors = [pad(x, (0, 0) * (x.ndim - 2) + (0, longest - x.shape[1])) for x in tensors]
        joined[name] = torch.cat(tensors)
    return Encoded(**joined)


ENCODED_PARTS = ("vector", "parts", "mask")


def create_array(path: Path, shape: tuple[int, ...], dtype: type = np.float32) -> np.memmap:
    """A memory-mapped .npy file of zeros. Its space on the disk is reserved first: a full disk
    raises OSError here, while a write to the array would kill the process."""
    array = np.lib.format.open_memmap(path, "w+", dtype, shape)
    reserve(path, path.stat().st_size)
    return array


def create_arrays(
    folder: Path, side: str, encoded: Encoded, rows: int, longest: int
) -> dict[str, np.memmap]:
    """Arrays on disk for `rows` items that are encoded as `encoded`, with sets padded to `longest`:
    "images.vector" is in images.vector.npy. Masks are bool, others float32. OSError as
    `create_array`."""
    arrays = {}
    for name in ENCODED_PARTS:
        if (tensor := getattr(encoded, name)) is not None:
            inner = tensor.shape[1:] if name == "vector" else (longest, *tensor.shape[2:])
            file, dtype = folder / f"{side}.{name}.npy", np.bool_ if name == "mask" else np.float32
            arrays[f"{side}.{name}"] = create_array(file, (rows, *inner), dtype)
    return arrays


def fill_arrays(arrays: Mapping[str, np.ndarray], side: str, at: int, encoded: Encoded) -> None:
    """Write encoded items to the rows from `at` on; the padding of shorter sets stays zero."""
    for name in ENCODED_PARTS:
        if (tensor := getattr(encoded, name)) is not None:
            values = tensor.detach().cpu().numpy()
            arrays[f"{side}.{name}"][at : at + len(values), : values.shape[1]] = values

"""A split through a trained model: encodings of every image and caption, and their similarity matrix."""

from __future__ import annotations

from collections.abc import Iterable
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

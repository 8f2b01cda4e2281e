"""Small batches for the models' tests: sets of different sizes, in any amount of padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from capgrade.trainer.models.base import Encoded, Images, Texts

FEATURES = 12
VOCABULARY = 20
REGIONS = (4, 6, 1, 5, 6)
WORDS = (3, 7, 1, 5, 3, 4)


def prefix(lengths: Sequence[int], padded: int) -> Tensor:
    return torch.arange(padded) < torch.tensor(lengths).unsqueeze(1)


def images(regions: Sequence[int] = REGIONS, padded: int = 6, garbage: float = 0.0, seed: int = 0) -> Images:
    """Regions of seeded features; what is padding holds `garbage`."""
    features = torch.randn(len(regions), 6, FEATURES, generator=torch.Generator().manual_seed(seed))
    mask = prefix(regions, padded)
    whole = torch.full((len(regions), padded, FEATURES), garbage)
    whole[:, :6] = features[:, :padded]
    whole[~mask] = garbage
    return Images(whole, torch.zeros(len(regions), padded, 5), mask)


def texts(words: Sequence[int] = WORDS, padded: int = 7, seed: int = 1) -> Texts:
    tokens = torch.randint(1, VOCABULARY, (len(words), 7), generator=torch.Generator().manual_seed(seed))
    mask = prefix(words, padded)
    whole = torch.zeros(len(words), padded, dtype=torch.int64)
    whole[:, :7] = tokens
    return Texts(whole * mask, mask)


def close(ours: Tensor, expected: Tensor, tolerance: float = 1e-6) -> None:
    difference = (ours - expected).abs().max().item()
    assert difference <= tolerance, f"largest difference {difference}"


def encoded(model: Any, regions: int = 6, words: int = 7, garbage: float = 0.0) -> tuple[Encoded, Encoded]:
    """The small batches through a model, in its own precision."""
    batch = images(padded=regions, garbage=garbage)
    batch = replace(batch, features=batch.features.to(next(model.parameters()).dtype))
    return model.encode_images(batch), model.encode_captions(texts(padded=words))


def gradients(model: torch.nn.Module, *found: Tensor) -> dict[str, Tensor]:
    """Of a sum that weighs every number of the outputs otherwise, by parameter."""
    model.zero_grad()
    sum((x * torch.arange(x.numel()).view_as(x).cos()).sum() for x in found).backward()  # type: ignore[union-attr]
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def same_in_bfloat16(model: torch.nn.Module, outputs: Callable[[], Sequence[Tensor]], tolerance: float) -> None:
    """Outputs under autocast are those of float32 within the tolerance, the first in float32; gradients are finite."""
    expected = outputs()
    with torch.autocast("cpu", torch.bfloat16):
        found = outputs()
    assert found[0].dtype == torch.float32
    for ours, wanted in zip(found, expected, strict=True):
        close(ours, wanted, tolerance)
    graded = gradients(model, *found)
    assert graded and all(gradient.isfinite().all() for gradient in graded.values())

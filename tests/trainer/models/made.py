"""Small batches for the models' tests: sets of different sizes, in any amount of padding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from capgrade.trainer.models.base import Images, Texts

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

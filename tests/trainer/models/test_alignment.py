"""Poolings against loops over pairs, forward and backward."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from capgrade.trainer.models import alignment, encoders
from capgrade.trainer.models.alignment import Pooling, align, alignment_matrix
from capgrade.trainer.models.base import Encoded


def made(counts: list[int], length: int, seed: int, holes: bool = False, dtype=torch.float32) -> Encoded:
    """Random unit parts, `counts` of `length` taking part, at random places if `holes`."""
    generator = torch.Generator().manual_seed(seed)
    parts = normalize(torch.randn(len(counts), length, 6, generator=generator, dtype=dtype), dim=-1)
    mask = torch.arange(length) < torch.tensor(counts)[:, None]
    if holes:
        mask = torch.stack([row[torch.randperm(length, generator=generator)] for row in mask])
    return Encoded(None, parts, mask)


def slow(images: Encoded, captions: Encoded, pooling: str, padding: str, evaluation: bool) -> Tensor:
    """One pair after the other; the authors' padding as cells of 0."""
    rows = [part[mask] for part, mask in zip(images.parts, images.mask, strict=True)]
    columns = [part[mask] for part, mask in zip(captions.parts, captions.mask, strict=True)]
    R, W = (36, 85) if evaluation else (max(map(len, rows)), max(map(len, columns)))
    scores = torch.zeros(len(rows), len(columns))
    for i, regions in enumerate(rows):
        for c, words in enumerate(columns):
            if len(regions) and len(words):
                scores[i, c] = one(regions, words, pooling, (R, W) if padding == "authors" else None)
    return scores


def one(regions: Tensor, words: Tensor, pooling: str, padded: tuple[int, int] | None) -> Tensor:
    A = regions @ words.T
    if pooling == "scan":
        seen = normalize(A.relu(), dim=0).softmax(1) @ words
        return torch.cosine_similarity(regions, seen, dim=1).sum()
    if padded:
        A = torch.nn.functional.pad(A, (0, padded[1] - A.shape[1], 0, padded[0] - A.shape[0]))
    by_word, by_region = A.amax(0).sum(), A.amax(1).sum()
    values = {"MrSw": by_word, "MwSr": by_region, "symm": by_word + by_region, "MrAVGw": by_word / len(words)}
    return values[pooling]


@pytest.mark.parametrize("pooling", get_args(Pooling))
@pytest.mark.parametrize("padding", ["ignored", "authors"])
@pytest.mark.parametrize("evaluation", [False, True])
def test_equals_loop_over_pairs(monkeypatch, pooling, padding, evaluation):
    """In values and in gradients."""
    monkeypatch.setattr(alignment, "EVAL_IMAGES", 3)
    monkeypatch.setitem(encoders.TILE_NODES, "cpu", 20)  # several blocks and tiles
    images = made([4, 0, 7, 1, 36 if evaluation else 7], 40 if evaluation else 9, 0)
    captions = made([3, 5, 1, 0, 8, 2, 5], 9, 1, holes=True)
    weights, found = torch.randn(5, 7, generator=torch.Generator().manual_seed(4)), []
    weights[:, 3] = 0  # in the authors' code a caption of no words divides by 0
    for score in (align, slow):
        leaves = [side.parts.clone().requires_grad_() for side in (images, captions)]
        sides = (
            Encoded(None, normalize(x, dim=-1), side.mask) for x, side in zip(leaves, (images, captions), strict=True)
        )
        scores = score(*sides, pooling, padding, evaluation)
        (scores * weights).sum().backward()
        found.append([scores.detach() * (weights != 0), *(leaf.grad for leaf in leaves)])
    assert found[0][0].dtype == torch.float32
    tolerances = (1e-5, *(2 * [1e-5 if evaluation else 1e-6]))
    for mine, theirs, tolerance in zip(*found, tolerances, strict=True):
        assert (mine - theirs).abs().max() < tolerance, (mine - theirs).abs().max()


def test_matrix_of_one_pair():
    images, captions = made([2], 3, 15), made([2], 4, 16, holes=True)
    A = alignment_matrix(images, captions)
    assert A.shape == (3, 4) and A.isnan().sum() == 12 - 4
    assert torch.allclose(A[:2].nan_to_num(-9).amax(0).clamp(min=-1)[captions.mask[0]].sum(), align(images, captions))

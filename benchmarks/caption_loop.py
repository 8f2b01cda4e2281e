"""SCAN, SAF and SGR as they are usually written, a loop over the captions of a batch: peers of `capgrade bench train`.

Plain autograd, the weights of our model, the products in the order of the papers' equations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import BatchNorm1d
from torch.nn.functional import cosine_similarity, leaky_relu, normalize

from capgrade.trainer.models.base import Encoded
from capgrade.trainer.models.scan import Scan
from capgrade.trainer.models.sgraf import Reasoning, Saf, Sgr, Sgraf


def saf_loop(model: Saf, images: Encoded, captions: Encoded) -> Tensor:
    """Scores [images, captions]; in training the running statistics move once a caption, as they do in `model`."""

    def filtered(nodes: Tensor) -> Tensor:
        logits = BatchNorm1d.forward(model.norm, model.gate(nodes).transpose(1, 2))  # (n, 1, N)
        weights = logits.sigmoid()
        weights = weights / (weights.sum(2, keepdim=True) + 1e-8)
        return normalize((weights @ nodes).squeeze(1), dim=-1)

    return looped(model, images, captions, filtered)


def sgr_loop(model: Sgr, images: Encoded, captions: Encoded) -> Tensor:
    """Scores [images, captions]."""

    def reasoned(nodes: Tensor) -> Tensor:
        for step in model.graph:
            assert isinstance(step, Reasoning)
            edges = (step.query(nodes) @ step.key(nodes).transpose(1, 2)).softmax(-1)
            nodes = step.value(edges @ nodes).relu()
        return nodes[:, 0]

    return looped(model, images, captions, reasoned)


def looped(model: Sgraf, images: Encoded, captions: Encoded, one_vector: Callable[[Tensor], Tensor]) -> Tensor:
    regions, mask, columns = images.parts, images.mask, []
    assert regions is not None and mask is not None and images.vector is not None
    assert captions.parts is not None and captions.mask is not None and captions.vector is not None
    for words, length, whole in zip(captions.parts, captions.mask.sum(1).tolist(), captions.vector, strict=True):
        words = words[:length]
        logits = leaky_relu(regions @ words.T, 0.1)  # (n, R, L)
        logits = logits / (logits.norm(dim=2, keepdim=True) + 1e-8)
        logits = (model.config.temperature * logits).masked_fill(~mask.unsqueeze(2), -torch.inf)
        context = normalize(logits.softmax(1).transpose(1, 2) @ regions, dim=-1)  # (n, L, D)
        local = normalize(model.local((context - words) ** 2), dim=-1)
        pooled = normalize(model.whole((images.vector - whole) ** 2), dim=-1)
        nodes = torch.cat([pooled.unsqueeze(1), local], 1)  # (n, 1 + L, K)
        columns.append(model.out(one_vector(nodes)).sigmoid())
    return torch.cat(columns, 1)


def scan_loop(model: Scan, images: Encoded, captions: Encoded) -> Tensor:
    """Scores [images, captions] of SCAN's own first norm, clipped_l2norm, and of all regions of an image."""
    regions, columns, config = images.parts, [], model.config
    assert regions is not None and captions.parts is not None and captions.mask is not None
    for words, length in zip(captions.parts, captions.mask.sum(1).tolist(), strict=True):
        ours = words[:length].expand(len(regions), -1, -1)
        queries, keys = (ours, regions) if config.direction == "t2i" else (regions, ours)
        logits = leaky_relu(keys @ queries.transpose(1, 2), 0.1)  # (n, keys, queries)
        logits = logits / (logits.norm(dim=2, keepdim=True) + 1e-8)
        context = (config.temperature * logits).softmax(1).transpose(1, 2) @ keys
        cosines = cosine_similarity(queries, context, dim=2)
        pooled: dict[str, Any] = {"mean": cosines.mean, "sum": cosines.sum, "max": cosines.amax}
        if config.pooling == "lse":
            columns.append((config.sharpness * cosines).logsumexp(1) / config.sharpness)
        else:
            columns.append(pooled[config.pooling](1))
    return torch.stack(columns, 1)

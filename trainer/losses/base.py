"""What a loss sees of a batch, and what losses share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ScoredBatch:
    """B pairs of an image and one of its captions, scored against each other; pair i is row i and column i.

    With several processes this is the gathered batch. What nobody asked for is None.
    """

    scores: Tensor  # float [B, B], similarity of image i and caption j
    own: Tensor  # bool [B, B], caption j is one of image i's; the diagonal always is
    relevance: Tensor | None = None  # float [B, B], of caption j to image i's reference set
    known: Tensor | None = None  # bool [B, B], where `relevance` is known; None: everywhere
    image_relevance: Tensor | None = None  # float [B, B], between images
    caption_relevance: Tensor | None = None  # float [B, B], between captions
    images: Tensor | None = None  # float [B, D], one vector an image, of models that have one
    captions: Tensor | None = None  # float [B, D]
    image_logits: Tensor | None = None  # float [B, C], of models with a classifier
    caption_logits: Tensor | None = None
    labels: Tensor | None = None  # int64 [B], the class of each pair: its image


def asked(batch: ScoredBatch) -> tuple[Tensor, Tensor]:
    """Relevance [B, B] and where it is known, for losses that need it."""
    assert batch.relevance is not None  # the trainer gives what the catalogue says a loss needs
    known = torch.ones_like(batch.own) if batch.known is None else batch.known
    return batch.relevance, known


def off_diagonal(batch: ScoredBatch) -> Tensor:
    """bool [B, B]: True but for the pairs themselves."""
    return ~torch.eye(len(batch.scores), dtype=torch.bool, device=batch.scores.device)


def both_ways(batch: ScoredBatch) -> tuple[ScoredBatch, ScoredBatch]:
    """Queries in rows: images over captions, and captions over images."""

    def turned(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.T

    other = ScoredBatch(batch.scores.T, batch.own.T, turned(batch.relevance), turned(batch.known))
    return batch, other

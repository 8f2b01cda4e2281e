"""What a loss sees of a batch, and how one is declared."""

from __future__ import annotations

from dataclasses import dataclass

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
    image_relevance: Tensor | None = None  # float [B, B], of image j to image i
    caption_relevance: Tensor | None = None  # float [B, B], of caption j to caption i
    images: Tensor | None = None  # float [B, D], one vector an image, of models that have one
    captions: Tensor | None = None  # float [B, D]
    image_logits: Tensor | None = None  # float [B, C], of models with a classifier
    caption_logits: Tensor | None = None
    labels: Tensor | None = None  # int64 [B], the class of each pair: its image

"""What flows into and out of a retrieval model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn


@dataclass(frozen=True)
class Images:
    """A batch of images as sets of regions, padded to the largest."""

    features: Tensor  # float [B, R, D]
    boxes: Tensor  # float [B, R, 5]: x1, y1, x2, y2 and area as shares of width, height and both; zeros if unknown
    mask: Tensor  # bool [B, R], True where a region is


@dataclass(frozen=True)
class Texts:
    """A batch of captions as numbers of words or word pieces, padded to the longest.

    Special tokens ([CLS], [SEP]) are tokens: `mask` is True there too.
    """

    tokens: Tensor  # int64 [B, W], 0 is padding
    mask: Tensor  # bool [B, W], True where a token is
    images: Tensor | None = None  # int64 [B], the image of each caption, in training


@dataclass(frozen=True)
class Encoded:
    """Images or captions as a model keeps them for scoring: everything `scores` needs, one row an item."""

    vector: Tensor | None  # float [B, D], unit length; None for models that only align sets
    parts: Tensor | None = None  # float [B, L, D]: region or word vectors
    mask: Tensor | None = None  # bool [B, L], True where a part takes part


class RetrievalModel(nn.Module):
    """Images and captions are encoded apart; `scores` compares every image with every caption.

    `pieces` says what `Texts.tokens` counts: "words" (a vocabulary fitted on the training captions) or
    "word_pieces" (the tokenizer of the pretrained text encoder).
    """

    pieces: str = "words"

    @abstractmethod
    def encode_images(self, images: Images) -> Encoded: ...

    @abstractmethod
    def encode_captions(self, captions: Texts) -> Encoded: ...

    def forward(self, images: Images, captions: Texts) -> tuple[Encoded, Encoded]:
        """Both sides of a batch; what `DistributedDataParallel` calls."""
        return self.encode_images(images), self.encode_captions(captions)

    def parameter_groups(self, lr: float, text_lr: float) -> list[dict[str, Any]]:
        """For an optimiser: parameters with their learning rate; a pretrained encoder learns at `text_lr`, and its
        groups say `pretrained`."""
        return [{"params": list(self.parameters()), "lr": lr}]

    def learn_words(self, words: Sequence[str], tokens: Sequence[np.ndarray], owner: np.ndarray) -> None:
        """Told before training: the vocabulary by falling frequency, the captions learnt from and their images."""

    def own_losses(self, images: Encoded, captions: Encoded, texts: Texts) -> dict[str, Tensor]:
        """Losses that the model has of its own, scalars, means over the pairs of a batch in training."""
        return {}

    def more_scores(self, images: Encoded, captions: Encoded) -> dict[str, Tensor]:
        """Score matrices of parts of the model, [images, captions], which losses may look at (`of`)."""
        return {}

    @abstractmethod
    def scores(self, images: Encoded, captions: Encoded) -> Tensor:
        """Similarity, float32 [images, captions], higher is nearer."""

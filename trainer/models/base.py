"""What flows into and out of a retrieval model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

# Numbers of tokens that are no words of a vocabulary.
PADDING, UNKNOWN_WORD, START_TOKEN, END_TOKEN = range(4)
FIRST_WORD = 4  # the number of the first word
Config = Any  # the options of a model: a dataclass beside it
Fraction = Annotated[float, Field(ge=0, le=1)]  # of a whole, none and all among them
Transform = Callable[[np.ndarray], np.ndarray]  # uint8 (H, W, 3) RGB -> float32 [3, side, side]


@dataclass(frozen=True)
class Images:
    """A batch of images as sets of regions, padded to the largest."""

    features: Tensor  # float [B, R, D]
    # float [B, R, 5]: x1, y1, x2, y2 and area as shares of width, height and both; zeros if unknown
    boxes: Tensor
    mask: Tensor  # bool [B, R], True where a region is


@dataclass(frozen=True)
class CaptionTokens:
    """A batch of captions as numbers of words or word pieces, padded to the longest.

    Special tokens ([CLS], [SEP]) are tokens: `mask` is True there too.
    """

    tokens: Tensor  # int64 [B, W], 0 is padding
    mask: Tensor  # bool [B, W], True where a token is
    images: Tensor | None = None  # int64 [B], the image of each caption, in training


@dataclass(frozen=True)
class Encoded:
    """Images or captions as a model keeps them for scoring: everything `scores` needs, one row an
    item."""

    vector: Tensor | None  # float [B, D], unit length; None for models that only align sets
    parts: Tensor | None = None  # float [B, L, D]: region or word vectors
    mask: Tensor | None = None  # bool [B, L], True where a part takes part

    @property
    def sets(self) -> tuple[Tensor, Tensor]:
        """Parts and mask, of models that have them."""
        assert self.parts is not None and self.mask is not None
        return self.parts, self.mask

    def map(self, function: Callable[[Tensor], Tensor]) -> Encoded:
        """The same done to each tensor that is there."""
        return Encoded(
            *(None if x is None else function(x) for x in (self.vector, self.parts, self.mask))
        )

    def __getitem__(self, at: slice | Tensor) -> Encoded:
        """Some of the items."""
        return self.map(lambda x: x[at.to(x.device) if isinstance(at, Tensor) else at])

    def __len__(self) -> int:
        return len(next(x for x in (self.vector, self.parts) if x is not None))

    def split(self, size: int) -> list[Encoded]:
        """So many items at a time."""
        return [self[at : at + size] for at in range(0, len(self), size)]


def upcast(x: Tensor) -> Tensor:
    """Norms, softmax and sums are done in float32 under autocast; float64 stays what it is."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def cosines(rows: Tensor, columns: Tensor) -> Tensor:
    """Products of unit vectors [n, D] and [m, D] in float32 under autocast too: bfloat16 has 58
    values for 16,384 of them, and ties the hardest negatives."""
    with torch.autocast(rows.device.type, enabled=False):
        return upcast(rows) @ upcast(columns).T


class RetrievalModel(nn.Module):
    """Images and captions are encoded apart; `scores` compares every image with every caption.

    It is built of its configuration, the length of a region's feature and the size of the
    vocabulary.
    """

    reads: Literal["regions", "pictures"] = "regions"

    @classmethod
    def transform(cls, config: Config) -> Transform:
        """What prepares pictures for a model that reads them."""
        raise NotImplementedError

    @abstractmethod
    def encode_images(self, images: Images) -> Encoded: ...

    @abstractmethod
    def encode_captions(self, captions: CaptionTokens) -> Encoded: ...

    def forward(self, images: Images, captions: CaptionTokens) -> tuple[Encoded, Encoded]:
        """Both sides of a batch."""
        return self.encode_images(images), self.encode_captions(captions)

    def scores(self, images: Encoded, captions: Encoded) -> Tensor:
        """Similarity, float32 [images, captions], higher is nearer: the cosine of the vectors,
        unless a model says otherwise."""
        assert images.vector is not None and captions.vector is not None
        return cosines(images.vector, captions.vector)

    def parameter_groups(self, lr: float, text_lr: float) -> list[dict[str, Any]]:
        """For an optimiser: parameters with their learning rate; a pretrained encoder learns at
        `text_lr`, and its groups say `pretrained`."""
        encoders = [module for module in self.modules() if isinstance(module, Pretrained)]
        text = {id(p): p for encoder in encoders for p in encoder.parameters()}
        groups = [{"params": [p for p in self.parameters() if id(p) not in text], "lr": lr}]
        learned = [p for p in text.values() if p.requires_grad]
        return (
            [*groups, {"params": learned, "lr": text_lr, "pretrained": True}] if learned else groups
        )

    def learn_words(
        self, words: Sequence[str], tokens: Sequence[np.ndarray], owner: np.ndarray
    ) -> None:
        """Told before training: the vocabulary by falling frequency, the captions learnt from and
        their images."""

    def own_losses(
        self, images: Encoded, captions: Encoded, texts: CaptionTokens
    ) -> dict[str, Tensor]:
        """Losses that the model has of its own, scalars, means over the pairs of a batch in
        training."""
        return {}

    def more_scores(self, images: Encoded, captions: Encoded) -> dict[str, Tensor]:
        """Score matrices of parts of the model, [images, captions], which losses may look at
        (`of`)."""
        return {}


class Pretrained(nn.Module):
    """A part of a model whose weights someone else learned."""

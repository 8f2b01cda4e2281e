"""The base of retrieval models, and the batches that they take and return."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

# The numbers of tokens that are not words of a vocabulary.
PADDING, UNKNOWN_WORD, START_TOKEN, END_TOKEN = range(4)
FIRST_WORD = 4  # the number of the first word
Config = Any  # the options of a model: a dataclass beside it
Fraction = Annotated[float, Field(ge=0, le=1)]  # of a whole, none and all among them
Transform = Callable[[np.ndarray], np.ndarray]  # uint8 (H, W, 3) RGB -> float32 [3, side, side]


class Items:
    """A dataclass of tensors that have one row an item; None stands for what a model does not
    have."""

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """`function` of each tensor that is not None."""
        tensors = vars(self).values()
        return type(self)(*(None if x is None else function(x) for x in tensors))

    def to(self, device: torch.device) -> Self:
        """The items on another device. Their memory is not pinned, so the copy blocks."""
        return self.map(lambda x: x.to(device))

    def __getitem__(self, at: slice | Tensor) -> Self:
        """The items of a slice or of these numbers."""
        return self.map(lambda x: x[at.to(x.device) if isinstance(at, Tensor) else at])


@dataclass(frozen=True)
class Images(Items):
    """A batch of images as sets of regions, padded to the largest."""

    features: Tensor  # float [B, R, D]
    boxes: Tensor  # float [B, R, 5]: x1 y1 x2 y2 and area in shares of the picture; 0 if unknown
    mask: Tensor  # bool [B, R], True where a region is


@dataclass(frozen=True)
class CaptionTokens(Items):
    """A batch of captions as numbers of words or word pieces, padded to the longest; or as one
    token, which is the caption's vector.

    Special tokens ([CLS], [SEP]) are tokens: `mask` is True there too.
    """

    tokens: Tensor  # int64 [B, W], 0 is padding; or float32 [B, 1, D]
    mask: Tensor  # bool [B, W], True where a token is
    images: Tensor | None = None  # int64 [B], the image of each caption, in training


@dataclass(frozen=True)
class Encoded(Items):
    """Images or captions as a model encodes them: all that `scores` needs, with one row an item."""

    vector: Tensor | None  # float [B, D], unit length; None for models that only align sets
    parts: Tensor | None = None  # float [B, L, D]: region or word vectors
    mask: Tensor | None = None  # bool [B, L], True where a part takes part

    @property
    def sets(self) -> tuple[Tensor, Tensor]:
        """Parts and mask, of models that have them."""
        assert self.parts is not None and self.mask is not None
        return self.parts, self.mask

    def __len__(self) -> int:
        return len(next(x for x in (self.vector, self.parts) if x is not None))

    def split(self, size: int) -> list[Encoded]:
        """The items in order, `size` at a time."""
        return [self[at : at + size] for at in range(0, len(self), size)]


def upcast(x: Tensor) -> Tensor:
    """float32 in place of 16 bits, for norms, softmax and sums under autocast; float64 is kept."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def cosines(rows: Tensor, columns: Tensor) -> Tensor:
    """Products of unit vectors [n, D] and [m, D], in float32 also under autocast. In bfloat16
    16,384 of them had 58 values, which ties the hardest negatives."""
    with torch.autocast(rows.device.type, enabled=False):
        return upcast(rows) @ upcast(columns).T


class RetrievalModel(nn.Module):
    """Encodes images and captions separately; `scores` compares every image with every caption.

    Its `__init__` takes a configuration, the length of a region's feature and the size of the
    vocabulary.
    """

    reads: Literal["regions", "pictures"] = "regions"

    @classmethod
    def transform(cls, config: Config) -> Transform:
        """The function that prepares a picture, for a model that reads pictures."""
        raise NotImplementedError

    @abstractmethod
    def encode_images(self, images: Images) -> Encoded: ...

    @abstractmethod
    def encode_captions(self, captions: CaptionTokens) -> Encoded: ...

    def forward(self, images: Images, captions: CaptionTokens) -> tuple[Encoded, Encoded]:
        """The encoded images and captions of a batch."""
        return self.encode_images(images), self.encode_captions(captions)

    def scores(self, images: Encoded, captions: Encoded) -> Tensor:
        """Similarity, float32 [images, captions], higher for a better match. It is the cosine of
        the vectors, unless a model overrides it."""
        assert images.vector is not None and captions.vector is not None
        return cosines(images.vector, captions.vector)

    def parameter_groups(self, lr: float, text_lr: float) -> list[dict[str, Any]]:
        """An optimiser's groups of parameters with their learning rates. A pretrained encoder
        learns at `text_lr`, and its groups have the key `pretrained`."""
        pretrained: set[nn.Parameter] = set()
        for module in self.modules():
            if isinstance(module, Pretrained):
                pretrained.update(module.parameters())
        others, learned = [], []
        for parameter in self.parameters():
            if parameter not in pretrained:
                others.append(parameter)
            elif parameter.requires_grad:
                learned.append(parameter)
        groups: list[dict[str, Any]] = [{"params": others, "lr": lr}]
        if learned:
            groups.append({"params": learned, "lr": text_lr, "pretrained": True})
        return groups

    def learn_words(
        self, words: Sequence[str], tokens: Sequence[np.ndarray], owner: np.ndarray
    ) -> None:
        """Called before training with the vocabulary by falling frequency, the tokens of the
        training captions, and the image of each caption."""

    def own_losses(
        self, images: Encoded, captions: Encoded, texts: CaptionTokens
    ) -> dict[str, Tensor]:
        """Losses that belong to the model: scalars by name, means over the pairs of a training
        batch."""
        return {}

    def loss_tensors(self, images: Encoded, captions: Encoded) -> dict[str, Tensor | None]:
        """What a loss may read beside the scores: the vectors [B, D] of images and captions, and
        of a model with a classifier their logits [B, K]."""
        return {"images": images.vector, "captions": captions.vector}

    def more_scores(self, images: Encoded, captions: Encoded) -> dict[str, Tensor]:
        """Score matrices [images, captions] of parts of the model, which a loss may name (`of`)."""
        return {}


class Pretrained(nn.Module):
    """A part of a model that starts from pretrained weights."""

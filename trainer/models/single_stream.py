"""SemanticMap's single stream (Nawaz et al. 2019): captions drawn as images, one convolutional
network for both."""

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import fold, normalize

from capgrade.schemas.block import Positive
from capgrade.schemas.errors import InputError
from capgrade.trainer.models.base import CaptionTokens, Encoded, Images, RetrievalModel, upcast
from capgrade.trainer.models.encoders import linear


@dataclass(frozen=True)
class SingleStreamConfig:
    classes: int  # of the softmax: an image and its captions are one, so the training images
    embed: Positive = 128
    side: Positive = 8  # cells on a side of a picture: room for 64 words or regions
    cell: Positive = 4  # pixels on a side of a cell: a word's vector has 3 * 4 * 4 = 48 numbers
    width: Annotated[int, Field(gt=0, multiple_of=8)] = 64  # channels of the first stage


class _ConvolutionBlock(nn.Module):
    """x + two 3 x 3 convolutions, the first of which halves the picture where the channels grow.

    It has GroupNorm instead of BatchNorm, because pictures and captions come in separate batches
    and must not have separate statistics.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.branch = nn.Sequential(
            nn.GroupNorm(8, inputs),
            nn.ReLU(),
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.GroupNorm(8, outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
        )
        self.skip: nn.Module = nn.Identity()
        if stride != 1:
            self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.skip(x) + self.branch(x)


def draw_cells(vectors: Tensor, mask: Tensor, side: int, cell: int) -> Tensor:
    """Vectors [B, L, 3 cell^2] as pictures [B, 3, side cell, side cell]: a cell for each vector in
    reading order, as Gallo et al. (2017) draw words; other cells are black."""
    spare = side * side - mask.shape[1]
    if spare < 0 and mask[:, side * side :].any():
        count = int(mask.sum(1).max())
        problem = f"{count} words or regions for a picture of {side} x {side} cells"
        raise InputError(problem, remedy="set a larger `side`")
    # A negative `spare` cuts off padding.
    cells = nn.functional.pad(vectors.masked_fill(~mask.unsqueeze(2), 0), (0, 0, 0, spare))
    return fold(cells.mT, side * cell, cell, stride=cell)


class SingleStream(RetrievalModel):
    """f = network(picture) of 128 numbers for images and captions alike; score: their cosine.

    It is trained by softmax over `classes` and the extended centre loss on f, which is
    `Encoded.parts[:, 0]`; `vector` is f at unit length. docs/training.md says what differs from the
    paper.
    """

    def __init__(self, config: SingleStreamConfig, feature_dim: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        pixels = 3 * config.cell**2
        self.words = nn.Embedding(vocabulary_size, pixels)
        self.regions = linear(feature_dim, pixels)
        widths = [config.width * scale for scale in (1, 1, 2, 2, 4, 4)]
        self.network = nn.Sequential(
            nn.Conv2d(3, config.width, 3, padding=1, bias=False),
            *(_ConvolutionBlock(a, b) for a, b in zip(widths, widths[1:], strict=False)),
            nn.GroupNorm(8, widths[-1]),
            nn.ReLU(),
        )
        self.out = linear(widths[-1], config.embed)
        self.classes = linear(config.embed, config.classes)

    def encode(self, vectors: Tensor, mask: Tensor) -> Encoded:
        picture = draw_cells(upcast(vectors), mask, self.config.side, self.config.cell)
        f = upcast(self.out(self.network(picture).mean((2, 3))))
        return Encoded(normalize(f, dim=-1), f.unsqueeze(1), torch.ones_like(mask[:, :1]))

    def encode_images(self, images: Images) -> Encoded:
        present = images.features.masked_fill(~images.mask.unsqueeze(2), 0)
        return self.encode(self.regions(present), images.mask)

    def encode_captions(self, captions: CaptionTokens) -> Encoded:
        return self.encode(self.words(captions.tokens), captions.mask)

    def loss_tensors(self, images: Encoded, captions: Encoded) -> dict[str, Tensor | None]:
        of_images, of_captions = images.sets[0][:, 0], captions.sets[0][:, 0]
        return {
            "images": of_images,
            "captions": of_captions,
            "image_logits": upcast(self.classes(of_images)),
            "caption_logits": upcast(self.classes(of_captions)),
        }

"""SCAN (Lee et al. 2018, "Stacked Cross Attention"): words attend to regions, or regions to
words."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, normalize

from capgrade.trainer.models.base import CaptionTokens, Encoded, Images, RetrievalModel
from capgrade.trainer.models.encoders import (
    EVAL_IMAGES,
    GruConfig,
    WordGru,
    linear,
    scored_by_length,
    unit_regions,
)

_Direction = Literal["t2i", "i2t"]
_Pooling = Literal["lse", "mean", "max", "sum"]
FirstNorm = Literal[
    "clipped_l2norm", "l2norm", "clipped_l1norm", "l1norm", "clipped", "no_norm", "softmax"
]
EPS = 1e-8


@dataclass(frozen=True)
class ScanConfig(GruConfig):
    # t2i: every word attends to the regions; i2t: every region to the words
    direction: _Direction = "t2i"
    pooling: _Pooling = "lse"  # of the cosines of the words (t2i) or regions (i2t)
    temperature: float = 9.0  # lambda of the attention; the authors take 9 (t2i) and 4 (i2t)
    sharpness: float = 6.0  # lambda of lse; the authors take 6 (t2i) and 5 or 20 (i2t)
    # of the products before the attention, over those who ask
    first_norm: FirstNorm = "clipped_l2norm"


class Scan(RetrievalModel):
    """Score: the pooled cosines of each word with what it attends to among the regions (t2i), or
    the reverse (i2t).

    t2i (eq. 7-10): s_ij = norm_j(v_i . w_j); a_j = sum_i softmax_i(temperature s_ij) v_i; score =
    pool_j cos(w_j, a_j). i2t (eq. 1-6): the same with regions and words changed about. `first_norm`
    is taken over those who ask: the words of a caption (t2i), the regions of an image (i2t).
    Pooling lse is log(sum exp(sharpness r)) / sharpness. No context vector is made: cos(w, V' a) =
    a . (V w) / (|w| sqrt(a' G a)) with the Gram matrix G of what is attended. A caption without a
    word, or an image without a region that asks, scores 0. Source: model.py of kuanghuei/SCAN.
    """

    def __init__(self, config: ScanConfig, feature_dim: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.project = linear(feature_dim, config.embed)
        self.read = WordGru(vocabulary_size, config.word, config.embed, both_ways=True)

    def encode_images(self, images: Images) -> Encoded:
        return Encoded(None, unit_regions(self.project, images), images.mask)

    def encode_captions(self, captions: CaptionTokens) -> Encoded:
        return Encoded(None, normalize(self.read(captions)[0], dim=-1), captions.mask)

    def scores(self, images: Encoded, captions: Encoded) -> Tensor:
        size = len(images) if self.training else EVAL_IMAGES
        with torch.autocast(
            images.sets[0].device.type, enabled=False
        ):  # bfloat16 would tie what it is to rank
            return torch.cat([self.rows(*some.sets, *captions.sets) for some in images.split(size)])

    def rows(self, regions: Tensor, mask: Tensor, words: Tensor, there: Tensor) -> Tensor:
        """Scores [n, captions] of n images."""
        gram = regions @ regions.mT if self.config.direction == "t2i" else None
        return scored_by_length(
            lambda at, length: self.tile(regions, mask, gram, words[at, :length]),
            there.sum(1).tolist(),
            regions,
        )

    def tile(self, regions: Tensor, mask: Tensor, gram: Tensor | None, words: Tensor) -> Tensor:
        """Scores [n, c] of c captions of one length, words [c, L, D]."""
        if not words.shape[1]:
            return regions.new_zeros(len(regions), len(words)) + 0 * (regions.sum() + words.sum())
        products = regions.flatten(0, 1) @ words.flatten(0, 1).T  # (n R, c L)
        products = products.unflatten(0, mask.shape).unflatten(2, words.shape[:2])  # (n, R, c, L)
        temperature, norm = self.config.temperature, self.config.first_norm
        if gram is not None:  # words ask
            a, square = attention(products, mask, gram, temperature, norm)
            cosine = _cosine((a * products.flatten(2)).sum(1), square).unflatten(1, words.shape[:2])
            return _pooled(cosine, mask.new_ones(len(mask), words.shape[1]), self.config)
        a = (temperature * first_norm(products, 1, mask[:, :, None, None], norm)).softmax(3)
        return _pooled(region_cosines(a, products, mask, words), mask, self.config)


def attention(
    products: Tensor,
    mask: Tensor,
    gram: Tensor,
    temperature: float,
    norm: FirstNorm = "clipped_l2norm",
) -> tuple[Tensor, Tensor]:
    """Weights a [n, R, c L] of regions for every word of c captions of L words, of products v . w
    [n, R, c, L], and the squared length a' G a of each weighted sum, [n, c L], by the Gram matrix G
    [n, R, R] of the regions."""
    asked = first_norm(products, 3, None, norm).flatten(2)
    a = (
        (temperature * asked)
        .masked_fill(~mask.unsqueeze(2), torch.finfo(asked.dtype).min)
        .softmax(1)
    )
    return a, (a * (gram @ a)).sum(1)


def region_cosines(a: Tensor, products: Tensor, mask: Tensor, words: Tensor) -> Tensor:
    """Cosine of each region with the words it attends to, [n, c, R], 0 where none is: weights a and
    products v . w [n, R, c, L] of regions and words [c, L, D]."""
    seen = a.permute(2, 0, 1, 3).flatten(1, 2)  # (c, n R, L)
    square = (seen * (seen @ (words @ words.mT))).sum(2).unflatten(1, mask.shape)  # (c, n, R)
    return _cosine((a * products).sum(3).transpose(1, 2), square.transpose(0, 1)) * mask.unsqueeze(
        1
    )


def _cosine(product: Tensor, square: Tensor) -> Tensor:
    return product * square.clamp(min=EPS**2).rsqrt()


def first_norm(products: Tensor, dim: int, mask: Tensor | None, norm: FirstNorm) -> Tensor:
    """The products of all pairs, made comparable over those who ask (`dim`); what `mask` leaves out
    counts nothing."""
    if norm == "softmax":
        low = torch.finfo(products.dtype).min
        return (products if mask is None else products.masked_fill(~mask, low)).softmax(dim)
    if norm.startswith("clipped"):
        products = leaky_relu(products, 0.1)
    if norm in ("clipped", "no_norm"):
        return products
    counted = products if mask is None else products * mask
    return counted / (
        counted.norm(p=1 if norm.endswith("l1norm") else 2, dim=dim, keepdim=True) + EPS
    )


def _pooled(cosine: Tensor, mask: Tensor, config: ScanConfig) -> Tensor:
    """[n, c] of [n, c, L or R]; parts that `mask` [n, L or R] leaves out take no part, a set of
    none gives 0."""
    there, some = mask.unsqueeze(1), mask.any(1)[:, None]
    if config.pooling in ("sum", "mean"):
        total = cosine.masked_fill(~there, 0).sum(2)
        return total / mask.sum(1).clamp(min=1)[:, None] if config.pooling == "mean" else total
    low = cosine.masked_fill(~there, torch.finfo(cosine.dtype).min / (2 * config.sharpness))
    pooled = (
        low.amax(2)
        if config.pooling == "max"
        else (config.sharpness * low).logsumexp(2) / config.sharpness
    )
    return pooled.masked_fill(~some, 0)

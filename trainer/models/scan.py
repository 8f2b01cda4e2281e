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
    score_by_length,
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
    direction: _Direction = "t2i"  # t2i: words attend to regions; i2t: regions attend to words
    pooling: _Pooling = "lse"  # of the cosines of the words (t2i) or regions (i2t)
    temperature: float = 9.0  # lambda of the attention; the authors take 9 (t2i) and 4 (i2t)
    sharpness: float = 6.0  # lambda of lse; the authors take 6 (t2i) and 5 or 20 (i2t)
    first_norm: FirstNorm = "clipped_l2norm"  # of the products before the attention


class Scan(RetrievalModel):
    """Score: the pooled cosines of each word with the regions it attends to (t2i), or the reverse.

    t2i (eq. 7-10): s_ij = norm_j(v_i . w_j); a_j = sum_i softmax_i(temperature s_ij) v_i; score =
    pool_j cos(w_j, a_j). i2t (eq. 1-6) exchanges regions and words. `first_norm` is over the words
    of a caption (t2i), or the regions of an image (i2t). Pooling lse is log(sum exp(sharpness r)) /
    sharpness. Over no word (t2i) or no region (i2t) it is 0. Source: kuanghuei/SCAN, model.py.
    """

    # No context vector a_j is computed: with V the matrix of regions and G = V V', cos(w, V' a) is
    # a . (V w) / (|w| sqrt(a' G a)).

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
        # In bfloat16 scores that are to be ranked would be equal.
        with torch.autocast(images.sets[0].device.type, enabled=False):
            blocks = images.split(size)
            return torch.cat([self.score_rows(*block.sets, *captions.sets) for block in blocks])

    def score_rows(self, regions: Tensor, mask: Tensor, words: Tensor, word_mask: Tensor) -> Tensor:
        """Scores [n, captions] of n images."""
        gram = regions @ regions.mT if self.config.direction == "t2i" else None

        def score(at: Tensor, length: int) -> Tensor:
            return self.score_tile(regions, mask, gram, words[at, :length])

        return score_by_length(score, word_mask.sum(1).tolist(), regions)

    def score_tile(
        self, regions: Tensor, mask: Tensor, gram: Tensor | None, words: Tensor
    ) -> Tensor:
        """Scores [n, c] of c captions of one length, words [c, L, D]; `gram` is None for i2t."""
        if not words.shape[1]:
            # The product with 0 keeps the scores part of the graph.
            return regions.new_zeros(len(regions), len(words)) + 0 * (regions.sum() + words.sum())
        products = regions.flatten(0, 1) @ words.flatten(0, 1).T  # (n R, c L)
        products = products.unflatten(0, mask.shape).unflatten(2, words.shape[:2])  # (n, R, c, L)
        temperature, norm = self.config.temperature, self.config.first_norm
        if gram is not None:
            a, square = attention(products, mask, gram, temperature, norm)
            cosine = _cosine((a * products.flatten(2)).sum(1), square).unflatten(1, words.shape[:2])
            return _pool(cosine, mask.new_ones(len(mask), words.shape[1]), self.config)
        a = (temperature * first_norm(products, 1, mask[:, :, None, None], norm)).softmax(3)
        return _pool(region_cosines(a, products, mask, words), mask, self.config)


def attention(
    products: Tensor,
    mask: Tensor,
    gram: Tensor,
    temperature: float,
    norm: FirstNorm = "clipped_l2norm",
) -> tuple[Tensor, Tensor]:
    """From products v . w [n, R, c, L] of regions and the L words of c captions: the weights a
    [n, R, c L] of the regions for every word, and the squared length a' G a [n, c L] of each
    weighted sum, where G [n, R, R] is the Gram matrix of the regions."""
    logits = temperature * first_norm(products, 3, None, norm).flatten(2)
    a = logits.masked_fill(~mask.unsqueeze(2), torch.finfo(logits.dtype).min).softmax(1)
    return a, (a * (gram @ a)).sum(1)


def region_cosines(a: Tensor, products: Tensor, mask: Tensor, words: Tensor) -> Tensor:
    """Cosine of each region with the words it attends to, [n, c, R], 0 outside of the mask, from
    weights a and products v . w [n, R, c, L] of regions and words [c, L, D]."""
    weights = a.permute(2, 0, 1, 3).flatten(1, 2)  # (c, n R, L)
    square = (weights * (weights @ (words @ words.mT))).sum(2).unflatten(1, mask.shape)  # (c, n, R)
    cosine = _cosine((a * products).sum(3).transpose(1, 2), square.transpose(0, 1))
    return cosine * mask.unsqueeze(1)


def _cosine(product: Tensor, square: Tensor) -> Tensor:
    return product * square.clamp(min=EPS**2).rsqrt()


def first_norm(products: Tensor, dim: int, mask: Tensor | None, norm: FirstNorm) -> Tensor:
    """Products of all pairs, normalised over the axis `dim` of the words or regions that attend;
    those outside of the mask do not count."""
    if norm == "softmax":
        low = torch.finfo(products.dtype).min
        return (products if mask is None else products.masked_fill(~mask, low)).softmax(dim)
    if norm.startswith("clipped"):
        products = leaky_relu(products, 0.1)
    if norm in ("clipped", "no_norm"):
        return products
    counted = products if mask is None else products * mask
    power = 1 if norm.endswith("l1norm") else 2
    return counted / (counted.norm(p=power, dim=dim, keepdim=True) + EPS)


def _pool(cosine: Tensor, mask: Tensor, config: ScanConfig) -> Tensor:
    """Scores [n, c] of cosines [n, c, L or R] inside the mask [n, L or R]; 0 where it is empty."""
    present = mask.unsqueeze(1)
    if config.pooling in ("sum", "mean"):
        total = cosine.masked_fill(~present, 0).sum(2)
        return total / mask.sum(1).clamp(min=1)[:, None] if config.pooling == "mean" else total
    low = cosine.masked_fill(~present, torch.finfo(cosine.dtype).min / (2 * config.sharpness))
    if config.pooling == "max":
        score = low.amax(2)
    else:
        score = (config.sharpness * low).logsumexp(2) / config.sharpness
    return score.masked_fill(~mask.any(1)[:, None], 0)

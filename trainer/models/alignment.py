"""Region-word alignment: an image-caption score pooled from the similarities of their parts (TERAN).

With unit vectors v_i of regions and s_j of words, A_ij = v_i . s_j is the alignment matrix of a pair. A score pools
it, so images and captions are encoded apart, yet compared part by part.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from capgrade.metrics.base import check_choice
from capgrade.trainer.models.base import Encoded

Pooling = Literal["MrSw", "MwSr", "symm", "MrAVGw", "scan"]
Padding = Literal["ignored", "authors"]
TILE = 64  # captions pooled together: neighbours in length, so that little of a block is padding
PADDED_REGIONS, PADDED_WORDS = 36, 85  # what the authors pad every image and caption to when they evaluate

CELLS = {"cpu": 2**19, "cuda": 2**26}  # of the one block of [images, regions, captions, words] that exists


def align(
    images: Encoded,
    captions: Encoded,
    pooling: Pooling = "MrSw",
    padding: Padding = "ignored",
    evaluation: bool = False,
) -> Tensor:
    """Scores of every image and caption, float32 [images, captions]; 0 where a side has no part.

    - `MrSw`: sum over words of the best region, Eq. 3; `MwSr`: sum over regions of the best word; `symm`: both, Eq. 4
    - `MrAVGw`: MrSw over the number of words, Eq. 9
    - `scan`: sum over regions of their cosine with the words they attend to, after SCAN, in TERAN's code alone

    `padding`: "ignored", a score depends on its pair alone; "authors", a padded cell counts as similarity 0 before the
    maximum, so no maximum over a padded item is negative: in training all but the longest of the batch, in `evaluation`
    all below 36 regions or 85 words. InputError for a pooling or padding that is neither. TERAN: Messina et al. 2021,
    arXiv:2008.05231; models/loss.py.
    """
    check_choice("pooling", pooling, get_args(Pooling))
    check_choice("padding", padding, get_args(Padding))
    rows, columns = _packed(images), _packed(captions)
    counts, lengths = rows.sets[1].sum(1), columns.sets[1].sum(1)
    most, longest = (PADDED_REGIONS, PADDED_WORDS) if evaluation else (rows.sets[1].shape[1], columns.sets[1].shape[1])
    authors = padding == "authors"
    least, least_words = authors & (counts < most), authors & (lengths < longest)  # a maximum over it is at least 0
    order = lengths.argsort(stable=True)
    with torch.autocast(rows.sets[0].device.type, enabled=False):
        tiles = [_tile(rows, _cut(columns[at]), pooling, least, least_words[at]) for at in order.split(TILE)]
    return torch.cat(tiles, dim=1)[:, order.argsort()]


def alignment_matrix(image: Encoded, caption: Encoded) -> Tensor:
    """A of one pair, float32 [L, P], of the first row of each: NaN where a part does not take part."""
    (regions, there), (words, taking) = ((x[0] for x in side.sets) for side in (image, caption))
    return torch.where(there[:, None] & taking, regions.float() @ words.float().T, torch.nan)


def _packed(side: Encoded) -> Encoded:
    """The parts that take part, in float32 and moved to the front."""
    parts, mask = side.sets
    order = mask.byte().argsort(dim=1, descending=True, stable=True)
    parts = parts.float().gather(1, order[:, :, None].expand(-1, -1, parts.shape[2]))
    return _cut(Encoded(None, parts, mask.gather(1, order)), 0)


def _cut(side: Encoded, least: int = 1) -> Encoded:
    """Packed sets without what is padding in all of them, but for `least` parts."""
    longest = max(least, int(side.sets[1].sum(1).max())) if len(side) else 0
    return side.map(lambda x: x[:, :longest])


def _tile(rows: Encoded, columns: Encoded, pooling: str, least: Tensor, least_words: Tensor) -> Tensor:
    """Scores of all images and a tile of captions, a block of images at a time that fits `CELLS`."""
    (v, _), (words, taking) = rows.sets, columns.sets
    if not (v.shape[1] and words.shape[1]):
        return (v.sum() + words.sum()) * 0 + v.new_zeros(len(v), len(words))
    step = max(CELLS.get(v.device.type, 2**22) // (v.shape[1] * words.shape[0] * words.shape[1]), 1)
    blocks = [slice(at, at + step) for at in range(0, len(v), step)]
    if pooling == "scan":
        gram = words @ words.mT  # [C, W, W]
        asked = [(regions, words, gram, there, taking) for regions, there in (_cut(rows[at]).sets for at in blocks)]
        if gram.requires_grad:
            return torch.cat([checkpoint(_attended, *some, use_reentrant=False) for some in asked])
        return torch.cat([_attended(*some) for some in asked])
    return torch.cat([_max_sum(_cut(rows[at]), columns, pooling, least[at], least_words) for at in blocks])


def _max_sum(rows: Encoded, columns: Encoded, pooling: str, least: Tensor, least_words: Tensor) -> Tensor:
    """Sum over words of the best region, over regions of the best word, or both."""
    (v, there), (words, taking) = rows.sets, columns.sets
    A = torch.einsum("ird,cwd->ircw", v, words)
    A = A.masked_fill(~(there[:, :, None, None] & taking), -torch.inf)
    scores = A.new_zeros(len(v), len(words))
    if pooling != "MwSr":
        scores = scores + _floored(A.max(dim=1).values, least[:, None, None]).sum(dim=2)
    if pooling in ("MwSr", "symm"):
        scores = scores + _floored(A.max(dim=3).values, least_words).sum(dim=1)
    return scores / taking.sum(1).clamp(min=1) if pooling == "MrAVGw" else scores


def _floored(best: Tensor, floor: Tensor) -> Tensor:
    """Maxima, 0 where there is nothing, and at least 0 where there is a floor."""
    return best.masked_fill((best == -torch.inf) | floor & (best < 0), 0)


def _attended(regions: Tensor, words: Tensor, gram: Tensor, region_mask: Tensor, word_mask: Tensor) -> Tensor:
    """Sum over regions of cos(v_i, a_i), a_i = sum_j w_ij s_j; |a_i|^2 = w_i' G w_i, so no a_i is ever made."""
    A = torch.einsum("ird,cwd->irwc", regions, words).transpose(2, 3)  # [c, R, C, W]
    seen = A.relu() * region_mask[:, :, None, None]
    seen = torch.nn.functional.normalize(seen, dim=1)
    weights = seen.masked_fill(~word_mask, torch.finfo(A.dtype).min).softmax(3) * word_mask
    squared = (torch.einsum("ircw,cwx->ircx", weights, gram) * weights).sum(3)
    cosine = (weights * A).sum(3) / squared.clamp(min=1e-16).sqrt()
    return (cosine * region_mask[:, :, None]).sum(1)

"""Region-word alignment: an image-caption score pooled from the similarities of their parts
(TERAN).

With unit vectors v_i of regions and s_j of words, A_ij = v_i . s_j is the alignment matrix of a
pair. A score pools it, so images and captions are encoded apart, yet compared part by part.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from capgrade.trainer.models.base import Encoded
from capgrade.trainer.models.encoders import EVAL_IMAGES, scored_by_length
from capgrade.trainer.models.scan import region_cosines

Pooling = Literal["MrSw", "MwSr", "symm", "MrAVGw", "scan"]
Padding = Literal["ignored", "authors"]
# what the authors pad every image and caption to when they evaluate
PADDED_REGIONS, PADDED_WORDS = (
    36,
    85,
)


def align(
    images: Encoded,
    captions: Encoded,
    pooling: Pooling = "MrSw",
    padding: Padding = "ignored",
    evaluation: bool = False,
) -> Tensor:
    """Scores of every image and caption, float32 [images, captions]; 0 where a side has no part.

    - `MrSw`: sum over words of the best region, Eq. 3; `MwSr`: sum over regions of the best word;
      `symm`: both, Eq. 4
    - `MrAVGw`: MrSw over the number of words, Eq. 9
    - `scan`: sum over regions of their cosine with the words they attend to, after SCAN, in TERAN's
      code alone

    `padding`: "ignored", a score depends on its pair alone; "authors", a padded cell counts as
    similarity 0 before the maximum, so no maximum over a padded item is negative: in training all
    but the longest of the batch, in `evaluation` all below 36 regions or 85 words. TERAN: Messina
    et al. 2021, arXiv:2008.05231; models/loss.py.
    """
    (regions, there), (words, taking) = images.sets, captions.sets
    counts, lengths = there.sum(1), taking.sum(1)
    most, longest = (PADDED_REGIONS, PADDED_WORDS) if evaluation else (counts.max(), lengths.max())
    authors = padding == "authors"
    # a maximum over it is at least 0
    least, least_words = (
        authors & (counts < most),
        authors & (lengths < longest),
    )
    order = taking.byte().argsort(dim=1, descending=True, stable=True)
    # those that take part to the front
    words = words.float().gather(1, order[:, :, None].expand_as(words))

    def block(v: Tensor, there: Tensor, least: Tensor) -> Tensor:
        """Scores of some of the images and every caption."""

        def score(at: Tensor, length: int) -> Tensor:
            return _pooled(v, there, words[at, :length], pooling, least, least_words[at])

        return scored_by_length(score, lengths.tolist(), v)

    blocks = zip(*(x.split(EVAL_IMAGES) for x in (regions.float(), there, least)), strict=True)
    with torch.autocast(regions.device.type, enabled=False):
        return torch.cat([block(*some) for some in blocks])


def alignment_matrix(image: Encoded, caption: Encoded) -> Tensor:
    """A of one pair, float32 [L, P], of the first row of each: NaN where a part does not take
    part."""
    (regions, there), (words, taking) = ((x[0] for x in side.sets) for side in (image, caption))
    return torch.where(there[:, None] & taking, regions.float() @ words.float().T, torch.nan)


def _pooled(
    v: Tensor, there: Tensor, words: Tensor, pooling: Pooling, least: Tensor, least_words: Tensor
) -> Tensor:
    """Scores [n, c] of regions v [n, R, D], where they are `there`, and captions of one length,
    words [c, L, D]."""
    if not (v.shape[1] and words.shape[1]):
        return (v.sum() + words.sum()) * 0 + v.new_zeros(len(v), len(words))
    A = torch.einsum("ird,cwd->ircw", v, words)
    present = there[:, :, None, None]
    if pooling == "scan":
        weights = normalize(A.relu() * present, dim=1).softmax(3)
        return region_cosines(weights, A, there, words).sum(2)
    A = A.masked_fill(~present, -torch.inf)
    scores = A.new_zeros(len(v), len(words))
    if pooling != "MwSr":
        scores = scores + _floored(A.max(dim=1).values, least[:, None, None]).sum(dim=2)
    if pooling in ("MwSr", "symm"):
        scores = scores + _floored(A.max(dim=3).values, least_words).sum(dim=1)
    return scores / words.shape[1] if pooling == "MrAVGw" else scores


def _floored(best: Tensor, floor: Tensor) -> Tensor:
    """Maxima, 0 where there is nothing, and at least 0 where there is a floor."""
    return best.masked_fill((best == -torch.inf) | floor & (best < 0), 0)

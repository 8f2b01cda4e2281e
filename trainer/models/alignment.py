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
from capgrade.trainer.models.encoders import EVAL_IMAGES, score_by_length
from capgrade.trainer.models.scan import region_cosines

Pooling = Literal["MrSw", "MwSr", "symm", "MrAVGw", "scan"]
Padding = Literal["ignored", "authors"]
# In evaluation the authors pad every image and caption to these lengths.
PADDED_REGIONS, PADDED_WORDS = 36, 85


def align(
    images: Encoded,
    captions: Encoded,
    pooling: Pooling = "MrSw",
    padding: Padding = "ignored",
    evaluation: bool = False,
) -> Tensor:
    """Scores of every image and caption, float32 [images, captions]; 0 where a side has no part.
    TERAN: Messina et al. 2021, arXiv:2008.05231; models/loss.py.

    `MrSw`: sum over words of the best region (eq. 3); `MwSr`: sum over regions of the best word;
    `symm`: both (eq. 4); `MrAVGw`: MrSw over the number of words (eq. 9); `scan` (code alone): sum
    over regions of the cosine with the words they attend to. With padding "authors" the maxima over
    a padded image or caption are at least 0.
    """
    # The authors' code takes maxima over padded cells too, whose similarity is 0. In training it
    # pads to the longest of a batch, in evaluation to 36 regions and 85 words.
    (regions, region_mask), (words, word_mask) = images.sets, captions.sets
    counts, lengths = region_mask.sum(1), word_mask.sum(1)
    most, longest = (PADDED_REGIONS, PADDED_WORDS) if evaluation else (counts.max(), lengths.max())
    authors = padding == "authors"
    image_padded, caption_padded = authors & (counts < most), authors & (lengths < longest)
    # Words that take part in pooling come first, so that a caption is a slice.
    order = word_mask.byte().argsort(dim=1, descending=True, stable=True)
    words = words.float().gather(1, order[:, :, None].expand_as(words))

    def score_images(v: Tensor, mask: Tensor, padded: Tensor) -> Tensor:
        """Scores of these images and every caption."""

        def score(at: Tensor, length: int) -> Tensor:
            return _pool(v, mask, words[at, :length], pooling, padded, caption_padded[at])

        return score_by_length(score, lengths.tolist(), v)

    columns = (regions.float(), region_mask, image_padded)
    blocks = zip(*(x.split(EVAL_IMAGES) for x in columns), strict=True)
    with torch.autocast(regions.device.type, enabled=False):
        return torch.cat([score_images(*block) for block in blocks])


def alignment_matrix(image: Encoded, caption: Encoded) -> Tensor:
    """The matrix A of the first image and the first caption, float32 [regions, words]; NaN outside
    of their masks."""
    (regions, region_mask), (words, word_mask) = (
        (x[0] for x in side.sets) for side in (image, caption)
    )
    products = regions.float() @ words.float().T
    return torch.where(region_mask[:, None] & word_mask, products, torch.nan)


def _pool(
    v: Tensor,
    mask: Tensor,
    words: Tensor,
    pooling: Pooling,
    image_padded: Tensor,
    caption_padded: Tensor,
) -> Tensor:
    """Scores [n, c] of regions v [n, R, D] with their mask, and captions of one length, words
    [c, L, D]."""
    if not (v.shape[1] and words.shape[1]):
        # The product with 0 keeps the scores part of the graph.
        return (v.sum() + words.sum()) * 0 + v.new_zeros(len(v), len(words))
    A = torch.einsum("ird,cwd->ircw", v, words)
    present = mask[:, :, None, None]
    if pooling == "scan":
        weights = normalize(A.relu() * present, dim=1).softmax(3)
        return region_cosines(weights, A, mask, words).sum(2)
    A = A.masked_fill(~present, -torch.inf)
    scores = A.new_zeros(len(v), len(words))
    if pooling != "MwSr":
        scores = scores + _floor(A.max(dim=1).values, image_padded[:, None, None]).sum(dim=2)
    if pooling in ("MwSr", "symm"):
        scores = scores + _floor(A.max(dim=3).values, caption_padded).sum(dim=1)
    return scores / words.shape[1] if pooling == "MrAVGw" else scores


def _floor(maxima: Tensor, padded: Tensor) -> Tensor:
    """Maxima, which are 0 over nothing, and at least 0 where they are `padded`."""
    return maxima.masked_fill((maxima == -torch.inf) | padded & (maxima < 0), 0)

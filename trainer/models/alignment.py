"""Region-word alignment: an image-caption score pooled from the similarities of their parts (TERAN).

With unit vectors v_i of regions and s_j of words, A_ij = v_i . s_j is the alignment matrix of a pair. A score pools
it, so images and captions are encoded apart, yet compared part by part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from capgrade.schemas.errors import InputError
from capgrade.trainer.models.base import Encoded

POOLINGS = ("MrSw", "MwSr", "symm", "MrAVGw", "scan")
PADDINGS = ("ignored", "authors")
TILE = 64  # captions pooled together: neighbours in length, so that little of a block is padding
PADDED_REGIONS, PADDED_WORDS = 36, 85  # what the authors pad every image and caption to when they evaluate

CELLS = {"cpu": 2**19, "cuda": 2**26}  # of the one block of [images, regions, captions, words] that exists


@dataclass(frozen=True)
class Parts:
    """Sets of vectors, those that count first; where `floor`, a maximum over the set is at least 0."""

    vectors: Tensor  # float [N, L, D]
    count: Tensor  # int64 [N]
    floor: Tensor | None = None  # bool [N]

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def mask(self) -> Tensor:
        return torch.arange(self.vectors.shape[1], device=self.count.device) < self.count[:, None]

    def clamped(self, length: int) -> Parts:
        """With a floor where padding to `length` adds at least one cell of zeros."""
        return replace(self, floor=self.count < length)

    def take(self, at: Tensor | slice) -> Parts:
        """The sets at `at`, cut to the longest of them, to one vector at least."""
        count = self.count[at]
        longest = max(1, int(count.max())) if len(count) else 0
        return Parts(self.vectors[at, :longest], count, None if self.floor is None else self.floor[at])


def blocks(rows: Parts, columns: Parts) -> Iterator[slice]:
    """Slices of rows whose alignment with all columns fits one block; one row at least."""
    cells = rows.vectors.shape[1] * columns.vectors.shape[0] * columns.vectors.shape[1]
    step = max(CELLS.get(rows.vectors.device.type, 2**22) // max(cells, 1), 1)
    return (slice(at, at + step) for at in range(0, len(rows), step))


@torch.compiler.disable  # its blocks follow the lengths of a batch
def align(
    images: Encoded, captions: Encoded, pooling: str = "MrSw", padding: str = "ignored", evaluation: bool = False
) -> Tensor:
    """Scores of every image and caption, float32 [images, captions]; 0 where a side has no part.

    - `MrSw`: sum over words of the best region, Eq. 3; `MwSr`: sum over regions of the best word; `symm`: both, Eq. 4
    - `MrAVGw`: MrSw over the number of words, Eq. 9
    - `scan`: sum over regions of their cosine with the words they attend to, after SCAN, in TERAN's code alone

    `padding`: "ignored", a score depends on its pair alone; "authors", a padded cell counts as similarity 0 before the
    maximum, so no maximum over a padded item is negative: in training all but the longest of the batch, in `evaluation`
    all below 36 regions or 85 words. TERAN: Messina et al. 2021, arXiv:2008.05231; models/loss.py.
    """
    require(pooling, padding)
    rows, columns = _parts(images), _parts(captions)
    if padding == "authors":
        rows = rows.clamped(PADDED_REGIONS if evaluation else int(rows.count.max()))
        columns = columns.clamped(PADDED_WORDS if evaluation else int(columns.count.max()))
    order = columns.count.argsort(stable=True)
    with torch.autocast(rows.vectors.device.type, enabled=False):
        scores = torch.cat([_tile(rows, columns.take(some), pooling) for some in order.split(TILE)], dim=1)
    return scores[:, order.argsort()]


def require(pooling: str, padding: str) -> None:
    """Raises InputError for an unknown name."""
    if pooling not in POOLINGS:
        raise InputError(f"no pooling '{pooling}'", remedy=f"choose from: {', '.join(POOLINGS)}")
    if padding not in PADDINGS:
        raise InputError(f"no padding '{padding}'", remedy=f"choose from: {', '.join(PADDINGS)}")


def alignment_matrix(image: Encoded, caption: Encoded) -> Tensor:
    """A of one pair, float32 [L, P], of the first row of each: NaN where a part does not take part."""
    rows, columns = _first(image), _first(caption)
    return torch.where(rows[1][:, None] & columns[1], rows[0] @ columns[0].T, torch.nan)


def _first(side: Encoded) -> tuple[Tensor, Tensor]:
    assert side.parts is not None and side.mask is not None
    return side.parts[0].float(), side.mask[0]


def _parts(side: Encoded) -> Parts:
    """The parts that take part, moved to the front."""
    assert side.parts is not None and side.mask is not None
    count = side.mask.sum(1)
    order = side.mask.byte().argsort(dim=1, descending=True, stable=True)[:, : int(count.max())]
    vectors = side.parts.float().gather(1, order[:, :, None].expand(-1, -1, side.parts.shape[2]))
    return Parts(vectors, count)


def _tile(rows: Parts, columns: Parts, pooling: str) -> Tensor:
    if not (rows.vectors.shape[1] and columns.vectors.shape[1]):
        return (rows.vectors.sum() + columns.vectors.sum()) * 0 + rows.vectors.new_zeros(len(rows), len(columns))
    if pooling == "scan":
        return _scan(rows, columns)
    return torch.cat([_max_sum(rows.take(at), columns, pooling) for at in blocks(rows, columns)])


def _max_sum(rows: Parts, columns: Parts, pooling: str) -> Tensor:
    """Sum over words of the best region, over regions of the best word, or both."""
    A = torch.einsum("ird,cwd->ircw", rows.vectors, columns.vectors)
    A = A.masked_fill(~(rows.mask[:, :, None, None] & columns.mask), -torch.inf)
    scores = A.new_zeros(len(rows), len(columns))
    if pooling != "MwSr":
        best = _floored(A.max(dim=1).values, None if rows.floor is None else rows.floor[:, None, None])
        scores = scores + best.sum(dim=2)
    if pooling in ("MwSr", "symm"):
        best = _floored(A.max(dim=3).values, columns.floor)
        scores = scores + best.sum(dim=1)
    return scores / columns.count.clamp(min=1) if pooling == "MrAVGw" else scores


def _floored(best: Tensor, floor: Tensor | None) -> Tensor:
    """Maxima, 0 where there is nothing, and at least 0 where there is a floor."""
    nothing = best == -torch.inf
    return best.masked_fill(nothing if floor is None else nothing | floor & (best < 0), 0)


def _scan(rows: Parts, columns: Parts) -> Tensor:
    gram = columns.vectors @ columns.vectors.mT  # [C, W, W]
    scores = []
    for at in blocks(rows, columns):
        some = rows.take(at)
        block = (some.vectors, columns.vectors, gram, some.mask, columns.mask)
        scores.append(checkpoint(_attended, *block, use_reentrant=False) if gram.requires_grad else _attended(*block))
    return torch.cat(scores)


def _attended(regions: Tensor, words: Tensor, gram: Tensor, region_mask: Tensor, word_mask: Tensor) -> Tensor:
    """Sum over regions of cos(v_i, a_i), a_i = sum_j w_ij s_j; |a_i|^2 = w_i' G w_i, so no a_i is ever made."""
    A = torch.einsum("ird,cwd->irwc", regions, words).transpose(2, 3)  # [c, R, C, W]
    seen = A.relu() * region_mask[:, :, None, None]
    seen = torch.nn.functional.normalize(seen, dim=1)
    weights = seen.masked_fill(~word_mask, torch.finfo(A.dtype).min).softmax(3) * word_mask
    squared = (torch.einsum("ircw,cwx->ircx", weights, gram) * weights).sum(3)
    cosine = (weights * A).sum(3) / squared.clamp(min=1e-16).sqrt()
    return (cosine * region_mask[:, :, None]).sum(1)

"""Graded losses as plain functions of torch tensors: one call each, and modules where something is
learned or kept.

`scores` [B, C] are similarities of B images (rows) and C captions (columns), of any float dtype, on
any device, under autocast; sums are float32. `relevance` [B, C] is real, on the same device; no
gradient goes into it. `known`, bool [B, C], says where it is known (None: everywhere): what is
unknown is never taken for zero, and NaN in what is known makes the loss NaN. `weights`, real [B,
C], are needed beside `known` by the losses that are means over all candidates: how many pairs each
known one stands for. `Labels.block` gives all three.

`own`, bool [B, C], says which captions are whose. Its True cells are the pairs, so an image may
have several captions, and captions of nobody are negatives only. Where it holds the whole diagonal
of a square batch, pair i is row i and column i, and other cells are further captions of the same
image, as in a batch in which an image comes twice. Without `own` a square batch has its diagonal;
any other needs it.

In place of these tensors a loss takes a ScoredBatch, which holds them, as the trainer's batches
are: the terms of a preset name these same functions. On several processes `gather` first gives each
of them the whole batch.

Every function returns a float32 scalar, of both directions, and raises InputError for what it
lacks, for shapes that do not fit and for options out of range. Equations, sources and the
differences to the authors' code: docs/losses.md.
"""

from capgrade.losses.base import ScoredBatch as ScoredBatch
from capgrade.losses.base import gather
from capgrade.losses.contrastive import info_nce, sigmoid, soft_info_nce
from capgrade.losses.daa import daa, smooth_ap
from capgrade.losses.declared import LOSSES as LOSSES
from capgrade.losses.declared import LossTerms as LossTerms
from capgrade.losses.hinges import kendall, kendall_windows, ladder, sam, triplet, triplet_sn
from capgrade.losses.modules import (
    GradedClipLoss,
    GradedSigLipLoss,
    InfoNCE,
    Sam,
    Sigmoid,
    SoftInfoNCE,
)
from capgrade.losses.of_model import captioning as captioning
from capgrade.losses.of_model import centre as centre
from capgrade.losses.of_model import classify as classify
from capgrade.losses.of_model import divergence as divergence

__all__ = [
    "GradedClipLoss",
    "GradedSigLipLoss",
    "InfoNCE",
    "Sam",
    "Sigmoid",
    "SoftInfoNCE",
    "daa",
    "gather",
    "info_nce",
    "kendall",
    "kendall_windows",
    "ladder",
    "sam",
    "sigmoid",
    "smooth_ap",
    "soft_info_nce",
    "triplet",
    "triplet_sn",
]

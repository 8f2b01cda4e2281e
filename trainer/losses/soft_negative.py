"""Triplet-SN of BCLS: a smooth hardest negative."""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.losses.base import ScoredBatch, asked, both_ways

ONE = 1 - 1e-6  # relevance from here on is that of a pair with itself


def triplet_sn(batch: ScoredBatch, *, margin: float = 0.2, gamma: float = 50.0) -> Tensor:
    """sum_i [s_i - S_ii + margin]+ over both directions, s_i = 1/gamma log sum_n exp(gamma S_in).

    n: captions of known relevance below 1, as Sentence-BERT has it (an image's own caption and its duplicates have 1),
    and for other measures below that of the pair itself. The sum is not normalised: s exceeds the maximum by at most
    log(B - 1) / gamma. Source: BCLS, eq. 14 and 15; the margin is that of its host, SGRAF.
    """
    relevance, known = asked(batch)
    total = batch.scores.new_zeros((), dtype=torch.float32)
    for way, seen in zip(both_ways(batch), (known, known.T), strict=True):
        assert way.relevance is not None
        negative = seen & (way.relevance < ONE * way.relevance.diagonal().clamp(max=1)[:, None])
        scores = way.scores.float()
        rows = negative.any(dim=1)
        some = scores[rows].masked_fill(~negative[rows], -torch.inf)
        total = total + ((gamma * some).logsumexp(dim=1) / gamma - scores.diagonal()[rows] + margin).clamp(min=0).sum()
    return total

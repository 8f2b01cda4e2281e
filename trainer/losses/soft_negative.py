"""Triplet-SN of BCLS: a smooth hardest negative."""

from __future__ import annotations

from torch import Tensor

from capgrade.trainer.losses.base import Above0, ScoredBatch, graded_ways, nothing

TOLERANCE = 1e-6  # of a relevance of size 1: rounding


def triplet_sn(batch: ScoredBatch, *, margin: float = 0.2, gamma: Above0 = 50.0) -> Tensor:
    """sum_i [s_i - S_ii + margin]+ over both directions, s_i = 1/gamma log sum_n exp(gamma S_in).

    n: candidates of known relevance r_in < r_ii, whatever the measure's scale. BCLS writes r_in < 1: its labels have
    r_ii = 1, so the two are the same there (a duplicate of the caption is no negative). Relevance above the own pair's,
    which a measure that leaves the own caption out may give, is no negative either.
    The sum is not normalised: s exceeds the maximum by at most log(B - 1) / gamma.
    Source: BCLS, eq. 14 and 15; the paper gives no margin, this is its host's (SGRAF).
    """
    total = nothing(batch)
    for way, relevance, known in graded_ways(batch):
        own = way.paired(relevance)[:, None]
        negative = known & ~way.itself & (relevance < own - TOLERANCE * own.abs().clamp(min=1))
        rows = negative.any(dim=1)
        some = way.scores[rows].masked_fill(~negative[rows], -float("inf"))
        cost = (gamma * some).logsumexp(dim=1) / gamma - way.paired(way.scores)[rows] + margin
        total = total + cost.clamp(min=0).sum()
    return total

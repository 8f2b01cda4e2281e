"""Triplet-SN of BCLS: a smooth hardest negative."""

from __future__ import annotations

from torch import Tensor

from capgrade.losses.base import Above0, Scores, batch_of, counted, graded_ways, nothing
from capgrade.losses.declared import declared

TOLERANCE = 1e-6  # of a relevance of size 1: rounding


@declared("relevance")
def triplet_sn(
    scores: Scores, relevance: Tensor | None = None, own: Tensor | None = None, known: Tensor | None = None, *,
    margin: float = 0.2, gamma: Above0 = 50.0,
) -> Tensor:  # fmt: skip
    """sum_i [s_i - S_ii + margin]+ over both directions, s_i = 1/gamma log sum_n exp(gamma S_in).

    n: candidates of known relevance r_in < r_ii, whatever the measure's scale. BCLS writes r_in < 1: its labels have
    r_ii = 1, so the two are the same there (a duplicate of the caption is no negative). Relevance above the own pair's,
    which a measure that leaves the own caption out may give, is no negative either.
    The sum is not normalised: s exceeds the maximum by at most log(B - 1) / gamma.
    Source: BCLS, eq. 14 and 15; the paper gives no margin, this is its host's (SGRAF).
    Shapes and errors: see `capgrade.losses`.

    >>> round(float(triplet_sn(torch.tensor([[0.9, 0.8], [0.1, 0.9]]), torch.eye(2))), 4)
    0.2
    """
    batch = batch_of("triplet_sn", scores, relevance, own, known)
    total = nothing(batch)
    for way in graded_ways(batch):
        most = way.paired(way.relevance)[:, None]
        negative = way.known & ~way.itself & (way.relevance < most - TOLERANCE * most.abs().clamp(min=1))
        rows = negative.any(dim=1)
        some = way.scores[rows].masked_fill(~negative[rows], -float("inf"))
        cost = (gamma * some).logsumexp(dim=1) / gamma - way.paired(way.scores)[rows] + margin
        total = total + counted(cost.clamp(min=0)).sum()
    return total

"""Semantic adaptive margin (Biten et al. 2022): the margin of a triplet follows the relevance of its negative."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from trainer.losses.base import ScoredBatch, asked, both_ways, off_diagonal
from trainer.losses.triplet import Negatives, choose

LARGEST = 1.0  # of a margin in the authors' code


def sam(
    batch: ScoredBatch, *, tau: float = 10.0, negatives: Negatives = "hard", form: Literal["paper", "authors"] = "paper"
) -> Tensor:
    """sum_i [alpha_i + S_in - S_ii]+ over both directions, alpha_i = (phi_ii - phi_in) / tau.

    phi_ij is the relevance of caption j to image i's captions; towards images phi_ki of caption i and image k.
    paper (eq. 7): negatives hard = most similar, random, soft = least similar, among those of known relevance; a
    margin may be negative. authors (ContrastiveLossMetric): see `_authors`; needs every relevance to be known.
    `sam` stands beside an ordinary triplet or alone. tau follows the measure: CIDEr reaches 10, SPICE 1.
    """
    relevance, known = asked(batch)
    if form == "authors":
        return _authors(batch.scores.float(), relevance.float(), tau, negatives)
    total = batch.scores.new_zeros((), dtype=torch.float32)
    for way, allowed in zip(
        both_ways(batch), (off_diagonal(batch) & known, (off_diagonal(batch) & known).T), strict=True
    ):
        assert way.relevance is not None
        total = total + _one_way(
            way.scores.float(), way.relevance.float(), allowed & known.diagonal()[:, None], tau, negatives
        )
    return total


def _one_way(scores: Tensor, relevance: Tensor, allowed: Tensor, tau: float, negatives: Negatives) -> Tensor:
    chosen = choose(scores.detach(), allowed, negatives)[:, None]
    margin = (relevance.diagonal() - relevance.gather(1, chosen)[:, 0]) / tau
    cost = (margin + scores.gather(1, chosen)[:, 0] - scores.diagonal()).clamp(min=0)
    return cost[allowed.any(dim=1)].sum()


def _authors(scores: Tensor, relevance: Tensor, tau: float, negatives: Negatives) -> Tensor:
    """What the authors' code computes: negatives of both directions along rows, hard and soft by other names (hard:
    second smallest cost, soft: second largest), the two margins crossed, broadcast over columns, at most 1.

    sum_i [S(i, n_i) - S_ii + M1[n_i]]+ + sum_i [S(i, k_i) - S(k_i, k_i) + M0[k_i]]+ with
    M1[q] = min(1, (phi_qq - phi(q, k_q)) / tau) and M0[q] the same with n_q.
    """
    own, row = scores.diagonal(), torch.arange(len(scores), device=scores.device)
    if len(scores) < 2:
        return (scores * 0).sum()
    n, k = (_second(cost.detach(), negatives) for cost in (scores - own[:, None], scores - own[None, :]))
    margins = [((relevance.diagonal() - relevance[row, other]) / tau).clamp(max=LARGEST) for other in (k, n)]
    first = (scores[row, n] - own + margins[0][n]).clamp(min=0)
    return (first + (scores[row, k] - own[k] + margins[1][k]).clamp(min=0)).sum()


def _second(cost: Tensor, negatives: Negatives) -> Tensor:
    if negatives == "random":
        shift = torch.randint(1, len(cost), (len(cost),)).to(cost.device)
        return (torch.arange(len(cost), device=cost.device) + shift) % len(cost)
    return cost.topk(2, dim=1, largest=negatives == "soft").indices[:, 1]

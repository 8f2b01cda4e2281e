"""Semantic adaptive margin (Biten et al. 2022): the margin of a triplet follows the relevance of its negative."""

from __future__ import annotations

import torch
from torch import Tensor

from capgrade.losses.base import Above0, Form, Scores, all_known, batch_of, counted, graded_ways, nothing
from capgrade.losses.declared import declared
from capgrade.losses.triplet import Negative, choose

LARGEST = 1.0  # of a margin in the authors' code


@declared("relevance")
def sam(
    scores: Scores, relevance: Tensor | None = None, own: Tensor | None = None, known: Tensor | None = None, *,
    tau: Above0 = 10.0, negatives: Negative = "hard", form: Form = "paper",
) -> Tensor:  # fmt: skip
    """sum_p [(phi_pp - phi_pm) / tau + S_pm - S_pp]+ + [(phi_pp - phi_pk) / tau + S_kp - S_pp]+.

    phi_pj is the relevance of caption j to the captions G_p of image p, m a negative caption of image p, k a negative
    image of caption p: both margins use G_p, also towards images, where caption k stands for image k (its
    first one of known relevance, in a batch that has several).
    paper (eq. 7): negatives hard = most similar, random, soft = least similar, among those of known phi_pj; a
    margin may be negative. Other captions of the image, and rows of the same image, are positives, so no negatives.
    authors (ContrastiveLossMetric): see `_authors`; InputError unless all relevance is known.
    `sam` stands beside an ordinary triplet or alone. tau follows the measure: CIDEr reaches 10, Sentence-BERT and
    SPICE 1. Shapes and errors: see `capgrade.losses`.

    >>> scores, relevance = torch.tensor([[0.9, 0.5], [0.1, 0.9]]), torch.tensor([[1.0, 0.8], [0.2, 1.0]])
    >>> round(float(sam(scores, relevance, tau=1.0)), 4)
    0.4
    """
    batch = batch_of("sam", scores, relevance, own, known)
    if form == "authors":
        return nothing(batch) + _authors(batch.scores.float(), all_known(batch, "sam").float(), tau, negatives)
    way, other = graded_ways(batch)
    margin = (way.paired(way.relevance)[:, None] - way.relevance).float() / tau
    ok, own = way.known & way.paired(way.known)[:, None], way.paired(way.scores)
    total = nothing(batch) + _one_way(way.scores, own, margin, ok & ~way.own, negatives)
    rows, columns = batch.at  # towards images: image k of a pair, of whose caption the margin is
    allowed = ok[:, columns] & ~other.own[:, rows]
    return total + _one_way(other.scores[:, rows], own, margin[:, columns], allowed, negatives)


def _one_way(scores: Tensor, own: Tensor, margin: Tensor, allowed: Tensor, negatives: Negative) -> Tensor:
    """Row p of each belongs to the pair p, whose score is `own`, in both directions."""
    chosen = choose(scores.detach(), allowed, negatives)[:, None]
    cost = (margin.gather(1, chosen) + scores.gather(1, chosen))[:, 0] - own
    return counted(cost.clamp(min=0)[allowed.any(dim=1)]).sum()


def _authors(scores: Tensor, relevance: Tensor, tau: float, negatives: Negative) -> Tensor:
    """What the authors' code computes: negatives of both directions along rows, hard and soft by other names (hard:
    second smallest cost, soft: second largest), the two margins crossed, broadcast over columns, at most 1.

    sum_i [S(i, n_i) - S_ii + M1[n_i]]+ + sum_i [S(i, k_i) - S(k_i, k_i) + M0[k_i]]+ with
    M1[q] = min(1, (phi_qq - phi(q, k_q)) / tau) and M0[q] the same with n_q (model_CVSE.py, lines 709 to 770).
    """
    own, row = scores.diagonal(), torch.arange(len(scores), device=scores.device)
    if len(scores) < 2:
        return (scores * 0).sum()
    n, k = (_second(cost.detach(), negatives) for cost in (scores - own[:, None], scores - own[None, :]))
    margins = [((relevance.diagonal() - relevance[row, other]) / tau).clamp(max=LARGEST) for other in (k, n)]
    first = counted((scores[row, n] - own + margins[0][n]).clamp(min=0))
    return (first + counted((scores[row, k] - own[k] + margins[1][k]).clamp(min=0))).sum()


def _second(cost: Tensor, negatives: Negative) -> Tensor:
    if negatives == "random":
        shift = torch.randint(1, len(cost), (len(cost),)).to(cost.device)
        return (torch.arange(len(cost), device=cost.device) + shift) % len(cost)
    return cost.topk(2, dim=1, largest=negatives == "soft").indices[:, 1]

"""Losses of hinges, [cost]+ of an item that is nearer than it should be: triplets, Kendall's order,
windows, rungs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from capgrade.losses.base import (
    Above0,
    LossForm,
    ScoredBatch,
    ScoreMatrix,
    batch_of,
    both_directions,
    require_all_known,
    zero_of,
)
from capgrade.losses.declared import declared
from capgrade.schemas.errors import InputError

TOLERANCE = 1e-6  # of a relevance of size 1: rounding
_LARGEST = 1.0  # of a margin in the code of SAM's authors
Negative = Literal["hard", "random", "soft"]
NegativeRule = Literal["hard", "random", "soft", "sum"]


@declared()
def triplet(
    scores: ScoreMatrix,
    own: Tensor | None = None,
    *,
    margin: float = 0.2,
    negatives: NegativeRule = "hard",
    spare_own: bool = False,
) -> Tensor:
    """sum_i [margin + S_in - S_ii]+ over both directions, n the negatives of i.

    negatives: hard (the most similar; VSE++'s max_violation), random (one drawn evenly), soft (the
    least similar) or sum (all of them). As in the authors' code other captions of the same image
    count as negatives, unless `spare_own`. Shapes and errors: see `capgrade.losses`. Source: Faghri
    et al. 2018, eq. 5 and 6; model.py of vsepp, ContrastiveLoss.

    >>> float(triplet(torch.tensor([[0.9, 0.8], [0.1, 0.9]])))
    0.2...
    """
    batch = batch_of("triplet", scores, own=own)
    total = zero_of(batch)
    for direction in both_directions(batch):
        allowed = ~direction.own if spare_own else ~direction.itself
        own_scores = direction.paired(direction.scores)
        total = total + _triplets(batch, direction.scores, own_scores, margin, allowed, negatives)
    return total


def _triplets(
    batch: ScoredBatch,
    scores: Tensor,
    own: Tensor,
    margin: Tensor | float,
    allowed: Tensor,
    negatives: NegativeRule,
) -> Tensor:
    """Of queries [P] over candidates [P, N], each with the score of its own one: hinges of the
    negatives chosen."""
    cost = (margin + scores - own[:, None]).clamp(min=0)
    if negatives == "sum":
        return batch.count_hinges(cost.masked_fill(~allowed, 0), allowed).sum()
    chosen = _choose_negatives(scores.detach(), allowed, negatives)[:, None]
    return batch.count_hinges(cost.gather(1, chosen)[allowed.gather(1, chosen)]).sum()


def _choose_negatives(scores: Tensor, allowed: Tensor, negatives: Negative) -> Tensor:
    """int64 [P]: one allowed column per row, an arbitrary one where none is allowed. Random ones
    are drawn by torch's generator."""
    if negatives == "random":
        order = torch.rand(scores.shape, device="cpu").to(scores.device)
        return order.masked_fill(~allowed, -1).argmax(dim=1)
    far = torch.finfo(scores.dtype).max
    if negatives == "hard":
        return scores.masked_fill(~allowed, -far).argmax(dim=1)
    return scores.masked_fill(~allowed, far).argmin(dim=1)


@declared("relevance")
def triplet_sn(
    scores: ScoreMatrix,
    relevance: Tensor | None = None,
    own: Tensor | None = None,
    known: Tensor | None = None,
    *,
    margin: float = 0.2,
    gamma: Above0 = 50.0,
) -> Tensor:
    """sum_i [s_i - S_ii + margin]+ over both directions, s_i = 1/gamma log sum_n exp(gamma S_in).

    n: candidates of known relevance r_in < r_ii, whatever the measure's scale. BCLS writes r_in <
    1: its labels have r_ii = 1, so the two are the same there (a duplicate of the caption is no
    negative). Relevance above the own pair's, which a measure that leaves the own caption out may
    give, is no negative either. The sum is not normalised: s exceeds the maximum by at most log(B -
    1) / gamma. Source: BCLS, eq. 14 and 15; the paper gives no margin, this is its host's (SGRAF).
    Shapes and errors: see `capgrade.losses`.

    >>> round(float(triplet_sn(torch.tensor([[0.9, 0.8], [0.1, 0.9]]), torch.eye(2))), 4)
    0.2
    """
    batch = batch_of("triplet_sn", scores, relevance, own, known)
    total = zero_of(batch)
    for direction in both_directions(batch, "relevance"):
        most = direction.paired(direction.relevance)[:, None]
        lower = direction.relevance < most - TOLERANCE * most.abs().clamp(min=1)
        negative = direction.known & ~direction.itself & lower
        rows = negative.any(dim=1)
        lower_scores = direction.scores[rows].masked_fill(~negative[rows], -float("inf"))
        cost = (
            (gamma * lower_scores).logsumexp(dim=1) / gamma
            - direction.paired(direction.scores)[rows]
            + margin
        )
        total = total + batch.count_hinges(cost.clamp(min=0)).sum()
    return total


@declared("relevance")
def sam(
    scores: ScoreMatrix,
    relevance: Tensor | None = None,
    own: Tensor | None = None,
    known: Tensor | None = None,
    *,
    tau: Above0 = 10.0,
    negatives: Negative = "hard",
    form: LossForm = "paper",
) -> Tensor:
    """sum_p [(phi_pp - phi_pm) / tau + S_pm - S_pp]+ + [(phi_pp - phi_pk) / tau + S_kp - S_pp]+.

    phi_pj is the relevance of caption j to the captions G_p of image p, m a negative caption of
    image p, k a negative image of caption p: both margins use G_p, also towards images, where
    caption k stands for image k (its first one of known relevance, in a batch that has several).
    paper (eq. 7): negatives hard = most similar, random, soft = least similar, among those of known
    phi_pj; a margin may be negative. Other captions of the image, and rows of the same image, are
    positives, so no negatives. authors (ContrastiveLossMetric): see `_sam_authors`; InputError
    unless all relevance is known. `sam` stands beside an ordinary triplet or alone. tau follows the
    measure: CIDEr reaches 10, Sentence-BERT and SPICE 1. Shapes and errors: see `capgrade.losses`.

    >>> scores = torch.tensor([[0.9, 0.5], [0.1, 0.9]])
    >>> relevance = torch.tensor([[1.0, 0.8], [0.2, 1.0]])
    >>> round(float(sam(scores, relevance, tau=1.0)), 4)
    0.4
    """
    batch = batch_of("sam", scores, relevance, own, known)
    if form == "authors":
        return zero_of(batch) + _sam_authors(batch, tau, negatives)
    direction, other = both_directions(batch, "relevance")
    margin = (direction.paired(direction.relevance)[:, None] - direction.relevance).float() / tau
    ok = direction.known & direction.paired(direction.known)[:, None]
    own = direction.paired(direction.scores)
    total = zero_of(batch) + _triplets(
        batch, direction.scores, own, margin, ok & ~direction.own, negatives
    )
    rows, columns = batch.at  # towards images: image k of a pair, of whose caption the margin is
    allowed = ok[:, columns] & ~other.own[:, rows]
    return total + _triplets(
        batch, other.scores[:, rows], own, margin[:, columns], allowed, negatives
    )


def _sam_authors(batch: ScoredBatch, tau: float, negatives: Negative) -> Tensor:
    """What the authors' code computes: negatives of both directions along rows, hard and soft by
    other names (hard: second smallest cost, soft: second largest), the two margins crossed,
    broadcast over columns, at most 1.

    sum_i [S(i, n_i) - S_ii + M1[n_i]]+ + sum_i [S(i, k_i) - S(k_i, k_i) + M0[k_i]]+ with M1[q] =
    min(1, (phi_qq - phi(q, k_q)) / tau) and M0[q] the same with n_q (model_CVSE.py, lines 709 to
    770).
    """
    scores, relevance = batch.scores.float(), require_all_known(batch, "sam").float()
    own, row = scores.diagonal(), torch.arange(len(scores), device=scores.device)
    if len(scores) < 2:
        return (scores * 0).sum()
    n, k = (
        _second(cost.detach(), negatives) for cost in (scores - own[:, None], scores - own[None, :])
    )
    margins = [
        ((relevance.diagonal() - relevance[row, other]) / tau).clamp(max=_LARGEST)
        for other in (k, n)
    ]
    first = batch.count_hinges((scores[row, n] - own + margins[0][n]).clamp(min=0))
    return (
        first + batch.count_hinges((scores[row, k] - own[k] + margins[1][k]).clamp(min=0))
    ).sum()


def _second(cost: Tensor, negatives: Negative) -> Tensor:
    if negatives == "random":
        shift = torch.randint(1, len(cost), (len(cost),)).to(cost.device)
        return (torch.arange(len(cost), device=cost.device) + shift) % len(cost)
    return cost.topk(2, dim=1, largest=negatives == "soft").indices[:, 1]


@declared("relevance")
def kendall(
    scores: ScoreMatrix,
    relevance: Tensor | None = None,
    own: Tensor | None = None,
    known: Tensor | None = None,
    *,
    alpha: float = 0.2,
) -> Tensor:
    """`sum_ijk 1[r_ij > r_ik + alpha] [S_ik - S_ij]+` over both directions (BCLS, eq. 5 and 17, no
    margin).

    j and k are candidates of known relevance. O(B C^2) time. Shapes and errors: see
    `capgrade.losses`.

    >>> float(kendall(torch.tensor([[0.9, 0.8], [0.1, 0.9]]), torch.eye(2)))
    0.0
    """
    batch = batch_of("kendall", scores, relevance, own, known)
    total = zero_of(batch)
    for direction in both_directions(batch, "relevance"):
        queries = zip(direction.scores, direction.relevance, direction.known, strict=True)
        for s, r, ok in queries:  # one query at a time takes memory [N, N]
            above = (r[:, None] > r[None, :] + alpha) & ok[:, None] & ok[None, :]
            total = (
                total
                + batch.count_hinges((s[None, :] - s[:, None]).clamp(min=0) * above, above).sum()
            )
    return total


def _count_windows(alpha: float, beta: float) -> int:
    """M, how many windows of width alpha and stride beta -1..1 holds. InputError for none."""
    if (count := round((2 - alpha) / beta)) < 1:
        problem = f"no window of alpha {alpha} and beta {beta} fits -1..1"
        raise InputError(problem, remedy="give an alpha below 2 and a smaller beta")
    return count


@declared("relevance", _count_windows, (-1.0, 1.0))
def kendall_windows(
    scores: ScoreMatrix,
    relevance: Tensor | None = None,
    own: Tensor | None = None,
    known: Tensor | None = None,
    *,
    alpha: Above0 = 0.2,
    beta: Above0 = 0.1,
) -> Tensor:
    """SW-HS (BCLS, eq. 19 and 20): 1/M sum over windows m and queries i of [max_neg S - min_pos
    S]+, both directions.

    Window m spans lo..lo + alpha with lo = -1 + m beta, m = 1..M, M = (2 - alpha) / beta; positives
    have relevance >= lo + alpha, negatives <= lo. The paper draws the windows and does not write
    their bounds; these give its M = 18 (formulas of the docs). A window without either adds
    nothing. For relevance in -1..1. Shapes and errors: see `capgrade.losses`.

    >>> round(float(kendall_windows(torch.tensor([[0.5, 0.8], [0.1, 0.9]]), torch.eye(2))), 4)
    0.15
    """
    batch = batch_of("kendall_windows", scores, relevance, own, known)
    count, total = _count_windows(alpha, beta), zero_of(batch)
    low = -1 + beta * torch.arange(1, count + 1, device=batch.scores.device)
    for direction in both_directions(batch, "relevance"):
        # Windows come before queries: [M, P, N]
        s = direction.scores[None]
        r = direction.relevance[None]
        positive = (r >= low[:, None, None] + alpha - TOLERANCE) & direction.known
        negative = (r <= low[:, None, None] + TOLERANCE) & direction.known
        nearest = s.masked_fill(~positive, torch.inf).amin(dim=2)
        farthest = s.masked_fill(~negative, -torch.inf).amax(dim=2)
        both = positive.any(dim=2) & negative.any(dim=2)
        total = (
            total + batch.count_hinges((farthest[both] - nearest[both]).clamp(min=0)).sum() / count
        )
    return total


def _check_rungs(
    thresholds: Sequence[float], margins: Sequence[float], weights: Sequence[float]
) -> None:
    """InputError unless there is a margin and a weight for each rung: one more than thresholds."""
    if not len(thresholds) + 1 == len(margins) == len(weights):
        problem = (
            f"loss 'ladder' has {len(thresholds)} thresholds, {len(margins)} margins,"
            f" {len(weights)} weights"
        )
        raise InputError(problem, remedy="give one margin and one weight more than thresholds")


@declared("relevance", _check_rungs)
def ladder(
    scores: ScoreMatrix,
    relevance: Tensor | None = None,
    own: Tensor | None = None,
    known: Tensor | None = None,
    *,
    thresholds: Sequence[float] = (0.63,),
    margins: Sequence[float] = (0.2, 0.01),
    weights: Sequence[float] = (1.0, 0.25),
) -> Tensor:
    """sum over queries i and rungs l of weight_l [margin_l + max_{below l} S - min_{above l} S]+,
    both directions.

    Rung 0 has only the pair itself above it; rung l has candidates of relevance >= thresholds[l -
    1] above, the pair too, and those of less below. Rungs one side of which is empty add nothing;
    unknown relevance is on neither side. Hardest pairs as CVSE++ takes them (eq. 6 and 7); its
    relevance is a BERT score learnt for the purpose. One margin and one weight more than
    thresholds. Shapes and errors: see `capgrade.losses`.

    >>> round(float(ladder(torch.tensor([[0.9, 0.8], [0.1, 0.9]]), torch.eye(2))), 4)
    0.2
    """
    batch = batch_of("ladder", scores, relevance, own, known)
    total = zero_of(batch)
    for direction in both_directions(batch, "relevance"):
        itself, known_cells = direction.itself, direction.known
        rungs = [
            itself,
            *(
                (direction.relevance >= threshold) & known_cells | itself
                for threshold in thresholds
            ),
        ]
        for above, margin, weight in zip(rungs, margins, weights, strict=True):
            below = known_cells & ~above
            rows = below.any(dim=1)
            worst = direction.scores.masked_fill(~below, -torch.inf).amax(dim=1)[rows]
            best = direction.scores.masked_fill(~above, torch.inf).amin(dim=1)[rows]
            total = total + weight * batch.count_hinges((margin + worst - best).clamp(min=0)).sum()
    return total

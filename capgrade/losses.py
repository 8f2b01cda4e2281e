"""Graded losses as plain functions of torch tensors: one call each, and modules where something is learned or kept.

`scores` [B, C] are similarities of B images (rows) and C captions (columns), of any float dtype, on any device, under
autocast; sums are float32. `relevance` [B, C] is real, on the same device; no gradient goes into it. `known`, bool
[B, C], says where it is known (None: everywhere): what is unknown is never taken for zero, and NaN in what is known
makes the loss NaN. `weights`, real [B, C], are needed beside `known` by the losses that are means over all candidates:
how many pairs each known one stands for. `Labels.block` gives all three.

`own`, bool [B, C], says which captions are whose. Its True cells are the pairs, so an image may have several captions,
and captions of nobody are negatives only. Where it holds the whole diagonal of a square batch, pair i is row i and
column i, and other cells are further captions of the same image, as in a batch in which an image comes twice. Without
`own` a square batch has its diagonal; any other needs it.

Every function returns a float32 scalar, of both directions, and raises InputError for what it lacks, for shapes that do
not fit and for options out of range. Equations, sources and the differences to the authors' code: docs/losses.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from capgrade.schemas.errors import InputError
from capgrade.trainer.losses import DEFAULTS, LOSSES, ScoredBatch, checked, needs

__all__ = [
    "InfoNCE", "Sam", "Sigmoid", "SoftInfoNCE", "daa", "info_nce", "kendall", "kendall_windows", "ladder", "sam",
    "sigmoid", "smooth_ap", "soft_info_nce", "triplet", "triplet_sn",
]  # fmt: skip

Form = Literal["paper", "authors"]
COUNTED = ("daa", "sigmoid")  # means and sums over all candidates, of which some were sampled


def triplet(
    scores: Tensor, own: Tensor | None = None, *, margin: float = DEFAULTS["triplet"]["margin"],
    negatives: Literal["hard", "random", "soft", "sum"] = DEFAULTS["triplet"]["negatives"],
    spare_own: bool = DEFAULTS["triplet"]["spare_own"],
) -> Tensor:  # fmt: skip
    """sum_i [margin + S_in - S_ii]+ over both directions, n the negatives of i (VSE++, eq. 5 and 6).

    negatives: hard (the most similar), random, soft (the least similar) or sum (all). Other captions of the same image
    count as negatives unless `spare_own`. Shapes and errors: see the module.

    >>> float(triplet(torch.tensor([[0.9, 0.8], [0.1, 0.9]])))
    0.2...
    """
    return _call("triplet", scores, None, own, None, margin=margin, negatives=negatives, spare_own=spare_own)


def sam(
    scores: Tensor, relevance: Tensor, own: Tensor | None = None, known: Tensor | None = None, *,
    tau: float = DEFAULTS["sam"]["tau"], negatives: Literal["hard", "random", "soft"] = DEFAULTS["sam"]["negatives"],
    form: Form = DEFAULTS["sam"]["form"],
) -> Tensor:  # fmt: skip
    """sum_p [(r_pp - r_pm) / tau + S_pm - S_pp]+ + [(r_pp - r_pk) / tau + S_kp - S_pp]+ (Biten et al. 2022, eq. 7).

    A triplet whose margin follows the relevance of its negative; an own pair is no negative, nor is one of unknown
    relevance. tau goes with the measure: CIDEr-D reaches 10, Sentence-BERT 1. form: paper, or authors, what their code
    computes (square batches, everything known). Shapes and errors: see the module.

    >>> scores, relevance = torch.tensor([[0.9, 0.5], [0.1, 0.9]]), torch.tensor([[1.0, 0.8], [0.2, 1.0]])
    >>> round(float(sam(scores, relevance, tau=1.0)), 4)
    0.4
    """
    return _call("sam", scores, relevance, own, known, tau=tau, negatives=negatives, form=form)


def triplet_sn(
    scores: Tensor, relevance: Tensor, own: Tensor | None = None, known: Tensor | None = None, *,
    margin: float = DEFAULTS["triplet_sn"]["margin"], gamma: float = DEFAULTS["triplet_sn"]["gamma"],
) -> Tensor:  # fmt: skip
    """sum_i [1/gamma log sum_n exp(gamma S_in) - S_ii + margin]+ over n with r_in < r_ii (BCLS, eq. 14 and 15).

    A smooth hardest negative among what is less relevant than the own pair. Shapes and errors: see the module.

    >>> round(float(triplet_sn(torch.tensor([[0.9, 0.8], [0.1, 0.9]]), torch.eye(2))), 4)
    0.2
    """
    return _call("triplet_sn", scores, relevance, own, known, margin=margin, gamma=gamma)


def kendall(
    scores: Tensor, relevance: Tensor, own: Tensor | None = None, known: Tensor | None = None, *,
    alpha: float = DEFAULTS["kendall"]["alpha"],
) -> Tensor:  # fmt: skip
    """sum_ijk 1[r_ij > r_ik + alpha] [S_ik - S_ij]+ (BCLS, eq. 5 and 17): candidates in the order of their relevance.

    O(B C^2) time. Shapes and errors: see the module.

    >>> float(kendall(torch.tensor([[0.9, 0.8], [0.1, 0.9]]), torch.eye(2)))
    0.0
    """
    return _call("kendall", scores, relevance, own, known, alpha=alpha)


def kendall_windows(
    scores: Tensor, relevance: Tensor, own: Tensor | None = None, known: Tensor | None = None, *,
    alpha: float = DEFAULTS["kendall_windows"]["alpha"], beta: float = DEFAULTS["kendall_windows"]["beta"],
) -> Tensor:  # fmt: skip
    """`kendall` by sliding windows of relevance in -1..1, hardest candidates of each (BCLS, eq. 19 and 20).

    Windows of width alpha every beta. Shapes and errors: see the module.

    >>> round(float(kendall_windows(torch.tensor([[0.5, 0.8], [0.1, 0.9]]), torch.eye(2))), 4)
    0.15
    """
    return _call("kendall_windows", scores, relevance, own, known, alpha=alpha, beta=beta)


def daa(
    scores: Tensor, relevance: Tensor, own: Tensor | None = None, known: Tensor | None = None,
    weights: Tensor | None = None, *, temperature: float = DEFAULTS["daa"]["temperature"],
    form: Form = DEFAULTS["daa"]["form"],
) -> Tensor:  # fmt: skip
    """(1 - ASP of images) + (1 - ASP of captions) on soft ranks (Li et al. 2022, eq. 8-10); in 0..2.

    Candidates of known relevance count by their weights. form: paper, or authors (square batches, everything known).
    O(B C^2) memory. Shapes and errors: see the module.

    >>> float(daa(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.eye(2)))
    0.0
    """
    return _call("daa", scores, relevance, own, known, weights, temperature=temperature, form=form)


def smooth_ap(
    scores: Tensor, own: Tensor | None = None, *, temperature: float = DEFAULTS["smooth_ap"]["temperature"],
) -> Tensor:  # fmt: skip
    """(1 - mean AP) of both directions by soft ranks, positives the own items (Brown et al. 2020, eq. 6); in 0..2.

    O(B C^2) memory. Shapes and errors: see the module.

    >>> round(float(smooth_ap(torch.tensor([[0.9, 0.1], [0.2, 0.8]]))), 4)
    0.0
    """
    return _call("smooth_ap", scores, None, own, None, temperature=temperature)


def ladder(
    scores: Tensor, relevance: Tensor, own: Tensor | None = None, known: Tensor | None = None, *,
    thresholds: Sequence[float] = DEFAULTS["ladder"]["thresholds"],
    margins: Sequence[float] = DEFAULTS["ladder"]["margins"], weights: Sequence[float] = DEFAULTS["ladder"]["weights"],
) -> Tensor:  # fmt: skip
    """sum over rungs l of weight_l [margin_l + max_{below l} S - min_{above l} S]+ (Zhou et al. 2020, eq. 6 and 7).

    One margin and one weight more than thresholds of relevance. Shapes and errors: see the module.

    >>> round(float(ladder(torch.tensor([[0.9, 0.8], [0.1, 0.9]]), torch.eye(2))), 4)
    0.2
    """
    options = {"thresholds": thresholds, "margins": margins, "weights": weights}
    return _call("ladder", scores, relevance, own, known, **options)


def info_nce(
    scores: Tensor, own: Tensor | None = None, *, temperature: float | Tensor = DEFAULTS["info_nce"]["temperature"],
) -> Tensor:  # fmt: skip
    """Mean cross-entropy of softmax(S / temperature) in both directions, the pair itself as target (CLIP).

    `own` only says which cells are pairs where B != C; `temperature` may be a tensor that is learned. Shapes and
    errors: see the module.

    >>> round(float(info_nce(torch.zeros(4, 4))), 4) == round(torch.tensor(4.0).log().item(), 4)
    True
    """
    return _call("info_nce", scores, None, own, None, temperature=temperature)


def soft_info_nce(
    scores: Tensor, relevance: Tensor, own: Tensor | None = None, known: Tensor | None = None, *,
    temperature: float | Tensor = DEFAULTS["info_nce"]["temperature"],
    softness: float = DEFAULTS["info_nce"]["softness"],
) -> Tensor:  # fmt: skip
    """-mean_i sum_j q_ij log softmax_j(S_ij / temperature), q_i = softmax(r_i / softness), in both directions.

    Soft-target InfoNCE (SoftCLIP's idea, Gao et al. 2023, with graded relevance for its self-similarity): targets have
    a temperature of their own, and both softmaxes are over what is known and the pair. Shapes and errors: see the
    module.

    >>> relevance = torch.tensor([[1.0, 0.5], [0.2, 1.0]])
    >>> worse, better = (float(soft_info_nce(s, relevance, temperature=1.0)) for s in (relevance.flip(0), relevance))
    >>> better < worse
    True
    """
    options = {"temperature": temperature, "softness": softness, "targets": "relevance"}
    return _call("info_nce", scores, relevance, own, known, **options)


def sigmoid(
    scores: Tensor, relevance: Tensor | None = None, own: Tensor | None = None, known: Tensor | None = None,
    weights: Tensor | None = None, *, temperature: float | Tensor = DEFAULTS["sigmoid"]["temperature"],
    bias: float | Tensor = DEFAULTS["sigmoid"]["bias"], low: float = DEFAULTS["sigmoid"]["low"],
    high: float = DEFAULTS["sigmoid"]["high"],
) -> Tensor:  # fmt: skip
    """-1/B sum_ij y_ij log s(x_ij) + (1 - y_ij) log s(-x_ij), x = S / temperature + bias (SigLIP, Zhai et al. 2023).

    y = (r - low) / (high - low) within 0..1, and 1 for own pairs; without `relevance` y is 1 for own pairs alone, as
    in the paper. Cells of unknown relevance are left out, the others count by their weights. Shapes and errors: see the
    module.

    >>> round(float(sigmoid(torch.zeros(2, 2), temperature=1.0, bias=0.0)), 4)
    1.3863
    """
    targets = "own" if relevance is None else "relevance"
    options = {"temperature": temperature, "bias": bias, "targets": targets, "low": low, "high": high}
    return _call("sigmoid", scores, relevance, own, known, weights, **options)


class Sam(torch.nn.Module):
    """`sam` with its options kept: `Sam(tau=3.0)(scores, relevance, own=None, known=None)`.

    >>> Sam(tau=1.0)(torch.eye(2), torch.eye(2)).shape
    torch.Size([])
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        checked({"name": "sam", **options})
        self.options = options

    def forward(
        self, scores: Tensor, relevance: Tensor, own: Tensor | None = None, known: Tensor | None = None
    ) -> Tensor:
        return sam(scores, relevance, own, known, **self.options)


class _Scaled(torch.nn.Module):
    """A temperature above 0, learned as its logarithm unless `learn` is False."""

    def __init__(self, temperature: float, learn: bool) -> None:
        super().__init__()
        if not temperature > 0:
            raise InputError(f"temperature {temperature:g}", remedy="give one above 0, such as 0.05")
        self.log_temperature = torch.nn.Parameter(torch.tensor(float(temperature)).log(), requires_grad=learn)

    @property
    def temperature(self) -> Tensor:
        return self.log_temperature.exp()


class InfoNCE(_Scaled):
    """`info_nce` with a temperature that is learned: `InfoNCE(temperature=0.07)(scores, own=None)`.

    >>> [name for name, _ in InfoNCE().named_parameters()]
    ['log_temperature']
    """

    def __init__(self, temperature: float = DEFAULTS["info_nce"]["temperature"], *, learn: bool = True) -> None:
        super().__init__(temperature, learn)

    def forward(self, scores: Tensor, own: Tensor | None = None) -> Tensor:
        return info_nce(scores, own, temperature=self.temperature)


class SoftInfoNCE(_Scaled):
    """`soft_info_nce` with a temperature that is learned; the targets' `softness` is not.

    >>> SoftInfoNCE(softness=0.2)(torch.eye(2), torch.eye(2)).requires_grad
    True
    """

    def __init__(
        self, temperature: float = DEFAULTS["info_nce"]["temperature"], *,
        softness: float = DEFAULTS["info_nce"]["softness"], learn: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(temperature, learn)
        self.softness = float(checked({"name": "info_nce", "softness": softness})["softness"])

    def forward(
        self, scores: Tensor, relevance: Tensor, own: Tensor | None = None, known: Tensor | None = None
    ) -> Tensor:
        return soft_info_nce(scores, relevance, own, known, temperature=self.temperature, softness=self.softness)


class Sigmoid(_Scaled):
    """`sigmoid` with a temperature and a bias that are learned, as SigLIP has them.

    >>> sorted(name for name, _ in Sigmoid().named_parameters())
    ['bias', 'log_temperature']
    """

    def __init__(
        self, temperature: float = DEFAULTS["sigmoid"]["temperature"], bias: float = DEFAULTS["sigmoid"]["bias"], *,
        low: float = DEFAULTS["sigmoid"]["low"], high: float = DEFAULTS["sigmoid"]["high"], learn: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(temperature, learn)
        self.bias = torch.nn.Parameter(torch.tensor(float(bias)), requires_grad=learn)
        self.low, self.high = low, high

    def forward(
        self, scores: Tensor, relevance: Tensor | None = None, own: Tensor | None = None,
        known: Tensor | None = None, weights: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        options: dict[str, Any] = {"low": self.low, "high": self.high}
        return sigmoid(scores, relevance, own, known, weights, temperature=self.temperature, bias=self.bias, **options)


def _call(
    name: str, scores: Tensor, relevance: Tensor | None, own: Tensor | None, known: Tensor | None,
    weights: Tensor | None = None, /, **options: Any,
) -> Tensor:  # fmt: skip
    given = {"scores": scores, "relevance": relevance, "own": own, "known": known, "weights": weights}
    if relevance is None and "relevance" in needs([{"name": name, **options}]):
        raise InputError(f"loss '{name}' needs relevance", remedy="give it: labels.block(...), float [B, C]")
    for key, value in given.items():
        if value is not None:
            _check(key, value, scores)
    if relevance is not None and known is not None and weights is None and name in COUNTED:
        problem = f"loss '{name}' counts how many pairs each known one stands for, and weights are not given"
        raise InputError(problem, remedy="give those of labels.block(...), or known.float() to count each once")
    pairs, seen = _own(scores, own), None if relevance is None else relevance.detach()
    if seen is not None and known is not None:  # whatever stands where nothing is known, NaN too
        seen = seen.where(known | pairs, 0)
        weights = None if weights is None else weights.detach().where(known, 0)
    in_order = None if own is not None else True
    batch = ScoredBatch(scores, pairs, seen, known, weights, in_order=in_order)
    loss = LOSSES[name].function(batch, **checked({"name": name, **options}))
    # comparisons pass over NaN, and to ask for it here would wait for the device
    return loss if seen is None else loss + 0 * seen.sum(dtype=torch.float32)


def _check(name: str, value: Tensor, scores: Tensor) -> None:
    """InputError for what is no tensor of the right kind beside the scores."""
    if not isinstance(value, Tensor):
        problem = f"{name} is {type(value).__name__}, not a torch tensor"
        raise InputError(problem, remedy="torch.from_numpy(...), or labels.block(..., device=scores.device)")
    if value.ndim != 2 or value.shape != scores.shape:
        raise InputError(f"{name} is {list(value.shape)}, scores {list(scores.shape)}", remedy="give matrices [B, C]")
    if value.device != scores.device:
        raise InputError(f"{name} is on {value.device}, scores on {scores.device}", remedy=f"{name}.to(scores.device)")
    if (value.dtype == torch.bool) != (name in ("own", "known")) or value.is_complex():
        wanted = "bool" if name in ("own", "known") else "real"
        raise InputError(f"{name} is {value.dtype}", remedy=f"give {wanted} values")


def _own(scores: Tensor, own: Tensor | None) -> Tensor:
    if own is not None:
        return own
    rows, columns = scores.shape
    if rows != columns:
        problem = f"{rows} images and {columns} captions, and nothing says which belong together"
        raise InputError(problem, remedy="give own, bool [B, C]")
    return torch.eye(rows, dtype=torch.bool, device=scores.device)

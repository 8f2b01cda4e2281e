"""The weighted sum of losses that a run learns from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from capgrade.losses.base import Finite, ScoredBatch, counting, scores_of
from capgrade.losses.declared import DEFAULTS, checked, converted, named
from capgrade.schemas.errors import InputError

ACTIVE = "active_"
ROUNDING = 1e-5  # by which a measure may leave its range


class LossTerms:
    """The weighted sum of terms such as {"name": "sam", "weight": 10, "tau": 3}; `of` names a part of the model whose
    scores the term looks at. It counts the hinges of its losses as it goes (`active_hinges`).

    Raises InputError for an unknown name or option, listing the known ones, and for a value that does not fit.
    """

    def __init__(self, terms: Sequence[Mapping[str, Any]]) -> None:
        self._terms = [(converted("weight", Finite, one.get("weight", 1.0), one), _term(one), one) for one in terms]
        self._hinges: dict[str, Tensor] = {}  # int64 [2]: active, all

    def __call__(self, batch: ScoredBatch) -> Tensor:
        total = batch.scores.new_zeros(())
        for weight, loss, term in self._terms:
            with counting() as hinges:
                total = total + weight * loss(batch)
            if hinges:
                counts = self._hinges.get(term["name"], 0)
                self._hinges[term["name"]] = counts + torch.stack(hinges).sum(dim=0)
        return total

    def active_hinges(self) -> dict[str, float]:
        """As `active_sam`, for each loss with hinges: the share of their costs above 0 since this was last asked, in
        0..1; 0 where no pair had one. It waits for the device."""
        counts, self._hinges = {name: found.tolist() for name, found in self._hinges.items()}, {}
        return {f"{ACTIVE}{name}": active / max(number, 1) for name, (active, number) in counts.items()}


def needs(terms: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """What the terms need of a batch beside the scores."""
    found = {named(term).needs for term in terms if _asks(term)}
    return frozenset(name for name in found if name is not None)


def check_scale(terms: Sequence[Mapping[str, Any]], measure: str, low: float, high: float) -> None:
    """InputError for a loss whose formula is written for another range than the measure's low..high."""
    for term in terms:
        wanted = named(term).within
        if wanted is not None and not wanted[0] - ROUNDING <= low <= high <= wanted[1] + ROUNDING:
            problem = f"loss '{term['name']}' is written for relevance in {wanted[0]:g}..{wanted[1]:g}"
            remedy = "choose a measure of that range, such as sbert"
            raise InputError(f"{problem}, and {measure} is in {low:g}..{high:g}", remedy=remedy)


def _asks(term: Mapping[str, Any]) -> bool:
    """Not where the pairs alone are its targets, by choice or by default."""
    return {**DEFAULTS.get(term.get("name", ""), {}), **term}.get("targets", "relevance") == "relevance"


def _term(term: Mapping[str, Any]) -> Callable[[ScoredBatch], Tensor]:
    function = partial(named(term).function, **checked(term))
    if (part := term.get("of")) is None:
        return function
    return lambda batch: function(scores_of(batch, part))

"""Losses: one family a file, each a pure function of a scored batch. A new one is a file and a line here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import Tensor

from schemas.errors import InputError
from trainer.losses.base import ScoredBatch
from trainer.losses.centre import centre, classify
from trainer.losses.daa import daa, smooth_ap
from trainer.losses.info_nce import info_nce
from trainer.losses.kendall import kendall, kendall_windows
from trainer.losses.ladder import ladder
from trainer.losses.sam import sam
from trainer.losses.soft_negative import triplet_sn
from trainer.losses.triplet import triplet

__all__ = ["LOSSES", "ScoredBatch", "make_loss", "needs"]


@dataclass(frozen=True)
class Loss:
    """A loss and what it needs of a batch beside the scores: relevance, image_relevance, caption_relevance, vectors
    or logits."""

    function: Callable[..., Tensor]
    needs: str | None = None


LOSSES: dict[str, Loss] = {
    "triplet": Loss(triplet),
    "sam": Loss(sam, "relevance"),
    "triplet_sn": Loss(triplet_sn, "relevance"),
    "kendall": Loss(kendall, "relevance"),
    "kendall_windows": Loss(kendall_windows, "relevance"),
    "daa": Loss(daa, "relevance"),
    "smooth_ap": Loss(smooth_ap),
    "ladder": Loss(ladder, "relevance"),
    "centre": Loss(centre, "vectors"),
    "classify": Loss(classify, "logits"),
    "info_nce": Loss(info_nce, "relevance"),
}


def make_loss(terms: Sequence[Mapping[str, Any]]) -> Callable[[ScoredBatch], Tensor]:
    """The weighted sum of terms such as {"name": "sam", "weight": 10, "tau": 3}.

    Raises InputError for an unknown name or option, listing the known ones, and for a value that does not fit.
    """
    made = [(float(term.get("weight", 1.0)), _term(term)) for term in terms]

    def total(batch: ScoredBatch) -> Tensor:
        return sum((weight * loss(batch) for weight, loss in made), batch.scores.new_zeros(()))

    return total


def needs(terms: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """What the terms need of a batch beside the scores."""
    found = {_known(term).needs for term in terms if _asks(term)}
    return frozenset(name for name in found if name is not None)


def _asks(term: Mapping[str, Any]) -> bool:
    return term.get("name") != "info_nce" or term.get("targets") == "relevance"


def _known(term: Mapping[str, Any]) -> Loss:
    if term.get("name") not in LOSSES:
        remedy = f"choose from: {', '.join(LOSSES)}"
        raise InputError(f"unknown loss '{term.get('name')}'", remedy=remedy)
    return LOSSES[term["name"]]


def _term(term: Mapping[str, Any]) -> Callable[[ScoredBatch], Tensor]:
    function, name = _known(term).function, term["name"]
    hints = {k: kind for k, kind in get_type_hints(function).items() if k not in ("batch", "return")}
    options = {key: value for key, value in term.items() if key not in ("name", "weight")}
    for key, value in options.items():
        if key not in hints:
            known = ", ".join(("weight", *(p for p in inspect.signature(function).parameters if p != "batch")))
            raise InputError(f"loss '{name}' has no option '{key}'", remedy=f"known: {known}")
        try:
            TypeAdapter(hints[key], config=ConfigDict(strict=False)).validate_python(value)
        except ValidationError as error:
            raise InputError(f"option '{key}' of loss '{name}' is {value!r}: {error.errors()[0]['msg']}") from error
    return partial(function, **options)

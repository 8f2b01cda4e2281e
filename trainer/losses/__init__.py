"""Losses: one family per file, each a pure function of a scored batch. A new loss is a new file and a line here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Annotated, Any, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError
from torch import Tensor

from capgrade.schemas.errors import InputError
from capgrade.trainer.losses.base import ScoredBatch, scores_of
from capgrade.trainer.losses.centre import centre, classify
from capgrade.trainer.losses.daa import daa, smooth_ap
from capgrade.trainer.losses.info_nce import info_nce
from capgrade.trainer.losses.kendall import kendall, kendall_windows, windows
from capgrade.trainer.losses.ladder import check_rungs, ladder
from capgrade.trainer.losses.own import captioning, divergence
from capgrade.trainer.losses.sam import sam
from capgrade.trainer.losses.sigmoid import sigmoid
from capgrade.trainer.losses.soft_negative import triplet_sn
from capgrade.trainer.losses.triplet import triplet

__all__ = ["DEFAULTS", "LOSSES", "ScoredBatch", "check_scale", "checked", "make_loss", "needs"]

Weight = Annotated[float, Field(allow_inf_nan=False)]
ROUNDING = 1e-5  # by which a measure may leave its range
DIVIDED = ("info_nce", "sigmoid")  # their scores, by `temperature`: that of daa and smooth_ap is of ranks


@dataclass(frozen=True)
class Loss:
    """A loss, what it needs of a batch beside the scores (relevance, vectors or logits), a check of its options
    together, and the range of relevance that its formula is written for (None: any)."""

    function: Callable[..., Tensor]
    needs: str | None = None
    check: Callable[..., object] | None = None
    within: tuple[float, float] | None = None


LOSSES: dict[str, Loss] = {
    "triplet": Loss(triplet),
    "sam": Loss(sam, "relevance"),
    "triplet_sn": Loss(triplet_sn, "relevance"),
    "kendall": Loss(kendall, "relevance"),
    "kendall_windows": Loss(kendall_windows, "relevance", windows, (-1.0, 1.0)),
    "daa": Loss(daa, "relevance"),
    "smooth_ap": Loss(smooth_ap),
    "ladder": Loss(ladder, "relevance", check_rungs),
    "centre": Loss(centre, "vectors"),
    "classify": Loss(classify, "logits"),
    "info_nce": Loss(info_nce, "relevance"),
    "captioning": Loss(captioning, "own_losses"),
    "divergence": Loss(divergence, "own_losses"),
    "sigmoid": Loss(sigmoid, "relevance"),
}
DEFAULTS: dict[str, dict[str, Any]] = {  # of the options of each loss: its function declares them
    name: {key: one.default for key, one in inspect.signature(loss.function).parameters.items() if key != "batch"}
    for name, loss in LOSSES.items()
}


def make_loss(terms: Sequence[Mapping[str, Any]]) -> Callable[[ScoredBatch], Tensor]:
    """The weighted sum of terms such as {"name": "sam", "weight": 10, "tau": 3}; `of` names a part of the model
    whose scores the term looks at.

    Raises InputError for an unknown name or option, listing the known ones, and for a value that does not fit.
    """
    made = [(_converted("weight", Weight, term.get("weight", 1.0), term), _term(term)) for term in terms]

    def total(batch: ScoredBatch) -> Tensor:
        return sum((weight * loss(batch) for weight, loss in made), batch.scores.new_zeros(()))

    return total


def needs(terms: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """What the terms need of a batch beside the scores."""
    found = {_known(term).needs for term in terms if _asks(term)}
    return frozenset(name for name in found if name is not None)


def check_scale(terms: Sequence[Mapping[str, Any]], measure: str, low: float, high: float) -> None:
    """InputError for a loss whose formula is written for another range than the measure's low..high."""
    for term in terms:
        wanted = _known(term).within
        if wanted is not None and not wanted[0] - ROUNDING <= low <= high <= wanted[1] + ROUNDING:
            problem = f"loss '{term['name']}' is written for relevance in {wanted[0]:g}..{wanted[1]:g}"
            remedy = "choose a measure of that range, such as sbert"
            raise InputError(f"{problem}, and {measure} is in {low:g}..{high:g}", remedy=remedy)


def _asks(term: Mapping[str, Any]) -> bool:
    """Not where the pairs alone are its targets, by choice or by default."""
    return {**DEFAULTS.get(term.get("name", ""), {}), **term}.get("targets", "relevance") == "relevance"


def _known(term: Mapping[str, Any]) -> Loss:
    if term.get("name") not in LOSSES:
        remedy = f"choose from: {', '.join(LOSSES)}"
        raise InputError(f"unknown loss '{term.get('name')}'", remedy=remedy)
    return LOSSES[term["name"]]


def _term(term: Mapping[str, Any]) -> Callable[[ScoredBatch], Tensor]:
    function = partial(_known(term).function, **checked(term))
    if (part := term.get("of")) is None:
        return function
    return lambda batch: function(scores_of(batch, part))


def checked(term: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a term, each as its type has it; tensors, such as a learned temperature, as they are.

    Raises InputError for an unknown loss or option, listing the known ones, and for a value that does not fit."""
    loss = _known(term)
    hints = get_type_hints(loss.function, include_extras=True)
    known = DEFAULTS[term["name"]]
    options = {}
    for key in term.keys() - {"name", "weight", "of"}:
        if key not in known:
            problem = f"loss '{term['name']}' has no option '{key}'"
            raise InputError(problem, remedy=f"known: {', '.join(('weight', 'of', *known))}")
        options[key] = _converted(key, hints[key], term[key], term)
    if loss.check is not None:
        loss.check(**{**known, **options})
    if term.get("of") == "logits" and term["name"] in DIVIDED and options.get("temperature") != 1:
        problem = f"loss '{term['name']}' of the logits divides them by a temperature, and they have a learned one"
        raise InputError(problem, remedy="give this term temperature: 1.0")
    return options


_adapter = lru_cache(TypeAdapter)


def _converted(key: str, kind: Any, value: Any, term: Mapping[str, Any]) -> Any:
    """The value as the option's type has it: YAML reads 1e-3 as text."""
    if isinstance(value, Tensor):
        return value
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        said = error.errors()[0]["msg"]
        raise InputError(f"option '{key}' of loss '{term.get('name')}' is {value!r}: {said}") from error

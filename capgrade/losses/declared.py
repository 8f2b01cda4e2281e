"""Every loss by its name, with what it needs and its options, which its signature alone declares; and the weighted sum
of losses that a run learns from."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, wraps
from typing import Any, ParamSpec, get_type_hints

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import Tensor

from capgrade.losses.base import Finite, ScoredBatch, counting, scores_of
from capgrade.schemas.errors import InputError

P = ParamSpec("P")
DIVIDED = ("info_nce", "soft_info_nce", "sigmoid")  # their scores, by `temperature`: that of daa is of ranks

ACTIVE = "active_"
ROUNDING = 1e-5  # by which a measure may leave its range


@dataclass(frozen=True)
class Loss:
    """A loss, what it needs of a batch beside the scores (relevance, vectors or logits), a check of its options
    together, and the range of relevance that its formula is written for (None: any)."""

    function: Callable[..., Tensor]
    needs: str | None = None
    check: Callable[..., object] | None = None
    within: tuple[float, float] | None = None


LOSSES: dict[str, Loss] = {}
DEFAULTS: dict[str, dict[str, Any]] = {}  # of the options of each loss: the keyword-only arguments of its function


def declared(
    needs: str | None = None, check: Callable[..., object] | None = None, within: tuple[float, float] | None = None
) -> Callable[[Callable[P, Tensor]], Callable[P, Tensor]]:
    """Enter a function as the loss of its name (`Loss`). Its options are checked and converted by their types at every
    call; a term of a preset names the same function."""

    def declare(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
        name = function.__name__

        @wraps(function)
        def loss(*args: P.args, **given: P.kwargs) -> Tensor:
            given.update(checked({"name": name, **{key: given[key] for key in DEFAULTS[name].keys() & given.keys()}}))
            return function(*args, **given)

        LOSSES[name] = Loss(loss, needs, check, within)
        parameters = inspect.signature(function).parameters.values()
        DEFAULTS[name] = {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}
        return loss

    return declare


def named(term: Mapping[str, Any]) -> Loss:
    """The loss of a term. InputError for an unknown name, listing the known ones."""
    if term.get("name") not in LOSSES:
        remedy = f"choose from: {', '.join(LOSSES)}"
        raise InputError(f"unknown loss '{term.get('name')}'", remedy=remedy)
    return LOSSES[term["name"]]


def checked(term: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a term, each as its type has it; tensors, such as a learned temperature, as they are.

    Raises InputError for an unknown loss or option, listing the known ones, and for a value that does not fit."""
    loss = named(term)
    known = DEFAULTS[term["name"]]
    options = {}
    for key in term.keys() - {"name", "weight", "of"}:
        if key not in known:
            problem = f"loss '{term['name']}' has no option '{key}'"
            raise InputError(problem, remedy=f"known: {', '.join(('weight', 'of', *known))}")
        options[key] = converted(key, _hints(loss.function)[key], term[key], term)
    if loss.check is not None:
        loss.check(**{**known, **options})
    if term.get("of") == "logits" and term["name"] in DIVIDED and options.get("temperature") != 1:
        problem = f"loss '{term['name']}' of the logits divides them by a temperature, and they have a learned one"
        raise InputError(problem, remedy="give this term temperature: 1.0")
    return options


@lru_cache
def _hints(function: Callable[..., Tensor]) -> dict[str, Any]:
    return get_type_hints(function, include_extras=True)


@lru_cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind, config=ConfigDict(arbitrary_types_allowed=True))


def converted(key: str, kind: Any, value: Any, term: Mapping[str, Any]) -> Any:
    """The value as the option's type has it: YAML reads 1e-3 as text."""
    if isinstance(value, Tensor):
        return value
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        said = error.errors()[0]["msg"]
        raise InputError(f"option '{key}' of loss '{term.get('name')}' is {value!r}: {said}") from error


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

"""Every loss by its name, with what it needs and its options, which its signature alone declares;
and the weighted sum of losses that a run learns from."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Annotated, Any, ParamSpec, get_type_hints

import torch
from pydantic import BeforeValidator, ConfigDict, TypeAdapter, ValidationError
from torch import Tensor

from capgrade.losses.base import ScoredBatch
from capgrade.schemas.block import Finite, refuse_truth
from capgrade.schemas.errors import InputError, choose_from

_P = ParamSpec("_P")
ACTIVE = "active_"
_WEIGHT: TypeAdapter[float] = TypeAdapter(
    Annotated[Finite, BeforeValidator(partial(refuse_truth, float))]
)
_ROUNDING = 1e-5  # by how much a measure may leave its range


@dataclass(frozen=True)
class Loss:
    """A loss, the types and defaults of its options, what it needs of a batch beside the scores
    (relevance, vectors or logits), a check of its options together, the range of relevance that its
    formula is written for (None: any), and whether its `temperature` divides the scores."""

    function: Callable[..., Tensor]
    kinds: Mapping[str, TypeAdapter[Any]]
    defaults: Mapping[str, Any]  # the keyword-only arguments of its function
    needs: str | None = None
    check: Callable[..., object] | None = None
    within: tuple[float, float] | None = None
    divides: bool = False


LOSSES: dict[str, Loss] = {}


def declared(
    needs: str | None = None,
    check: Callable[..., object] | None = None,
    within: tuple[float, float] | None = None,
    divides: bool = False,
) -> Callable[[Callable[_P, Tensor]], Callable[_P, Tensor]]:
    """Register a function as the loss of its name (`Loss`). Its options are checked and converted
    by their types at every call; a term of a preset names the same function."""

    def declare(function: Callable[_P, Tensor]) -> Callable[_P, Tensor]:
        name, hints = function.__name__, get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
        defaults = {
            parameter.name: parameter.default
            for parameter in parameters
            if parameter.kind is parameter.KEYWORD_ONLY
        }

        @wraps(function)
        def loss(*args: _P.args, **given: _P.kwargs) -> Tensor:
            given.update(
                convert_options(name, {key: given[key] for key in defaults.keys() & given.keys()})
            )
            return function(*args, **given)

        kinds: dict[str, TypeAdapter[Any]] = {}
        for key in defaults:
            kind: Any = Annotated[hints[key], BeforeValidator(partial(refuse_truth, hints[key]))]
            kinds[key] = TypeAdapter(kind, config=ConfigDict(arbitrary_types_allowed=True))
        LOSSES[name] = Loss(loss, kinds, defaults, needs, check, within, divides)
        return loss

    return declare


def loss_of(name: Any) -> Loss:
    """The loss of a name. InputError for an unknown one, listing the known ones."""
    if not isinstance(name, str) or name not in LOSSES:
        raise InputError(
            f"unknown loss '{name}'", remedy=choose_from(name, LOSSES, "capgrade list losses")
        )
    return LOSSES[name]


def convert_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a loss, each as its type has it; tensors, such as a learned temperature, as
    they are.

    Raises InputError for an unknown option, listing the known ones, and for a value that does not
    fit."""
    loss, converted = loss_of(name), {}
    for key, value in options.items():
        if key not in loss.defaults:
            remedy = f"{choose_from(key, loss.defaults)}; a term of several also has weight and of"
            raise InputError(f"loss '{name}' has no option '{key}'", remedy=remedy)
        converted[key] = _convert(name, key, loss.kinds[key], value)
    if loss.check is not None:
        loss.check(**{**loss.defaults, **converted})
    return converted


def _convert(name: str, key: str, kind: TypeAdapter[Any], value: Any) -> Any:
    """The value as the option's type has it: YAML reads 1e-3 as text."""
    if isinstance(value, Tensor):
        return value
    try:
        return kind.validate_python(value)
    except ValidationError as error:
        message = error.errors()[0]["msg"]
        raise InputError(f"option '{key}' of loss '{name}' is {value!r}: {message}") from error


class LossTerms:
    """The weighted sum of terms such as {"name": "sam", "weight": 10, "tau": 3}; `of` names a part
    of the model whose scores the term looks at. It counts the hinges of its losses as it goes
    (`active_hinges`). `needs` is what terms need of a batch beside the scores: no relevance where
    the pairs alone are the targets, by choice or by default.

    Raises InputError for an unknown name or option, listing the known ones, and for a value that
    does not fit.
    """

    def __init__(self, terms: Sequence[Mapping[str, Any]]) -> None:
        self._terms: list[tuple[str, float, str | None, Callable[[ScoredBatch], Tensor]]] = []
        self._hinges: dict[str, Tensor] = {}  # int64 [2]: active, all
        self.needs: set[str] = set()
        for term in terms:
            given = dict(term)
            name, weight = given.pop("name", None), given.pop("weight", 1.0)
            loss, of = loss_of(name), given.pop("of", None)
            options = convert_options(name, given)
            if of == "logits" and loss.divides and options.get("temperature") != 1:
                problem = (
                    f"loss '{name}' of the logits divides them by a temperature, and they have a"
                    " learned one"
                )
                raise InputError(problem, remedy="give this term temperature: 1.0")
            weight = _convert(name, "weight", _WEIGHT, weight)
            # Unwrapped, because its options need not be converted again at every step.
            function = partial(inspect.unwrap(loss.function), **options)
            self._terms.append((name, weight, of, function))
            chosen = {**loss.defaults, **options}
            graded = chosen.get("targets", "relevance") == "relevance"
            if loss.needs is not None and (graded or chosen.get("mask_above") is not None):
                self.needs.add(loss.needs)

    def __call__(self, batch: ScoredBatch) -> Tensor:
        total = batch.scores.new_zeros(())
        for name, weight, of, loss in self._terms:
            if of is not None and of not in batch.more:
                known = ", ".join(batch.more) or "the model has no parts"
                raise InputError(f"a loss looks at the scores of '{of}'", remedy=f"known: {known}")
            hinges: list[Tensor] = []
            scores = batch.scores if of is None else batch.more[of]
            total = total + weight * loss(replace(batch, scores=scores, hinges=hinges))
            if hinges:
                self._hinges[name] = self._hinges.get(name, 0) + torch.stack(hinges).sum(dim=0)
        return total

    def active_hinges(self) -> dict[str, float]:
        """As `active_sam`, for each loss with hinges: the share of their costs above 0 since this
        was last asked, in 0..1; 0 where no pair had one. It waits for the device."""
        shares = {}
        for name, count in self._hinges.items():
            active, number = count.tolist()
            shares[f"{ACTIVE}{name}"] = active / max(number, 1)
        self._hinges = {}
        return shares

    def check_scale(self, measure: str, low: float, high: float) -> None:
        """InputError for a loss whose formula is written for another range than the measure's
        low..high."""
        for name, *_ in self._terms:
            wanted = LOSSES[name].within
            if (
                wanted is not None
                and not wanted[0] - _ROUNDING <= low <= high <= wanted[1] + _ROUNDING
            ):
                problem = f"loss '{name}' is written for relevance in {wanted[0]:g}..{wanted[1]:g}"
                remedy = "choose a measure of that range, such as sbert"
                raise InputError(f"{problem}, and {measure} is in {low:g}..{high:g}", remedy=remedy)

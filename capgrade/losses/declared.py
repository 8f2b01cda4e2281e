"""Every loss by its name, with what it needs and its options, which its signature alone declares."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, ParamSpec, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import Tensor

from capgrade.schemas.errors import InputError

P = ParamSpec("P")
DIVIDED = ("info_nce", "soft_info_nce", "sigmoid")  # their scores, by `temperature`: that of daa is of ranks


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

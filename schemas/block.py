"""A block of parameters: what its fields may be, and the one error for what is wrong in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from capgrade.schemas.errors import InputError, choose_from

Tokenizer = Literal["ptb_py", "ptb", "lower_split", "word_unigram", "characters"]
SelfReference = Literal["included", "left_out"]


def _in_64_bits(value: int) -> int:
    if value >= 2**63:
        raise ValueError("Input should be less than 2^63")
    return value


def refuse_truth(kind: Any, value: Any) -> Any:
    """The value. A pydantic error where a type takes numbers and the value is true or false, or
    holds such: YAML reads yes and on as true, which would be taken for 1."""
    if _takes(kind, int, float) and not _takes(kind, bool, Any) and _has_bool(value):
        message = "Input should be a number, and YAML reads yes, no, on and off as true and false"
        raise PydanticCustomError("no_number", message)
    return value


def _takes(kind: Any, *types: Any) -> bool:
    """Whether a type is one of these, or has one of them at any depth."""
    return kind in types or any(_takes(arg, *types) for arg in get_args(kind))


def _has_bool(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_bool, value.values()))
    return (
        any(map(_has_bool, value)) if isinstance(value, list | tuple) else isinstance(value, bool)
    )


def listed(value: Any) -> Any:
    """A list of one text where a text is given."""
    return [value] if isinstance(value, str) else value


Positive = Annotated[int, Field(gt=0), AfterValidator(_in_64_bits)]
Natural = Annotated[int, Field(ge=0), AfterValidator(_in_64_bits)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]
Precision = Literal["float32", "tf32", "bf16"]  # of convolutions and products
MeasureDevice = Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")]
AnyDevice = Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")]
# YAML reads 1.0, no and a: b as something else
QUOTED = """give text in quotes, "TEXT", and to a shell '"TEXT"'"""
_Model = TypeVar("_Model", bound=BaseModel)


class ParamsBlock(BaseModel):
    """A block of params.yaml: immutable, and a misspelt key is an error rather than a default.

    The text below a field says what it is, in a command's help as in docs/reference.md.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _an_empty_block_changes_nothing(cls, values: Any) -> Any:
        return {} if values is None else values

    @field_validator("*", mode="before")
    @classmethod
    def _no_number_is_true(cls, value: Any, info: ValidationInfo) -> Any:
        return refuse_truth(cls.model_fields[str(info.field_name)].annotation, value)


def validated(
    model: type[_Model], values: dict, *, file: str | Path | None = None, given: Sequence[str] = ()
) -> _Model:
    """Build a block from plain values, those of the keys `given` not from the file; the first thing
    wrong with them becomes one InputError."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if any(f"{key}.".startswith(f"{one}.") or one.startswith(f"{key}.") for one in given):
        file = None
    if first["type"] == "extra_forbidden":
        block: Any = model
        for name in first["loc"][:-1]:
            block = block.model_fields[name].annotation
        raise InputError(
            f"unknown parameter '{key}'",
            file=file,
            remedy=choose_from(first["loc"][-1], sorted(block.model_fields)),
        )
    message = first["msg"].removeprefix("Value error, ")
    # the message names a block's parts
    whole = isinstance(first["input"], dict) and first["type"] == "value_error"
    message = message if whole else f"parameter '{key}' is {first['input']!r}: {message}"
    remedy = {"string_type": QUOTED, "tuple_type": "give a list, [ONE, TWO]"}.get(first["type"])
    if choices := _choices(model, first["loc"]) if first["type"] == "literal_error" else []:
        message = f"parameter '{key}' is {first['input']!r}"
        remedy = choose_from(first["input"], choices)
    raise InputError(message, file=file, remedy=remedy)


def _choices(model: Any, place: Sequence[int | str]) -> list[str]:
    """The names that a field takes; none where it takes other values too."""
    annotation = model
    for part in place:
        annotation = annotation.model_fields[part].annotation
        if not hasattr(annotation, "model_fields"):
            break
    kinds = get_args(annotation) if get_origin(annotation) is not Literal else (annotation,)
    return [
        name
        for kind in kinds
        if get_origin(kind) is Literal
        for name in get_args(kind)
        if isinstance(name, str)
    ]

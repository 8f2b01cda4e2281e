"""Retrieval models by name, most in a file of their own. A model's options are the dataclass that
its `__init__` takes."""

from dataclasses import fields
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from capgrade.schemas.block import refuse_truth
from capgrade.schemas.errors import InputError, choose_from
from capgrade.trainer.models.base import Config, RetrievalModel
from capgrade.trainer.models.cvse import Cvse
from capgrade.trainer.models.dual_encoder import DualEncoder, Siglip
from capgrade.trainer.models.frozen import Frozen
from capgrade.trainer.models.scan import Scan
from capgrade.trainer.models.sgraf import Saf, Sgr
from capgrade.trainer.models.single_stream import SingleStream
from capgrade.trainer.models.tern import TERAN, TERN
from capgrade.trainer.models.vse import Vse
from capgrade.trainer.models.vse_infinity import VseInfinity
from capgrade.trainer.models.vsrn import Vsrn

MODELS: dict[str, type[Any]] = {
    "vse": Vse,
    "vse_infinity": VseInfinity,
    "vsrn": Vsrn,
    "cvse": Cvse,
    "frozen": Frozen,
    "clip": DualEncoder,
    "siglip": Siglip,
    "scan": Scan,
    "saf": Saf,
    "sgr": Sgr,
    "single_stream": SingleStream,
    "tern": TERN,
    "teran": TERAN,
}
DECIDED = ("feature_dim", "classes")  # options whose values follow from the data


def model_of(name: str) -> type[RetrievalModel]:
    """The class of a model. InputError for an unknown name, which lists the known ones."""
    if name not in MODELS:
        raise InputError(
            f"unknown model '{name}'", remedy=choose_from(name, MODELS, "capgrade list models")
        )
    return MODELS[name]


def configure(name: str, options: dict[str, Any], feature_dim: int, classes: int) -> Config:
    """The configuration of a model, checked. `feature_dim` and `classes` fill what the data decide.

    Raises InputError for an unknown model or option, listing the known ones, and for a value that
    does not fit.
    """
    kind = get_type_hints(model_of(name).__init__)["config"]
    names = {field.name for field in fields(kind)}
    unknown = sorted(options.keys() - names)
    if unknown:
        remedy = choose_from(unknown[0], sorted(names - {*DECIDED}))
        raise InputError(f"model '{name}' has no option '{unknown[0]}'", remedy=remedy)
    for option, kind_of_value in get_type_hints(kind).items():
        try:
            refuse_truth(kind_of_value, options.get(option))
        except PydanticCustomError as error:
            problem = f"train.model.options.{option} is {options[option]!r}: {error.message()}"
            raise InputError(problem) from error
    values: dict[str, Any] = {}
    for key, value in zip(DECIDED, (feature_dim, classes), strict=True):
        if key not in names:
            continue
        if (given := options.get(key, value)) != value:
            problem = f"train.model.options.{key} is {given!r}, and {value} in the data"
            raise InputError(problem, remedy="leave it out, as it follows from the data")
        values[key] = value
    try:
        return TypeAdapter(kind).validate_python({**values, **options})
    except ValidationError as error:
        first = error.errors()[0]
        option = ".".join(map(str, first["loc"]))
        problem = f"train.model.options.{option} is {first['input']!r}: {first['msg']}"
        raise InputError(problem) from error

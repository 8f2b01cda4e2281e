"""Retrieval models: one per file, by name."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from capgrade.schemas.errors import InputError
from capgrade.trainer.models.base import Config, RetrievalModel
from capgrade.trainer.models.cvse import Cvse, CvseConfig
from capgrade.trainer.models.dual_encoder import DualEncoder, DualEncoderConfig, Siglip
from capgrade.trainer.models.scan import Scan, ScanConfig
from capgrade.trainer.models.sgraf import Saf, Sgr, SgrafConfig
from capgrade.trainer.models.single_stream import SingleStream, SingleStreamConfig
from capgrade.trainer.models.tern import TERAN, TERN, TeranConfig, TernConfig
from capgrade.trainer.models.vse import Vse, VseConfig
from capgrade.trainer.models.vse_infinity import VseInfinity, VseInfinityConfig
from capgrade.trainer.models.vsrn import Vsrn, VsrnConfig


@dataclass(frozen=True)
class Kind:
    """A model by name: the dataclass of its options, and what is built of that, the feature length and the
    vocabulary."""

    config: type[Any]
    model: type[RetrievalModel]


MODELS = {
    "vse": Kind(VseConfig, Vse),
    "vse_infinity": Kind(VseInfinityConfig, VseInfinity),
    "vsrn": Kind(VsrnConfig, Vsrn),
    "cvse": Kind(CvseConfig, Cvse),
    "clip": Kind(DualEncoderConfig, DualEncoder),
    "siglip": Kind(DualEncoderConfig, Siglip),
    "scan": Kind(ScanConfig, Scan),
    "saf": Kind(SgrafConfig, Saf),
    "sgr": Kind(SgrafConfig, Sgr),
    "single_stream": Kind(SingleStreamConfig, SingleStream),
    "tern": Kind(TernConfig, TERN),
    "teran": Kind(TeranConfig, TERAN),
}


def kind_of(name: str) -> Kind:
    """InputError for an unknown model, listing the known ones."""
    if name not in MODELS:
        raise InputError(f"unknown model '{name}'", remedy=f"choose from: {', '.join(MODELS)}")
    return MODELS[name]


def configure(name: str, options: dict[str, Any], feature_dim: int, classes: int) -> Config:
    """The configuration of a model, checked. `feature_dim` and `classes` fill what the data decide.

    Raises InputError for an unknown model or option, listing the known ones, and for a value that does not fit.
    """
    kind = kind_of(name).config
    known = {field.name for field in fields(kind)}
    unknown = sorted(options.keys() - known)
    if unknown:
        remedy = f"known: {', '.join(sorted(known - {'feature_dim', 'classes'}))}"
        raise InputError(f"model '{name}' has no option '{unknown[0]}'", remedy=remedy)
    decided = {key: value for key, value in (("feature_dim", feature_dim), ("classes", classes)) if key in known}
    try:
        return TypeAdapter(kind).validate_python({**decided, **options})
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"train.model.options.{'.'.join(map(str, first['loc']))} is {first['input']!r}: {first['msg']}"
        raise InputError(problem) from error


def build(name: str, config: Config, feature_dim: int, vocabulary_size: int) -> RetrievalModel:
    return MODELS[name].model(config, feature_dim, vocabulary_size)

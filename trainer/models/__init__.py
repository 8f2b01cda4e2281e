"""Retrieval models: one per file, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.trainer.data.text import CheckpointTokens, Tokens, WordPieces, Words
from capgrade.trainer.models.base import RetrievalModel
from capgrade.trainer.models.cvse import Cvse, CvseConfig
from capgrade.trainer.models.dual_checkpoint import Transform, image_transform
from capgrade.trainer.models.dual_encoder import DualEncoder, DualEncoderConfig
from capgrade.trainer.models.scan import Scan, ScanConfig
from capgrade.trainer.models.sgraf import Saf, Sgr, SgrafConfig
from capgrade.trainer.models.single_stream import SingleStream, SingleStreamConfig
from capgrade.trainer.models.tern import TERAN, TERN, TeranConfig, TernConfig
from capgrade.trainer.models.vse import Vse, VseConfig
from capgrade.trainer.models.vse_infinity import VseInfinity, VseInfinityConfig
from capgrade.trainer.models.vsrn import Vsrn, VsrnConfig

Config = (
    CvseConfig
    | DualEncoderConfig
    | ScanConfig
    | SgrafConfig
    | SingleStreamConfig
    | TernConfig
    | VseConfig
    | VseInfinityConfig
    | VsrnConfig
)


@dataclass(frozen=True)
class Kind:
    """A model by name: its configuration, what builds it of that, the feature length and the vocabulary, and how it
    prepares pictures (None: it reads regions)."""

    config: type[Any]
    build: Callable[[Any, int, int], RetrievalModel]
    transform: Callable[[Any], Transform] | None = None


MODELS: dict[str, Kind] = {
    "vse": Kind(VseConfig, Vse),
    "vse_infinity": Kind(VseInfinityConfig, VseInfinity),
    "vsrn": Kind(VsrnConfig, Vsrn),
    "cvse": Kind(CvseConfig, Cvse),
    "clip": Kind(
        DualEncoderConfig,
        lambda config, _, vocabulary: DualEncoder(config, vocabulary, biased=False),
        lambda config: image_transform(config, biased=False),
    ),
    "siglip": Kind(
        DualEncoderConfig,
        lambda config, _, vocabulary: DualEncoder(config, vocabulary, biased=True),
        lambda config: image_transform(config, biased=True),
    ),
    "scan": Kind(ScanConfig, Scan),
    "saf": Kind(SgrafConfig, Saf),
    "sgr": Kind(SgrafConfig, Sgr),
    "single_stream": Kind(SingleStreamConfig, SingleStream),
    "tern": Kind(TernConfig, lambda config, *_: TERN(config)),
    "teran": Kind(TeranConfig, lambda config, *_: TERAN(config)),
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
    return MODELS[name].build(config, feature_dim, vocabulary_size)


def make_tokens(config: Config, captions: Captions, min_count: int, rows: np.ndarray) -> Tokens:
    """How this model reads captions: the tokens of its checkpoint, the pieces of its text encoder, or words fitted on
    the given rows."""
    if isinstance(config, DualEncoderConfig) and config.pretrained is not None:
        return CheckpointTokens(config.pretrained)
    text_model = getattr(config, "text_model", None)
    if text_model is not None:
        return WordPieces(text_model)
    return Words.fit(captions, min_count, rows)

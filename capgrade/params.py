"""params.yaml as a whole: one block per stage, and one for every measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import create_model

from capgrade.measures.params import MeasuresParams
from capgrade.schemas.block import ParamsBlock, validated
from capgrade.schemas.natures import As, PartOf, mark_of, resolved
from capgrade.schemas.params import (
    ExploreParams,
    JudgeParams,
    ScoreParams,
    override,
    put,
    read_yaml,
    with_preset,
)
from capgrade.stages import STAGES
from capgrade.trainer.stages.train import TrainParams

if TYPE_CHECKING:

    class _OfStages(ParamsBlock):
        """As `create_model` makes it below; installed packages decide which stages it has."""

        def __getattr__(self, name: str) -> Any: ...

else:
    _OfStages = create_model(
        "_OfStages",
        __base__=ParamsBlock,
        __module__=__name__,
        **{name: (stage.params, stage.params()) for name, stage in STAGES.items()},
    )


class Params(_OfStages):
    """The whole params.yaml: one block per stage, under the stage's name."""

    measures: MeasuresParams = MeasuresParams()
    presets: dict[str, Annotated[dict[str, Any], PartOf(TrainParams)]] = {}
    """more of them, see schemas/presets.yaml"""
    runs: tuple[str, ...] = ()
    """presets that the pipeline trains and compares"""
    score: ScoreParams = ScoreParams()
    explore: ExploreParams = ExploreParams()
    judge: JudgeParams = JudgeParams()


def load_params(
    path: Path | None = None,
    overrides: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> Params:
    """Read params.yaml (None: every default), then apply overrides and options.

    Overrides are texts such as `measures.sbert.references=mean`; options are values by such keys.
    Paths in the file are relative to it, those of overrides and options to the current folder.
    Raises InputError with the file (unless the fault was in an override or option), the key, what
    is wrong with it and what would be right.
    """
    tree = {} if path is None else resolved(Params, read_yaml(path), path.resolve().parent, path)
    for text in overrides:
        override(tree, text)
    for key, value in (options or {}).items():
        put(tree, key, value)
    given_keys = [*(text.partition("=")[0] for text in overrides), *(options or {})]
    presets = tree.get("presets", {})
    if isinstance(tree.get("train"), dict) and isinstance(presets, dict):
        tree["train"] = with_preset(
            tree["train"], presets, None if "train.preset" in given_keys else path
        )
    return _as_others(validated(Params, tree, file=path, given=given_keys))


def _as_others(params: Params) -> Params:
    """The parameters, with those that are not given and are as another key (`As`)."""
    blocks: dict[str, Any] = {}
    for name in Params.model_fields:
        block = getattr(params, name)
        fields = type(block).model_fields if isinstance(block, ParamsBlock) else {}
        marks = {key: mark_of(field, As) for key, field in fields.items()}
        values = {
            key: attrgetter(mark.key)(params)
            for key, mark in marks.items()
            if mark and key not in block.model_fields_set
        }
        if values:
            blocks[name] = block.model_copy(update=values)
    return params.model_copy(update=blocks)

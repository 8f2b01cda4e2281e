"""The parameters of a recipe's runs: its presets, then `--small`, then `--set`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from capgrade.pipelines.reproduce.recipe import Recipe
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams, TrainParams, load_params, override, validated
from capgrade.schemas.presets import merged, with_preset

SMALL = Path(__file__).with_name("small.yaml")


@dataclass(frozen=True)
class Settings:
    """What a reproduction computes with."""

    runs: Mapping[str, TrainParams]  # of the recipe, by name
    measures: MeasuresParams
    small: bool


def settings_of(recipe: Recipe, params: Path | None, sets: Sequence[str], small: bool) -> Settings:
    """`train.KEY=VALUE` changes every run, `runs.NAME.KEY=VALUE` one; `measures.KEY=VALUE` as anywhere. `small`: sizes
    and steps to see that everything runs.

    InputError for another key, a run that the recipe does not have, and a value that does not fit.
    """
    above: dict[str, Any] = {}
    for one in sets:
        block = one.partition(".")[0]
        if block not in ("train", "runs", "measures"):
            remedy = "train.KEY=VALUE, runs.NAME.KEY=VALUE or measures.KEY=VALUE"
            raise InputError(f"--set {one}: a recipe's other parameters are the paper's", remedy=remedy)
        override(above, one)
    if unknown := sorted(above.get("runs", {}).keys() - recipe.runs.keys()):
        raise InputError(f"this recipe has no run '{unknown[0]}'", remedy=f"choose from: {', '.join(recipe.runs)}")
    runs = {
        name: _run(recipe, block, small, [above.get("train", {}), above.get("runs", {}).get(name, {})])
        for name, block in recipe.runs.items()
    }
    measures = load_params(params, [one for one in sets if one.startswith("measures.")]).measures
    return Settings(runs, measures, small)


@cache
def _small() -> dict[str, Any]:
    return yaml.safe_load(SMALL.read_text(encoding="utf-8"))


def _run(recipe: Recipe, block: dict[str, Any], small: bool, above: Sequence[dict[str, Any]]) -> TrainParams:
    found = with_preset(block, recipe.presets)
    if small:
        less = _small()
        model = (found.get("model") or {}).get("name", "vse")
        found = merged(found, merged(less["train"], {"model": {"options": less["models"].get(model, {})}}))
    for layer in above:
        found = merged(found, layer)
    return validated(TrainParams, found)

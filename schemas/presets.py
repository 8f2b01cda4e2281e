"""Presets of training runs: the papers' values by name, and those that params.yaml adds."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from capgrade.schemas.errors import InputError

FILE = Path(__file__).with_name("presets.yaml")


def with_preset(train: dict[str, Any], more: dict[str, Any], file: Path | None = None) -> dict[str, Any]:
    """The block `train` upon the preset it names, which may stand upon another (`base`); mappings are merged, lists
    and values replaced. InputError for an unknown preset, listing the known ones, and for a circle."""
    known = {**_shipped(), **(more or {})}
    layers, name = [train], train.get("preset")
    while name is not None:
        if name not in known or not isinstance(known[name], dict):
            raise InputError(f"unknown preset '{name}'", file=file, remedy=f"choose from: {', '.join(sorted(known))}")
        if len(layers) > len(known):
            raise InputError(f"preset '{name}' stands upon itself", file=file, remedy="mend its base")
        layers.append(known[name])
        name = known[name].get("base")
    found: dict[str, Any] = {}
    for layer in reversed(layers):
        found = merged(found, {key: value for key, value in layer.items() if key != "base"})
    return found


@cache
def _shipped() -> dict[str, Any]:
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` upon `below`: mappings are merged, lists and values replaced."""
    both = {**below, **above}
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            both[key] = merged(below[key], value)
    return both

"""Where things lie on one machine is nobody else's business: parameters for publishing, paths as base names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

# Parameters that hold a path, or several by name. A hub's id, USER/NAME, stays.
PATHS = {"input", "imported", "document_frequency", "model", "cache", "split_lists"}
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


def base_names(params: Any, source: str | None = None) -> Any:
    """The same parameters, every path by its last name, at any depth; `source` is that of captions."""
    if not isinstance(params, dict):
        return params
    source = params.get("source", source)
    return {key: _named(key, value, source) if key in PATHS else base_names(value) for key, value in params.items()}


def _named(key: str, value: Any, source: str | None) -> Any:
    if isinstance(value, dict):
        return {name: _named(key, one, source) for name, one in value.items()}
    if not isinstance(value, str):
        return value
    may_be_hub = key == "model" or (key == "input" and source == "hub")
    if may_be_hub and HUB_ID.fullmatch(value) and not Path(value).exists():
        return value
    folder, hash_, split = value.partition("#") if key == "document_frequency" else (value, "", "")
    return f"{Path(folder).name}{hash_}{split}"

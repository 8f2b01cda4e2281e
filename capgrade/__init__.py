"""Graded relevance labels for image-text retrieval. The folders beside this file are links to those of the project."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("capgrade")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

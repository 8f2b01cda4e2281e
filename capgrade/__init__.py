"""Graded relevance labels for image-text retrieval. The folders beside this file are links to those of the project.

Public names are imported when they are asked for: `import capgrade` alone loads neither numpy nor torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = ("losses", "metrics")
_NAMES = {  # public name -> the module that has it
    "Labels": "labels",
    "Qrels": "rankings",
    "Run": "rankings",
    "evaluate": "evaluation",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("capgrade")
    if name in _MODULES:
        return import_module(f"capgrade.{name}")
    if name in _NAMES:
        return getattr(import_module(f"capgrade.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES, *_NAMES, "__version__"])

"""The core alone: what the extras bring cannot be imported here, installed or not.

These tests import nothing of the other tests. tests/test_core_alone.py runs them in a process of their own, and
.ci/run in an environment that has the wheel and pytest alone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from capgrade.schemas.extras import EXTRAS

BESIDE = {"pandas"}  # comes with extras, unasked for: pyarrow uses it where it is


class Absent:
    """Finds the modules of the extras first, and says that they are not there."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] in {*EXTRAS, *BESIDE} and "pycocotools" not in name:  # which pycocoevalcap brings
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return None


sys.meta_path.insert(0, Absent())

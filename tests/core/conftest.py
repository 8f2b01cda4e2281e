"""The core alone: what the extras bring cannot be imported here, installed or not.

These tests import nothing of the other tests. tests/test_core_alone.py runs them in a process of
their own, and .ci/run in an environment that has the wheel and pytest alone.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from capgrade.schemas.extras import EXTRAS

BESIDE = {"pandas"}  # comes with extras, unasked for: pyarrow uses it where it is


class Core(PathFinder):
    """Python's own finder, which does not see the modules of the extras: they are as missing as
    they can be."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        gone = {*EXTRAS, *BESIDE}
        return (
            None
            if fullname.partition(".")[0] in gone
            else super().find_spec(fullname, path, target)
        )


sys.meta_path[sys.meta_path.index(PathFinder)] = Core

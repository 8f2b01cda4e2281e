"""Kept machine code is of the sources that are there: of a kernel's own file and of whatever it calls."""

from __future__ import annotations

import importlib
import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import numba
import pytest
from numba.core.caching import FunctionCache, InTreeCacheLocator, UserWideCacheLocator
from numba.core.dispatcher import Dispatcher

from capgrade.schemas import compiled, say
from capgrade.schemas.bits import mix
from tests.conftest import ROOT

PACKAGES = ("schemas", "pipelines", "trainer", "explorer", "benchmarks")
OUTER = """
from kernels.middle import twice, WEIGHT
from capgrade.schemas.compiled import njit
@njit(cache=True)
def outer(x):
    return WEIGHT * twice(x)
"""
MIDDLE = """
from kernels.inner import add
from kernels.numbers import WEIGHT
from capgrade.schemas.compiled import njit
@njit(cache=True)
def twice(x):
    return add(x) + add(x)
"""
INNER = "from capgrade.schemas.compiled import njit\n@njit(cache=True)\ndef add(x):\n    return x + {}\n"
RUN = "from kernels.outer import outer; print(outer({}), sum(outer.stats.cache_hits.values()))"
PAIRS = "np.array([[0, 1]]), np.array([[1, 2]]), np.ones((1, 2), np.float32), np.array([-1]), np.array([0, 1]), 1"
REAL = f"import numpy as np; from capgrade.metrics.semantic_map import _kernel; print(_kernel({PAIRS})[0])"
CHANGED = "\n\n@njit(cache=True, nogil=True)\ndef top_sum(order, end, values, skip, groups, k):\n    return 1234.0\n"


def said(folder: Path, code: str, **environment: str) -> str:
    """What a new process prints, with the packages of this folder."""
    env = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", **environment}
    run = subprocess.run([sys.executable, "-c", code], env=env, cwd=folder, capture_output=True, text=True, check=True)
    return run.stdout.strip()


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """A kernel that calls one of another file, which calls one of a third, with a constant of a fourth."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    for name, text in (("outer", OUTER), ("middle", MIDDLE), ("inner", INNER.format(1)), ("numbers", "WEIGHT = 1\n")):
        (folder / f"{name}.py").write_text(text)
    (folder / "__init__.py").write_text("")
    return folder


def test_a_called_kernel_of_another_file_changes(kernels: Path) -> None:
    """The result is the new one at once, and what has not changed is taken from disk."""
    assert said(kernels.parent, RUN.format(5)) == "12 0"
    assert said(kernels.parent, RUN.format(5)) == "12 1"
    (kernels / "inner.py").write_text(INNER.format(10))
    assert said(kernels.parent, RUN.format(5)) == "30 0"
    (kernels / "numbers.py").write_text("WEIGHT = 100\n")
    assert said(kernels.parent, RUN.format(5)) == "3000 0"
    assert said(kernels.parent, RUN.format(5)) == "3000 1"


def test_a_type_of_kept_code_goes(kernels: Path) -> None:
    """As after an upgrade: what was kept names a class that the new file does not have."""
    text = """
from typing import NamedTuple
from capgrade.schemas.compiled import njit
class {0}(NamedTuple):
    x: int
@njit(cache=True)
def outer(pair):
    return pair.x
"""
    run = "from kernels.outer import outer, {0}; print(outer({0}(7)), sum(outer.stats.cache_hits.values()))"
    for name in ("First", "Second"):
        (kernels / "outer.py").write_text(text.format(name))
        assert said(kernels.parent, run.format(name)) == "7 0"
        assert said(kernels.parent, run.format(name)) == "7 1"


FIRST = """
from capgrade.schemas.compiled import njit
@njit(cache=True)
def first(pair):
    return pair.x
"""
PAIR = "from typing import NamedTuple\nclass Pair(NamedTuple):\n    x: int\n"
TAKES = (
    "from kernels.first import first; from {0} import Pair; print(first(Pair(7)), sum(first.stats.cache_hits.values()))"
)


def test_a_type_of_a_caller_goes(kernels: Path) -> None:
    """What was kept names a class of a module that this process cannot import: it compiles, and keeps that."""
    (kernels / "first.py").write_text(FIRST)
    for module in ("ours", "theirs"):
        (kernels.parent / f"{module}.py").write_text(PAIR)
    assert said(kernels.parent, TAKES.format("theirs")) == "7 0"
    (kernels.parent / "theirs.py").unlink()
    assert said(kernels.parent, TAKES.format("ours")) == "7 0"
    assert said(kernels.parent, TAKES.format("ours")) == "7 1"


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
@pytest.mark.parametrize("size", [0, 5, 100])
def test_kept_code_that_is_cut_short_is_compiled_anew(kernels: Path, kind: str, size: int) -> None:
    assert said(kernels.parent, RUN.format(5)) == "12 0"
    for path in (kernels / "__pycache__").glob(f"*.{kind}"):
        path.write_bytes(path.read_bytes()[:size])
    assert said(kernels.parent, RUN.format(5)) == "12 0"
    assert said(kernels.parent, RUN.format(5)) == "12 1"


def test_kept_where_sources_may_not_be_written(kernels: Path, tmp_path: Path) -> None:
    """As in read-only site-packages: a file where the folder of kept code would be."""
    (kernels / "__pycache__").write_text("")
    cache = str(tmp_path / "home")
    assert said(kernels.parent, RUN.format(5), XDG_CACHE_HOME=cache, NUMBA_CACHE_DIR="") == "12 0"
    assert said(kernels.parent, RUN.format(5), XDG_CACHE_HOME=cache, NUMBA_CACHE_DIR="") == "12 1"
    (kernels / "inner.py").write_text(INNER.format(10))
    assert said(kernels.parent, RUN.format(5), XDG_CACHE_HOME=cache, NUMBA_CACHE_DIR="") == "30 0"
    assert list(Path(cache).rglob("*.nbi")) and (kernels / "__pycache__").is_file()


def test_where_nothing_may_be_written_each_process_compiles(monkeypatch, caplog) -> None:
    for locator in (InTreeCacheLocator, UserWideCacheLocator):
        monkeypatch.setattr(locator, "from_function", lambda *_: None)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    compiled._warn.cache_clear()
    with caplog.at_level(logging.WARNING):
        kernels = [compiled.njit(cache=True)(lambda x: x + 1) for _ in range(2)]
    assert kernels[0](2) == 3
    assert len(caplog.records) == 1 and "set NUMBA_CACHE_DIR to a folder that may be written" in caplog.text


FULL = """
import errno
from numba.core.caching import IndexDataCacheFile
def full(self, name, data):
    raise OSError(errno.ENOSPC, "No space left on device", name)
IndexDataCacheFile._save_data = full
"""


def test_a_full_disk_ends_no_run(kernels: Path) -> None:
    """One warning; the index that names a file that is not there harms no later run."""
    assert said(kernels.parent, FULL + RUN.format(5)) == "12 0"
    assert said(kernels.parent, RUN.format(5)) == "12 0"
    assert said(kernels.parent, RUN.format(5)) == "12 1"


def test_a_copy_of_the_package_sees_an_edited_kernel(tmp_path: Path) -> None:
    """`semantic_map` calls `top_sum` of ncs.py: as an installed package does, kept code beside the sources."""
    package = tmp_path / "capgrade"
    package.mkdir()
    shutil.copy(ROOT / "capgrade" / "__init__.py", package)
    for name, source in {"schemas": ROOT, "metrics": ROOT / "capgrade"}.items():
        shutil.copytree(source / name, package / name, ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
    assert said(tmp_path, REAL) == "1.0"
    assert list((package / "metrics" / "__pycache__").glob("semantic_map._kernel*.nbi"))
    with (package / "metrics" / "ncs.py").open("a") as f:
        f.write(CHANGED)
    assert said(tmp_path, REAL) == "1234.0"


def kernels_of(module: str) -> dict[str, FunctionType]:
    found = vars(importlib.import_module(module))
    return {
        name: one.py_func
        for name, one in found.items()
        if isinstance(one, Dispatcher) and one.py_func.__module__ == module
    }


def modules_with_kernels() -> list[str]:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    found = [path for path in files if re.search(r"^@njit", path.read_text(), re.M)]
    return [".".join(("capgrade", *path.relative_to(ROOT).with_suffix("").parts)) for path in found]


def test_every_kernel_is_stamped_with_every_file_it_calls(monkeypatch) -> None:
    """Another content of any file with a kernel that a kernel's code names makes another stamp."""
    calls = 0
    for module in modules_with_kernels():
        for function in kernels_of(module).values():
            before = compiled.stamp(function)
            named = [function.__globals__.get(name) for name in function.__code__.co_names]
            for file in {one.py_func.__code__.co_filename for one in named if isinstance(one, Dispatcher)}:
                calls += file != function.__code__.co_filename
                right = compiled._file_digest
                with monkeypatch.context() as patch:
                    patch.setattr(compiled, "_file_digest", lambda path, f=file: "" if path == f else right(path))  # noqa: B023
                    assert compiled.stamp(function) != before, (module, function.__name__, file)
    assert calls >= 5


def test_no_kernel_is_compiled_by_numba_s_own_decorator() -> None:
    """Its cache would not see what the kernel calls."""
    texts = {path: path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    own = re.compile(r"^from numba import .*\b(njit|jit|vectorize|guvectorize)\b|@numba\.", re.M)
    assert [path.name for path, text in texts.items() if own.search(text)] == []


def test_stamps_are_the_same_in_every_process() -> None:
    """Whatever was imported first, whatever the order of sets: else nothing kept would ever be found."""
    code = (
        "import {}; from capgrade.schemas.compiled import stamp\n"
        "from capgrade.pipelines.measures.meteor import kernel, align\n"
        "import capgrade.metrics as s\n"
        "print([stamp(k.py_func) for m in (kernel, align, s) for k in vars(m).values() if hasattr(k, 'py_func')])"
    )
    first = said(ROOT, code.format("capgrade.metrics.catalogue"), PYTHONHASHSEED="1")
    assert first.count(",") > 10
    assert first == said(ROOT, code.format("capgrade.pipelines.relevance"), PYTHONHASHSEED="2")


def test_a_first_run_says_once_what_it_waits_for(monkeypatch, capsys):
    """Once for all kernels; nothing where they are kept, or in a worker."""
    monkeypatch.setattr(say, "_said", set())
    cache = compiled._Cache(mix.py_func)
    for parent, there, expected in (("another", None, ""), (None, "code", ""), (None, None, f"{compiled.COMPILING}\n")):
        monkeypatch.setattr(say, "parent_process", lambda parent=parent: parent)
        monkeypatch.setattr(FunctionCache, "load_overload", lambda *_, there=there: there)
        for _ in range(2):
            assert cache.load_overload(None, None) == there
        assert capsys.readouterr().err == expected

"""Kept machine code is of the sources that are there: of every file with kernels. Runs of a loop on threads: each
number once, on as many threads as are set."""

import ast
import gc
import importlib
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import FunctionType, SimpleNamespace

import numba
import numpy as np
import pytest
from numba.core.caching import FunctionCache, InTreeCacheLocator, UserWideCacheLocator
from numba.core.dispatcher import Dispatcher

from capgrade import kernels as module
from capgrade.bits import mix
from capgrade.kernels import in_threads, njit
from capgrade.schemas import say
from tests.conftest import ROOT

PACKAGES = ("schemas", "pipelines", "trainer", "explorer", "benchmarks", "capgrade")
OUTER = """
from capgrade.kernels import njit
@njit(cache=True)
def outer(x):
    return x + 7
"""
RUN = "from kernels.outer import outer; print(outer({}), sum(outer.stats.cache_hits.values()))"
CALLER = OUTER.replace("x + 7", "ones(x)") + "from capgrade.bits import np, ones\n"
CALL = "from capgrade.caller import np, outer; print(outer(np.uint64(7)))"
CHANGED = "\n@njit(cache=True)\ndef ones(x):\n    return 1234\n"


def said(folder: Path, code: str, **environment: str) -> str:
    """What a new process prints, with the packages of this folder."""
    env = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", **environment}
    run = subprocess.run([sys.executable, "-c", code], env=env, cwd=folder, capture_output=True, text=True, check=True)
    return run.stdout.strip()


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """A package with a kernel."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "outer.py").write_text(OUTER)
    (folder / "__init__.py").write_text("")
    return folder


PAIR = "from typing import NamedTuple\nclass Pair(NamedTuple):\n    x: int\n"
TAKES = RUN.replace("print(outer({})", "from {0} import Pair; print(outer(Pair(7))")


def test_a_type_of_a_caller_goes(kernels: Path) -> None:
    """What was kept names a class that is not there any more: the next process compiles, and keeps that."""
    (kernels / "outer.py").write_text(OUTER.replace("x + 7", "x.x"))
    for package in ("ours", "theirs"):
        (kernels.parent / f"{package}.py").write_text(PAIR)
    assert said(kernels.parent, TAKES.format("theirs")) == "7 0"
    (kernels.parent / "theirs.py").unlink()
    assert [said(kernels.parent, TAKES.format("ours")) for _ in range(2)] == ["7 0", "7 1"]


FULL = """
import errno
from numba.core.caching import IndexDataCacheFile
def full(self, name, data):
    raise OSError(errno.ENOSPC, "No space left on device", name)
IndexDataCacheFile._save_data = full
"""


@pytest.mark.parametrize("how", ["nbi 0", "nbi 100", "nbc 5", "full disk", "another signature"])
def test_kept_code_that_is_no_good_is_compiled_anew(kernels: Path, how: str) -> None:
    """Cut short by a loss of power; named by the index of a run that found the disk full, which ends no run; or of
    another signature, where two processes that start at once gave both the same name: the last one's is there."""
    assert said(kernels.parent, RUN.format(5)) == "12 0"
    [index], [code] = ((kernels / "__pycache__").glob(f"*.{kind}") for kind in ("nbi", "nbc"))
    kept = index.read_bytes()
    if how == "another signature":
        index.unlink()
        assert said(kernels.parent, RUN.format(0.5)) == "7.5 0"
        index.write_bytes(kept)
    elif how == "full disk":
        index.unlink()
        code.unlink()
        assert said(kernels.parent, FULL + RUN.format(5)) == "12 0"
    else:
        path = {"nbi": index, "nbc": code}[how[:3]]
        path.write_bytes(path.read_bytes()[: int(how[4:])])
    assert [said(kernels.parent, RUN.format(5)) for _ in range(2)] == ["12 0", "12 1"]


def test_kept_where_sources_may_not_be_written(kernels: Path, tmp_path: Path) -> None:
    """As in read-only site-packages: a file where the folder of kept code would be."""
    (kernels / "__pycache__").write_text("")
    cache = str(tmp_path / "home")
    home = {"XDG_CACHE_HOME": cache, "NUMBA_CACHE_DIR": ""}
    assert [said(kernels.parent, RUN.format(5), **home) for _ in range(2)] == ["12 0", "12 1"]
    assert list(Path(cache).rglob("*.nbi")) and (kernels / "__pycache__").is_file()


def test_where_nothing_may_be_written_each_process_compiles(monkeypatch, caplog) -> None:
    for locator in (InTreeCacheLocator, UserWideCacheLocator):
        monkeypatch.setattr(locator, "from_function", lambda *_: None)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    module._warn.cache_clear()
    with caplog.at_level(logging.WARNING):
        kernels = [module.njit(cache=True)(lambda x: x + 1) for _ in range(2)]
    assert kernels[0](2) == 3
    assert len(caplog.records) == 1 and "set NUMBA_CACHE_DIR to a folder that may be written" in caplog.text


def test_a_copy_of_the_package_sees_an_edited_kernel(tmp_path: Path) -> None:
    """A kernel calls one of bits.py. As an installed package does: kept code beside sources."""
    package = tmp_path / "capgrade"
    package.mkdir()
    for name in ("__init__.py", "kernels.py", "bits.py"):
        shutil.copy(ROOT / "capgrade" / name, package)
    shutil.copytree(ROOT / "schemas", package / "schemas", ignore=shutil.ignore_patterns("__pycache__"))
    (package / "caller.py").write_text(CALLER)
    assert said(tmp_path, CALL) == "3"
    assert list((package / "__pycache__").glob("caller.outer*.nbi"))
    with (package / "bits.py").open("a") as f:
        f.write(CHANGED)
    assert said(tmp_path, CALL) == "1234"


def kernels_of(module: str) -> list[FunctionType]:
    found = vars(importlib.import_module(module)).values()
    return [one.py_func for one in found if isinstance(one, Dispatcher) and one.py_func.__module__ == module]


def file_of(module: str) -> Path:
    return Path(str(importlib.import_module(module).__file__))


def source_of(name: str, module: str) -> Path:
    """The file that assigns a module's name, through imports from others."""
    for node in ast.walk(ast.parse(file_of(module).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("capgrade."):
            for one in node.names:
                if (one.asname or one.name) == name:
                    return source_of(one.name, node.module)
    return file_of(module)


def test_what_is_compiled_into_kernels_stands_where_the_digest_sees_it() -> None:
    """Each constant and kernel that a kernel names is of a file with kernels or named tuples."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    modules = [
        ".".join(("capgrade", *path.relative_to(ROOT).with_suffix("").parts)).replace("capgrade.capgrade", "capgrade")
        for path in files
        if re.search(r"^@njit", path.read_text(), re.M)
    ]
    kinds = (bool, int, float, str, bytes, tuple, np.generic, np.ndarray, Dispatcher)
    names = {
        (name, module)
        for module in modules
        for function in kernels_of(module)
        for name in function.__code__.co_names
        if isinstance(function.__globals__.get(name), kinds)
    }
    sources = {name: source_of(*name) for name in names}
    assert sum(path != file_of(module) for (_, module), path in sources.items()) > 20  # of other files
    assert {path.name for path in sources.values() if not module.COMPILED.search(path.read_bytes())} == set()


def test_no_kernel_is_compiled_by_numba_s_own_decorator() -> None:
    """Its cache would not see what the kernel calls."""
    texts = {path: path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    own = re.compile(r"^from numba import .*\b(njit|jit|vectorize|guvectorize)\b|@numba\.", re.M)
    assert [path.name for path, text in texts.items() if own.search(text)] == []


def test_the_digest_is_of_names_and_contents_of_files_with_kernels(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.py").write_text("from numba import njit")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "linked").symlink_to(tmp_path / "real")
    found = [module.digest.__wrapped__(tmp_path / "package")]
    for name, text, new in (("b.py", "x = 1", 0), ("b.py", "njit", 1), ("b.py", "njit()", 1), ("a.py", "njit", 1)):
        (tmp_path / "real" / name).write_text(text)
        found.append(module.digest.__wrapped__(tmp_path / "package"))
        assert (found[-1] != found[-2]) == new
    (tmp_path / "real" / "a.py").rename(tmp_path / "real" / "c.py")
    assert module.digest.__wrapped__(tmp_path / "package") != found[-1]


def test_a_kernel_that_a_kernel_calls_has_machine_code_of_its_own_only_where_python_calls_it() -> None:
    inner = module.njit(lambda x: x + 1)
    outer = module.njit(lambda x: 2 * inner(x))
    assert outer(3) == 8
    assert not inner.signatures and inner.part.signatures
    assert inner(3) == 4 and len(inner.signatures) == 1


def test_a_kernel_that_cannot_be_compiled_leaves_numba_as_it_was() -> None:
    with pytest.raises(numba.TypingError):
        module.njit(lambda x: np.sort(x).nothing)(np.zeros(1))
    assert gc.isenabled()
    assert numba.njit(lambda x: np.sort(x))(np.array([2, 1])).tolist() == [1, 2]


KEPT = SimpleNamespace(signature=SimpleNamespace(args=()))


def test_a_first_run_says_once_what_it_waits_for(monkeypatch, capsys):
    """Once for all kernels; nothing where they are kept, or in a worker."""
    monkeypatch.setattr(say, "_told", set())
    cache = module._Cache(mix.py_func)
    for parent, there, expected in (("another", None, ""), (None, KEPT, ""), (None, None, f"{module.COMPILING}\n")):
        monkeypatch.setattr(say, "parent_process", lambda parent=parent: parent)
        monkeypatch.setattr(FunctionCache, "load_overload", lambda *_, there=there: there)
        for _ in range(2):
            assert cache.load_overload((), None) == there
        assert capsys.readouterr().err == expected


@njit(nogil=True)
def count(first, last, out):
    """Adds one where it comes by."""
    for k in range(first, last):
        out[k] += 1


@pytest.fixture(autouse=True)
def two_threads():
    before = numba.get_num_threads()
    numba.set_num_threads(min(2, numba.config.NUMBA_NUM_THREADS))
    yield
    numba.set_num_threads(before)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 1000])
def test_every_number_once(n: int) -> None:
    out = np.zeros(n, np.int64)
    in_threads(count, n, out)
    assert (out == 1).all()


def test_as_many_runs_as_threads_are_set_and_one_of_them_here() -> None:
    ran: list[tuple[int, int, bool]] = []

    def kernel(first: int, last: int) -> None:
        ran.append((first, last, threading.current_thread() is threading.main_thread()))

    numba.set_num_threads(1)
    in_threads(kernel, 7)
    assert ran == [(0, 7, True)]
    if numba.config.NUMBA_NUM_THREADS > 1:
        numba.set_num_threads(2)
        in_threads(kernel, 7)
        assert sorted(ran[1:]) == [(0, 3, True), (3, 7, False)]


@pytest.mark.parametrize("bad", [0, 6])
def test_an_error_of_any_run_when_all_have_ended(bad: int) -> None:
    ran: list[int] = []

    def kernel(first: int, last: int) -> None:
        if first <= bad < last:
            raise ValueError(f"bad {bad}")
        ran.append(first)

    with pytest.raises(ValueError, match=f"bad {bad}"):
        in_threads(kernel, 7)
    assert len(ran) == numba.get_num_threads() - 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork() -> None:
    """A child has none of its parent's threads."""
    in_threads(count, 4, np.zeros(4, np.int64))
    child = os.fork()
    if not child:
        out = np.zeros(4, np.int64)
        numba.get_num_threads = lambda: 2  # not numba's own threads, which do not survive either
        in_threads(count, 4, out)
        os._exit(0 if (out == 1).all() else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("torch_first", [True, False])
def test_torch_keeps_the_number_of_threads_that_it_was_given(torch_first: bool) -> None:
    """numba's threads, when they start, set OpenMP's number, which torch has too: training had one thread or two by
    what was computed before it, and other last bits."""
    pytest.importorskip("torch")
    code = "import torch\n" if torch_first else ""
    code += "from capgrade.kernels import in_threads; in_threads(lambda first, last: None, 2)\n"
    code += "import torch; print(torch.get_num_threads())"
    assert said(ROOT, code, OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="2") == "1"

"""Kept machine code is of the sources that are there: of every file with kernels. Runs of a loop on
threads: each number once, on as many threads as are set."""

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import FunctionType

import numba
import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

from capgrade import kernels as module
from capgrade.kernels import in_threads, limited_threads, njit
from capgrade.schemas import say
from tests.conftest import ROOT

PACKAGES = ("schemas", "pipelines", "trainer", "apps", "capgrade")
CALLER = """
from capgrade.kernels import njit, np, ones

@njit(cache=True)
def outer(x):
    return ones(x)
"""
CALL = (
    "from capgrade.caller import np, outer; print(outer(np.uint64(7)),"
    " sum(outer.stats.cache_hits.values()))"
)
CHANGED = "\n@njit(cache=True)\ndef ones(x):\n    return 1234\n"


def started(package: Path, **environment: str) -> subprocess.Popen[str]:
    """A new process with this package, which prints what a kernel gives and how often it was
    found."""
    env = {**os.environ, "PYTHONPATH": str(package.parent), **environment}
    command = [sys.executable, "-c", CALL]
    return subprocess.Popen(
        command,
        env=env,
        cwd=package.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(package: Path, **environment: str) -> tuple[str, str]:
    """Standard output and error of such a process, which must end well."""
    process = started(package, **environment)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out.strip(), err


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package with a kernel that calls one of another file."""
    package = tmp_path / "here" / "capgrade"
    package.mkdir(parents=True)
    for name in ("__init__.py", "kernels.py"):
        shutil.copy(ROOT / "capgrade" / name, package)
    shutil.copytree(
        ROOT / "schemas", package / "schemas", ignore=shutil.ignore_patterns("__pycache__")
    )
    (package / "caller.py").write_text(CALLER)
    return package


def test_an_edited_callee_of_another_file_is_compiled_anew(package: Path, tmp_path: Path) -> None:
    """numba alone would look at the caller's file only. Where sources were before, their code is
    found again."""
    kept = {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    assert [said(package, **kept)[0] for _ in range(2)] == ["3 0", "3 1"]
    before = (package / "kernels.py").read_text()
    (package / "kernels.py").write_text(before + CHANGED)
    assert said(package, **kept)[0] == "1234 0"
    (package / "kernels.py").write_text(before)
    assert said(package, **kept)[0] == "3 1"
    assert len(list((tmp_path / "kept").iterdir())) == 2 and not list(package.rglob("*.nbi"))


def test_code_is_kept_in_the_user_s_cache_folder(package: Path, tmp_path: Path) -> None:
    home = {"XDG_CACHE_HOME": str(tmp_path / "home"), "NUMBA_CACHE_DIR": ""}
    (out, err), again = said(package, **home), said(package, **home)
    assert (out, err) == ("3 0", f"{module.COMPILING}\n") and again == ("3 1", "")
    assert {path.name[:9] for path in (tmp_path / "home" / "capgrade" / "kernels").iterdir()} == {
        "capgrade-"
    }


@pytest.mark.parametrize("what", ["root", "folder"])
def test_where_code_cannot_be_kept_each_run_compiles(
    package: Path, tmp_path: Path, what: str
) -> None:
    """A file where the folder would be, as everything may be written by root. The sources' folder
    is not taken."""
    place = tmp_path / "kept"
    if what == "folder":
        place.mkdir()
        place /= f"capgrade-{module.source_digest(package)[:16]}"
    place.write_text("")
    for _ in range(2):
        out, err = said(package, NUMBA_CACHE_DIR=str(tmp_path / "kept"))
        assert (
            out == "3 0" and err.count("set NUMBA_CACHE_DIR to a folder that may be written") == 1
        )
    assert not list(package.rglob("*.nbi"))


def test_damaged_code_is_deleted_and_compiled_anew(package: Path, tmp_path: Path) -> None:
    """Whatever stands in numba's files: nothing, no pickle, one of something else, one cut short."""
    kept = {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    said(package, **kept)
    cases = {"nbi": [b"", b"garbage", b"cos\nnothing\n."], "nbc": [b"", None]}
    for ending, content in [(ending, one) for ending, all_ in cases.items() for one in all_]:
        files = list((tmp_path / "kept").rglob(f"*.{ending}"))
        assert files
        for file in files:
            whole = file.read_bytes()
            file.write_bytes(whole[: len(whole) // 2] if content is None else content)
        out, err = said(package, **kept)
        assert out == "3 0" and err.count("is compiled anew") <= 2, (ending, content, err)
    assert said(package, **kept)[0] == "3 1", "and kept again"


def test_several_processes_may_compile_at_once(package: Path, tmp_path: Path) -> None:
    kept = {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    together = [started(package, **kept) for _ in range(3)]
    assert {process.communicate(timeout=300)[0][:2] for process in together} == {"3 "}
    assert said(package, **kept)[0] == "3 1"


def test_the_caller_s_own_kernels_are_kept_where_they_were() -> None:
    before, ours, after = (
        decorate(cache=True)(mine).stats.cache_path for decorate in (numba.njit, njit, numba.njit)
    )
    assert before == after and Path(ours).parent == module.code_folder()


def mine(x: int) -> int:
    return x + 1


def test_a_first_run_says_once_what_it_waits_for(monkeypatch, capsys) -> None:
    """Once for all kernels of the package; nothing of others', or in a worker."""

    def compiled(parent: str | None, of: str) -> str:
        monkeypatch.setattr(say, "_printed", set())
        monkeypatch.setattr(say, "parent_process", lambda: parent)
        for k in range(2):
            kernel = lambda x: x + k  # noqa: E731, B023
            kernel.__module__ = of
            assert njit(kernel)(1) == 1 + k
        return str(capsys.readouterr().err)

    assert compiled(None, "capgrade.somewhere") == f"{module.COMPILING}\n"
    assert compiled("another", "capgrade.somewhere") == compiled(None, "somewhere") == ""


def kernels_of(module: str) -> list[FunctionType]:
    found = vars(importlib.import_module(module)).values()
    return [
        one.py_func
        for one in found
        if isinstance(one, Dispatcher) and one.py_func.__module__ == module
    ]


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
        ".".join(("capgrade", *path.relative_to(ROOT).with_suffix("").parts)).replace(
            "capgrade.capgrade", "capgrade"
        )
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
    crossing = {name for name, path in sources.items() if path != file_of(name[1])}
    # Constants and kernels of other files are among those looked at.
    assert {
        ("GOLDEN", "capgrade.pipelines.sampling.draws"),
        ("mix", "capgrade.pipelines.sampling.draws"),
        ("ones", "capgrade.measures.rouge.kernel"),
        ("merge_largest", "capgrade.measures.bleu.fitted"),
        ("merge_largest", "capgrade.measures.scene_graph.kernel"),
        ("LONGEST", "capgrade.measures.meteor.kernel"),
        ("align", "capgrade.measures.meteor.kernel"),
    } <= crossing
    assert {
        path.name for path in sources.values() if not module.COMPILED.search(path.read_bytes())
    } == set()


def test_no_kernel_is_compiled_by_numba_s_own_decorator() -> None:
    """Its cache would not see what the kernel calls."""
    texts = {
        path: path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py")
    }
    own = re.compile(r"^from numba import .*\b(njit|jit|vectorize|guvectorize)\b|@numba\.", re.M)
    assert [path.name for path, text in texts.items() if own.search(text)] == []


def test_the_digest_is_of_names_and_contents_of_files_with_kernels(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.py").write_text("from numba import njit")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "linked").symlink_to(tmp_path / "real")
    found = [module.source_digest(tmp_path / "package")]
    for name, text, new in (
        ("b.py", "x = 1", 0),
        ("b.py", "njit", 1),
        ("b.py", "njit()", 1),
        ("a.py", "njit", 1),
    ):
        (tmp_path / "real" / name).write_text(text)
        found.append(module.source_digest(tmp_path / "package"))
        assert (found[-1] != found[-2]) == new
    (tmp_path / "real" / "a.py").rename(tmp_path / "real" / "c.py")
    assert module.source_digest(tmp_path / "package") != found[-1]


@njit(nogil=True)
def count(first, last, out):
    """Adds one where it comes by."""
    for k in range(first, last):
        out[k] += 1


@pytest.fixture(autouse=True)
def two_threads():
    with limited_threads(2):
        yield


@pytest.mark.parametrize("n", [0, 1, 2, 3, 1000])
def test_every_number_once(n: int) -> None:
    out = np.zeros(n, np.int64)
    in_threads(count, n, out)
    assert (out == 1).all()


def test_as_many_runs_as_threads_are_set_and_one_of_them_here() -> None:
    ran: list[tuple[int, int, bool]] = []

    def kernel(first: int, last: int) -> None:
        ran.append((first, last, threading.current_thread() is threading.main_thread()))

    in_threads(kernel, 7)
    assert sorted(ran) == [(0, 3, True), (3, 7, False)]
    with limited_threads(1):
        in_threads(kernel, 7)
    assert ran[2:] == [(0, 7, True)]


@pytest.mark.parametrize("bad", [0, 6])
def test_an_error_of_any_run_when_all_have_ended(bad: int) -> None:
    ran: list[int] = []

    def kernel(first: int, last: int) -> None:
        if first <= bad < last:
            raise ValueError(f"bad {bad}")
        ran.append(first)

    with pytest.raises(ValueError, match=f"bad {bad}"):
        in_threads(kernel, 7)
    assert len(ran) == 1


def test_after_a_fork() -> None:
    """A child has none of its parent's threads. In an interpreter without those of other tests."""
    code = """
import os
import numpy as np
from capgrade.kernels import in_threads, limited_threads
from tests.capgrade.test_kernels import count
def all_counted():
    out = np.zeros(4, np.int64)
    with limited_threads(2):
        in_threads(count, 4, out)
    return (out == 1).all()
assert all_counted()
child = os.fork()
if not child:
    os._exit(0 if all_counted() else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize("torch_first", [True, False])
def test_torch_keeps_the_number_of_threads_that_it_was_given(torch_first: bool) -> None:
    """numba's own threads would set OpenMP's number, which torch has too: training had one thread
    or two by what was computed before it, and other last bits."""
    pytest.importorskip("torch")
    code = "import torch\n" if torch_first else ""
    code += "from capgrade.kernels import in_threads; in_threads(lambda first, last: None, 2)\n"
    code += "import torch; print(torch.get_num_threads())"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "1"

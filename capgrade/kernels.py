"""How kernels are compiled, kept and run: numba's `njit`, and compiled loops on several threads.

numba itself keeps machine code until the kernel's own file changes. But what a kernel calls is compiled into it, and
constants are, from whatever file they come. So code kept by `cache=True` carries a digest of every file of the package
that uses numba, or has a named tuple that a kernel may take. A kernel's constants stand in such files
(tests/capgrade/test_kernels.py). It is kept where numba keeps it: beside the sources, else in the user's cache folder,
or in $NUMBA_CACHE_DIR. Where none of them may be written, every process compiles anew.

What a kernel calls, other kernels and numpy's functions, is a part of it: it is optimised and made machine code there,
and by itself only where Python calls it. numba does both, which is half of what a first run would wait for.

numba's `prange` makes LLVM work on the loop's body three times over, and that is most of what a first run waits for.
A kernel for `in_threads` is compiled once, as it is written.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core.caching import FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher
from threadpoolctl import ThreadpoolController, threadpool_limits

from capgrade.schemas.say import tell

PACKAGE = Path(__file__).parent
COMPILED = re.compile(rb"\b(njit|numba|NamedTuple)\b")
COMPILING = "compiling kernels, once, for up to a minute; later runs find them in the cache"
OPENMP = "OMP_NUM_THREADS"

log = logging.getLogger(__name__)


def njit(function: Callable | None = None, *, cache: bool = False, **options: Any) -> Any:
    """As `numba.njit`: a decorator, with or without options."""
    if function is None:
        return lambda function: njit(function, cache=cache, **options)
    # A wrapper for C would be compiled too, and nobody calls it.
    kernel = numba.njit(no_cfunc_wrapper=True, pipeline_class=_KernelCompiler, **options)(function)
    if not isinstance(kernel, CPUDispatcher):  # NUMBA_DISABLE_JIT
        return kernel
    kernel.__class__ = _Kernel
    if cache:
        try:
            kernel._cache = _Cache(function)
        except RuntimeError as error:  # no folder that may be written
            _warn(str(error).partition(" for file")[0])
    return kernel


_PLAIN: ContextVar[bool] = ContextVar("plain", default=False)


@contextmanager
def as_python(wanted: bool) -> Iterator[None]:
    """Where wanted, kernels run as the Python that they are written in: a little takes less time than to compile."""
    token = _PLAIN.set(wanted)
    try:
        with np.errstate(over="ignore" if wanted else None):  # hashes wrap round
            yield
    finally:
        _PLAIN.reset(token)


class _Kernel(CPUDispatcher):
    """A compiled function, which `as_python` makes a plain one."""

    def __call__(self, *args: Any) -> Any:
        return self.py_func(*args) if _PLAIN.get() else super().__call__(*args)

    @cached_property
    def part(self) -> CPUDispatcher:
        """What kernels that call this one call."""
        options = {**self.targetoptions, "no_cpython_wrapper": True}
        return CPUDispatcher(self.py_func, self.locals, options)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """numba's, of a call in a kernel. A constant is of its type: numba would compile a kernel for each."""
        return self.part.get_call_template([types.unliteral(one) for one in args], kws)

    def get_overload(self, sig: Any) -> Any:
        """As `get_call_template`."""
        return self.part.get_overload(sig)


class _KernelCompiler(Compiler):
    """numba's. What it compiles for a kernel, as numpy's functions, are parts of it; and garbage waits until then."""

    def _compile_core(self) -> Any:
        codegen, collects = self.state.targetctx.codegen(), gc.isenabled()
        self.state.library = codegen.create_library(self.state.func_id.func_qualname)
        self.state.library.enable_object_caching()
        before, codegen._library_class = codegen._library_class, _PartLibrary
        gc.disable()
        try:
            return super()._compile_core()
        finally:
            codegen._library_class = before
            if collects:
                gc.enable()


class _PartLibrary(JITCodeLibrary):
    """Code as it was written, without machine code."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """There is none."""
        return 0

    @property
    def codegen(self) -> _PartLibrary:
        """Where `set_env` is called."""
        return self

    def set_env(self, name: str, env: Any) -> None:
        """Python objects of machine code, of which there is none."""


def is_compiled(kernel: Any) -> bool:
    """Whether machine code of a kernel is here, in this process or kept."""
    return (
        not isinstance(kernel, _Kernel)
        or bool(kernel.signatures)
        or (isinstance(kernel._cache, _Cache) and kernel._cache.has_code())
    )


@lru_cache(maxsize=1)
def digest(package: Path = PACKAGE) -> str:
    """SHA-256 over the package's files that use numba or have named tuples, by name. Its folders may be links."""
    paths = sorted(Path(at, name) for at, _, names in os.walk(package, followlinks=True) for name in names)
    texts = {str(path.relative_to(package)): path.read_bytes() for path in paths if path.suffix == ".py"}
    parts = [f"{name} {hashlib.sha256(text).hexdigest()}" for name, text in texts.items() if COMPILED.search(text)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@lru_cache(maxsize=1)
def _warn(problem: str) -> None:
    log.warning("numba: %s; set NUMBA_CACHE_DIR to a folder that may be written, else every run compiles anew", problem)


class _Cache(FunctionCache):
    """numba's, of code that carries the digest, in which what cannot be read or written ends no run."""

    def __init__(self, function: Callable) -> None:
        super().__init__(function)
        self._cache_file._version = f"{numba.__version__} {digest()}"  # compared before the rest is unpickled

    def has_code(self) -> bool:
        """Whether any is kept, of whatever types."""
        return bool(self._cache_file._load_index())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Kept machine code, or None after a word on what takes the seconds that follow."""
        try:
            found = super().load_overload(sig, target_context)
        except Exception as error:  # cut short by a loss of power, or of a caller's type that is not here
            log.info("numba: kept code that cannot be read is compiled anew: %s: %s", type(error).__name__, error)
            Path(self._cache_file._index_path).unlink(missing_ok=True)
            found = None
        if found is None or found.signature.args != tuple(sig):  # two processes may have kept two under one name
            tell(COMPILING)
            return None
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep machine code; where that fails, as on a full disk, the run goes on after one warning."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn(str(error))


def in_threads(kernel: Callable[..., None], n: int, *args: Any) -> None:
    """kernel(first, last, *args) for even runs of 0..n, one for each of numba's threads (`numba.set_num_threads`).

    The kernel is compiled with `nogil`, and writes nothing for one number that it reads for another. Raises what it
    raises, when all runs have ended.
    """
    runs = max(1, min(get_num_threads(), n))
    bounds = [n * k // runs for k in range(runs + 1)]
    submit, rest = _pool(os.getpid()).submit, zip(bounds[1:-1], bounds[2:], strict=True)
    others = [submit(copy_context().run, kernel, *run, *args) for run in rest]  # so threads heed `as_python` too
    try:
        kernel(0, bounds[1], *args)
    finally:
        problems = [other.exception() for other in others]
    for problem in problems:
        if problem is not None:
            raise problem


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    """Threads of this process: those of the one that it was forked from are not here."""
    return ThreadPoolExecutor(numba.config.NUMBA_NUM_THREADS, "kernel")


def get_num_threads() -> int:
    """numba's number of threads, which are started here."""
    start_threads()
    return int(numba.get_num_threads())


@lru_cache(maxsize=1)
def start_threads() -> None:
    """Start numba's threads. That sets OpenMP's number of threads for this thread, and torch and its MKL have the same
    OpenMP: products would be made by more threads than they were given, with other last bits. So it is put back."""
    before = {one.filepath for one in ThreadpoolController().lib_controllers}
    with threadpool_limits(1, "openmp"):  # when left, every library that was there has its number again
        numba.get_num_threads()
    wish = os.environ.get(OPENMP, "").partition(",")[0]
    for one in ThreadpoolController().select(user_api="openmp").lib_controllers:
        if one.filepath not in before and wish.isdigit() and int(wish):
            one.set_num_threads(int(wish))

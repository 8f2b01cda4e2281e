"""numba's `njit`, whose `cache=True` keeps machine code until anything that went into it changes.

numba's own keeps it until the kernel's own file changes. But what a kernel calls is compiled into it, and constants
are, from whatever file they come: here kept code is also of the content of those files and of those values.

It is kept beside the sources, else, where an installed package may not be written, in the user's cache folder or in
$NUMBA_CACHE_DIR. Where none of them may be written, every process compiles anew.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic

from capgrade.schemas.say import tell
from capgrade.schemas.threads import start

CONSTANTS = (bool, int, float, complex, str, bytes, np.generic, type(None))

COMPILING = "compiling kernels, once; later runs find them in the cache"

log = logging.getLogger(__name__)


def njit(function: Callable | None = None, *, cache: bool = False, **options: Any) -> Any:
    """As `numba.njit`: a decorator, with or without options."""
    if function is None:
        return lambda function: njit(function, cache=cache, **options)
    kernel = numba.njit(no_cfunc_wrapper=True, **options)(function)  # one for C, compiled too, that nobody calls
    if cache:
        try:
            kernel._cache = _Cache(function, bool(options.get("parallel")))  # type: ignore[arg-type]
        except RuntimeError as error:  # no folder that may be written
            _warn(str(error).partition(" for file")[0])
    return kernel


@lru_cache(maxsize=1)
def _warn(problem: str) -> None:
    log.warning("numba: %s; set NUMBA_CACHE_DIR to a folder that may be written, else every run compiles anew", problem)


class _Cache(FunctionCache):
    """numba's, with a stamp of everything that may be compiled into the function."""

    def __init__(self, function: FunctionType, parallel: bool = False) -> None:
        super().__init__(function)
        self.parallel = parallel
        self._cache_file = _File(self._cache_path, self._impl.filename_base, stamp(function))
        # Compared before the rest is unpickled, which may name types that are not there any more.
        self._cache_file._version = f"{numba.__version__} {self._cache_file._source_stamp}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Kept machine code, or None after a word on what takes the seconds that follow."""
        if self.parallel:
            start()
        found = super().load_overload(sig, target_context)
        if found is None:
            tell(COMPILING)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep machine code; where that fails, as on a full disk, the run goes on after one warning."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn(str(error))


class _File(IndexDataCacheFile):
    """numba's, in which what cannot be unpickled is not there: so it is compiled, and kept anew.

    A loss of power cuts files short; a caller's type may be of a module that only another process can import.
    """

    def _load_index(self) -> dict:
        return self._unless_broken(super()._load_index, {})

    def _load_data(self, name: str) -> Any:
        return self._unless_broken(lambda: super(_File, self)._load_data(name), None)

    @staticmethod
    def _unless_broken(load: Callable[[], Any], nothing: Any) -> Any:
        try:
            return load()
        except Exception as error:  # whatever unpickling raises: pickle's documentation names no full list
            log.info("numba: kept code that cannot be read is compiled anew: %s: %s", type(error).__name__, error)
            return nothing


def stamp(function: FunctionType) -> str:
    """SHA-256 over the function's file and the constants in it, imported ones too, and the same of every kernel that
    the file has imported. Imports stand above the kernels, so they are all there when a kernel is made."""
    seen: dict[str, str] = {}
    _visit(function, seen)
    return hashlib.sha256("\n".join(f"{name} {seen[name]}" for name in sorted(seen)).encode()).hexdigest()


def _visit(function: FunctionType, seen: dict[str, str]) -> None:
    names = function.__globals__
    module = str(names.get("__name__"))
    if module in seen:
        return
    seen[module] = _file_digest(function.__code__.co_filename)
    for name, value in list(names.items()):
        if not name.startswith("__"):
            if (content := _constant(value)) is not None:
                seen[f"{module}.{name}"] = hashlib.sha256(content).hexdigest()
            for imported in _kernels(value):
                _visit(imported, seen)


@lru_cache(maxsize=256)
def _file_digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _constant(value: Any) -> bytes | None:
    """Bytes that stand for a value that numba would compile in; None for anything else."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} ".encode() + value.tobytes()
    if isinstance(value, tuple):
        parts = [_constant(one) for one in value]
        return None if None in parts else b"(" + b",".join(part or b"" for part in parts) + b")"
    return f"{type(value).__name__} {value!r}".encode() if isinstance(value, CONSTANTS) else None


def _kernels(value: Any) -> Iterator[FunctionType]:
    """The Python function of a kernel or of an intrinsic; those of a module of kernels, imported as a whole."""
    if isinstance(value, Dispatcher):
        yield value.py_func
    elif isinstance(value, _Intrinsic):
        yield value._defn
    elif isinstance(value, ModuleType):
        for one in list(vars(value).values()):
            if isinstance(one, Dispatcher | _Intrinsic):
                yield from _kernels(one)

"""Compiled loops: numba's `njit` with a cache for the package, loops over several threads, and bits
and hashes of 64-bit numbers.

numba keeps machine code until the kernel's own file changes, but what a kernel calls and its
constants are compiled into it, from whatever file. So the cache folder's name has a digest of the
package's files that use numba, or have a named tuple that may be a kernel's argument.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from glob import glob
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core import event
from platformdirs import user_cache_path

from capgrade.schemas.reading import reason_of
from capgrade.schemas.say import tell, warn

_PACKAGE = Path(__file__).parent
COMPILED = re.compile(rb"\b(njit|numba|NamedTuple)\b")
COMPILING = "compiling kernels, once, for a minute or more; later runs find them in the cache"
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio: splitmix64's step
SHIFTS, FACTORS = (30, 27, 31), (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of its finaliser


def njit(function: Callable | None = None, *, cache: bool = False, **options: Any) -> Any:
    """As `numba.njit`, a decorator with or without options; code is kept in `code_folder`."""
    if function is None:
        return lambda function: njit(function, cache=cache, **options)
    folder = code_folder() if cache else None
    if folder is None:
        return numba.njit(function, **options)
    # numba reads the setting when a kernel is made, so the caller's own kernels are not affected.
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder)
    try:
        kernel = numba.njit(function, cache=True, **options)
    finally:
        numba.config.CACHE_DIR = before
    compile_or_load = kernel.compile

    def compile_in_any_case(signature: Any) -> Any:
        """Damaged files of the cache make numba raise anything, in every run."""
        try:
            return compile_or_load(signature)
        except numba.errors.NumbaError:
            raise
        except Exception as error:
            if not _delete_code(Path(kernel.stats.cache_path)):
                raise
            warn(f"kept code was damaged, and is compiled anew ({reason_of(error)})")
            return compile_or_load(signature)

    kernel.compile = compile_in_any_case
    return kernel


def _delete_code(folder: Path) -> int:
    """Delete numba's files in a folder; returns how many there were. Processes that run find their
    own code in memory."""
    files = [*folder.glob("*.nbi"), *folder.glob("*.nbc")]
    for file in files:
        file.unlink(missing_ok=True)
    return len(files)


@lru_cache(maxsize=1)
def code_folder() -> Path | None:
    """A folder of $NUMBA_CACHE_DIR or of the user's cache folder, for sources as they are now.

    None, after a warning, where it may not be written: numba would take a folder without a digest.
    """
    root = Path(numba.config.CACHE_DIR or user_cache_path("capgrade") / "kernels")
    folder = root / f"capgrade-{source_digest(_PACKAGE)[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        remedy = "set NUMBA_CACHE_DIR to a folder that may be written"
        warn(f"compiled code cannot be kept, so every run compiles anew: {error} -> {remedy}")
        return None
    return folder


def source_digest(package: Path) -> str:
    """SHA-256 over the names and contents of a package's files that are compiled in part."""
    digest = hashlib.sha256()
    # Folders of a checkout's package are links, which `Path.rglob` does not follow.
    for name in sorted(glob("**/*.py", root_dir=package, recursive=True)):  # noqa: PTH207
        text = (package / name).read_bytes()
        if COMPILED.search(text):
            digest.update(f"{name} {hashlib.sha256(text).hexdigest()}\n".encode())
    return digest.hexdigest()


class _Notice(event.Listener):
    """Tells what the first call of one of the package's kernels waits for."""

    def on_start(self, event: Any) -> None:
        if event.data["dispatcher"].py_func.__module__.startswith("capgrade."):
            tell(COMPILING)

    def on_end(self, event: Any) -> None:
        """Required by numba's listeners."""


event.register("numba:compile", _Notice())


_threads: ContextVar[int] = ContextVar("threads", default=numba.config.NUMBA_NUM_THREADS)


@contextmanager
def limited_threads(count: int) -> Iterator[None]:
    """Loops that this thread starts in the block take so many threads."""
    token = _threads.set(count)
    try:
        yield
    finally:
        _threads.reset(token)


def get_num_threads() -> int:
    """How many threads a loop takes: $NUMBA_NUM_THREADS, else all cores, or `limited_threads`.

    numba's own threads are never started: they change OpenMP's number, which torch has too.
    """
    return _threads.get()


def in_threads(kernel: Callable[..., None], n: int, *args: Any) -> None:
    """Call kernel(first, last, *args) for even runs of the numbers 0..n, one run a thread.

    The kernel is compiled with `nogil`, and writes nothing for one number that it reads for
    another. Raises what it raises, when all have ended. numba's `prange` would do the same, but
    takes thrice as long to compile.
    """
    runs, pool = max(1, min(get_num_threads(), n)), _pool(os.getpid())
    others = [
        pool.submit(kernel, n * k // runs, n * (k + 1) // runs, *args) for k in range(1, runs)
    ]
    try:
        kernel(0, n // runs, *args)
    finally:
        wait(others)
    for other in others:
        other.result()


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    """The threads of this process: a fork has none of those that its parent started."""
    return ThreadPoolExecutor(numba.config.NUMBA_NUM_THREADS, "kernel")


@njit(cache=True)
def ones(x):
    """Number of set bits of a uint64. Compilers know these steps, and make one instruction of
    them."""
    x -= (x >> np.uint64(1)) & np.uint64(0x5555555555555555)
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (x * np.uint64(0x0101010101010101)) >> np.uint64(56)


@njit(cache=True)
def mix(x):
    """splitmix64's finaliser: one uint64 to another, every bit depending on every bit."""
    x = (x ^ (x >> np.uint64(SHIFTS[0]))) * np.uint64(FACTORS[0])
    x = (x ^ (x >> np.uint64(SHIFTS[1]))) * np.uint64(FACTORS[1])
    return x ^ (x >> np.uint64(SHIFTS[2]))


@njit(cache=True)
def mix_all(x):
    """`mix` of uint64 [n]."""
    out = np.empty_like(x)
    for k in range(x.shape[0]):
        out[k] = mix(x[k])
    return out


def id_keys(ids: Sequence[str]) -> np.ndarray:
    """uint64 [len(ids)]: a stable hash of each id.

    >>> id_keys(["a", "b", "a"])[[0, 2]]
    array([3405396810240292928, 3405396810240292928], dtype=uint64)
    """
    digests = b"".join(hashlib.blake2b(i.encode(), digest_size=8).digest() for i in ids)
    # A writable copy: numba would compile kernels once more for read-only arrays.
    return np.frombuffer(digests, np.uint64).copy()

"""Pickles of arrays and files of `torch.save`, read without running code that they name.

Only listed names are looked up. numpy's own would not do: `numpy.ndarray((1,), "O", b"AAAAAAAA")`
takes an address from the file, and a type's state may claim that numbers are objects. So those
names stand for what is below.
"""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import open_bytes
from capgrade.schemas.reading import reading, reason_of, refuse_archive

_REMEDY = "fetch the file again, from the place that published it"
TEXT = "latin1"  # of Python 2, as detectron2's checkpointer reads it
# What both readers say of a name or an array that they refuse.
_REFUSED = re.compile(r"GLOBAL (\S+)|array of '\S*', not of numbers")


class _Numbers:
    """A numpy type of numbers, with the byte order that the file gives it afterwards.
    UnpicklingError for another."""

    def __init__(self, name: Any, align: Any = False, copy: Any = False) -> None:
        self.dtype = np.dtype(str(name))
        if self.dtype.kind not in "biuf" or self.dtype.itemsize > 8:
            raise pickle.UnpicklingError(f"array of {str(name)[:20]!r}, not of numbers")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class Filled(np.ndarray):
    """An array without numbers, which its state then fills, once."""

    def __new__(cls) -> Filled:
        return super().__new__(cls, (0,), np.int8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, data = state
        if self.size:
            raise ValueError("an array that is filled twice")
        super().__setstate__((1, shape, kind.dtype, fortran, _bytes(data)))


def _reconstruct(*_: Any) -> Filled:
    return Filled()


def _scalar(kind: _Numbers, data: str | bytes) -> Any:
    return np.frombuffer(_bytes(data), kind.dtype)[0]


def _buffer(data: bytes, kind: _Numbers, shape: tuple[int, ...], order: Any) -> np.ndarray:
    return np.frombuffer(data, kind.dtype).reshape(shape, order=order)


def _bytes(text: str | bytes = b"", encoding: str = TEXT) -> bytes:
    if encoding not in (TEXT, "latin-1"):
        raise ValueError("bytes that are not written as Latin-1")
    return text.encode(TEXT) if isinstance(text, str) else bytes(memoryview(text))


_NAMES: dict[str, Any] = {  # as numpy 1 and 2 write them, for Python 2 and 3
    "collections.OrderedDict": OrderedDict,
    "_codecs.encode": _bytes,
    "numpy.dtype": _Numbers,
    "numpy.ndarray": Filled,
    **{f"{module}.set": set for module in ("builtins", "__builtin__")},
    **{f"{module}.bytes": _bytes for module in ("builtins", "__builtin__")},
    **{f"numpy.{core}.multiarray._reconstruct": _reconstruct for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray.scalar": _scalar for core in ("core", "_core")},
    **{f"numpy.{core}.numeric._frombuffer": _buffer for core in ("core", "_core")},
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        qualified_name = f"{module}.{name}"
        if qualified_name not in _NAMES:
            raise pickle.UnpicklingError(f"GLOBAL {ascii(qualified_name)[1:-1]}")
        return _NAMES[qualified_name]


def read_pickle(path: Path) -> Any:
    """The content of a pickle of arrays and builtin types. InputError for one that holds anything
    else, or is damaged.

    Text of Python 2 is read as Latin-1.
    """
    try:
        with open_bytes(path) as file:
            return _Unpickler(file, encoding=TEXT).load()
    except InputError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise _unreadable("pickle", "arrays", error, path) from error


def read_torch(path: Path) -> Any:
    """The content of a file of `torch.save`, on the processor: tensors, numpy arrays and builtin
    types.

    InputError for a file that holds anything else, or is damaged.
    """
    names: list[Any] = [(value, name) for name, value in _NAMES.items()]
    open_bytes(path).close()
    with reading(path, "torch file", remedy=_REMEDY):
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                refuse_archive(archive, path)
    try:
        with torch.serialization.safe_globals(names), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says that it ignores the encoding, but does not
            return torch.load(path, "cpu", weights_only=True, encoding=TEXT)
    except Exception as error:  # a damaged file can raise anything
        raise _unreadable("torch file", "tensors", error, path) from error


def _unreadable(kind: str, of: str, error: Exception, path: Path) -> InputError:
    message = " ".join(str(error).split())
    if refused := _REFUSED.search(message):
        why = f"it names {refused[1]}" if refused[1] else f"it holds an {refused[0]}"
        return InputError(f"a {kind} of more than {of}, not read: {why}", file=path, remedy=_REMEDY)
    return InputError(
        f"not a whole {kind} ({type(error).__name__}: {reason_of(error)})",
        file=path,
        remedy=_REMEDY,
    )

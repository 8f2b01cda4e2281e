"""Pickles and torch files of tensors, read without running what is in them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch

from schemas.errors import InputError

# What arrays, numpy scalars and containers are pickled as, by numpy 1 and 2, for Python 2 and 3. None of these calls
# what it is given.
ALLOWED = {("collections", "OrderedDict"), ("numpy", "dtype"), ("numpy", "ndarray"), ("_codecs", "encode")} | {
    (builtins, name) for builtins in ("builtins", "__builtin__") for name in ("bytes", "set")
}
ALLOWED |= {
    (f"numpy.{core}.{module}", name)
    for core in ("core", "_core")
    for module, name in (("multiarray", "_reconstruct"), ("multiarray", "scalar"), ("numeric", "_frombuffer"))
}
REMEDY = "fetch the file again, from the place that published it"


class Refused(pickle.UnpicklingError):
    """A pickle names something that is not on the list."""


class ArrayUnpickler(pickle.Unpickler):
    """Builtin containers, numbers, text, numpy arrays and scalars; everything else is refused before it is found."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise Refused(f"it names {module}.{name}")
        return super().find_class(module, name)


def read_pickle(path: Path) -> Any:
    """The content of a pickle of arrays. InputError for one that holds anything else, or is damaged.

    Text of Python 2 is read as Latin-1, as detectron2's checkpointer does.
    """
    try:
        with path.open("rb") as file:
            return ArrayUnpickler(file, encoding="latin1").load()
    except Refused as error:
        raise InputError(f"a pickle of more than arrays, not read: {error}", file=path, remedy=REMEDY) from error
    except Exception as error:  # a damaged pickle can raise anything
        raise InputError(f"not a whole pickle ({type(error).__name__}: {error})", file=path, remedy=REMEDY) from error


def read_torch(path: Path) -> Any:
    """The content of a file of `torch.save`, tensors and builtin types only. InputError as in `read_pickle`."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        problem = f"a torch file of more than tensors, or a damaged one, not read: {_first_line(error)}"
        raise InputError(problem, file=path, remedy=REMEDY) from error
    except Exception as error:  # a damaged archive can raise anything
        raise InputError(f"not a whole torch file ({_first_line(error)})", file=path, remedy=REMEDY) from error


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]

"""Pickles of arrays, read by a machine that calls nothing the file names.

A pickle is a program. A list of allowed names is not enough: numpy's own constructor takes an address from raw bytes
(`numpy.ndarray((1,), "O", b"AAAAAAAA")`), and hashing a deeply nested tuple overflows the stack. So each name on the
list stands for a function below that checks its arguments, other instructions are refused, and keys are plain.
"""

from __future__ import annotations

import io
import math
import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any, BinaryIO

import numpy as np

from capgrade.schemas.errors import InputError

REMEDY = "fetch the file again, from the place that published it"
KINDS = frozenset("?") | {f"{kind}{size}" for kind, sizes in {"b": "1", "i": "1248", "u": "1248", "f": "248"}.items()
                          for size in sizes}  # fmt: skip
PLAIN = (str, bytes, int, float, bool, type(None))  # what may be a key: hashing these cannot nest
SPARE = 2**20  # bytes beyond the file's own size, for small files
NDARRAY = object()
PASSED = (
    "PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET",
    "LONG_BINGET", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1",
    "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "EMPTY_TUPLE", "TUPLE", "TUPLE1",
    "TUPLE2", "TUPLE3", "EMPTY_LIST", "LIST", "EMPTY_DICT", "EMPTY_SET", "GLOBAL", "STACK_GLOBAL",
)  # fmt: skip


class Refused(pickle.UnpicklingError):
    """A pickle holds something that arrays do not need."""


class DType:
    """A numpy type on its way: its byte order comes after it has been named."""

    def __init__(self, name: str) -> None:
        self.name, self.order = name, "="

    def build(self, state: Any) -> None:
        """Take the state that numpy pickles; its byte order counts. Refused for structured types."""
        if not isinstance(state, tuple) or len(state) < 5 or not isinstance(state[1], str) or state[1] not in "<>|=":
            raise Refused("it holds a numpy type of unknown state")
        if any(part is not None for part in state[2:5]):
            raise Refused("it holds a numpy type with fields")
        self.order = state[1]

    def numpy(self) -> np.dtype:
        """The type itself."""
        return np.dtype(self.order + self.name)


def dtype_of(value: Any) -> np.dtype:
    """The numpy type that a pickle has named. Refused for anything else."""
    if not isinstance(value, DType):
        raise Refused("it holds an array of no numpy type")
    return value.numpy()


def whole(value: Any) -> tuple[int, ...]:
    """A shape: whole numbers from 0, at most 32 of them."""
    if not isinstance(value, tuple | list) or len(value) > 32:
        raise Refused("it holds an array without a shape")
    if not all(type(side) is int and 0 <= side < 2**62 for side in value):
        raise Refused("it holds an array with a side that is no whole number from 0")
    return tuple(value)


class ArrayUnpickler(pickle._Unpickler):
    """Builtin containers with plain keys, numbers, text, and numpy arrays and scalars of numbers; the rest is refused.

    All that is made, text and containers copied from others included, is at most four times the size of the file.
    """

    stack: list[Any]
    append: Callable[[Any], None]
    pop_mark: Callable[[], list[Any]]
    read: Callable[[int], bytes]
    dispatch = {getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]] for name in PASSED}

    def __init__(self, file: BinaryIO) -> None:
        self.file = Bounded(file)
        self.left = 4 * self.file.size + SPARE
        super().__init__(self.file, encoding="latin1")
        self.names = self.known()

    def known(self) -> dict[tuple[str, str], Any]:
        """What each name stands for: as numpy 1 and 2 write it, for Python 2 and 3."""
        found: dict[tuple[str, str], Any] = {
            ("collections", "OrderedDict"): self.ordered,
            ("numpy", "dtype"): self.dtype,
            ("numpy", "ndarray"): NDARRAY,
            ("_codecs", "encode"): self.encode,
        }
        for module in ("builtins", "__builtin__"):
            found |= {(module, "bytes"): self.no_bytes, (module, "set"): self.set_of}
        for core in ("numpy.core", "numpy._core"):
            found[f"{core}.multiarray", "_reconstruct"] = self.reconstruct
            found[f"{core}.multiarray", "scalar"] = self.scalar
            found[f"{core}.numeric", "_frombuffer"] = self.frombuffer
        return found

    def load(self) -> Any:
        try:
            return super().load()
        except KeyError as error:  # of `dispatch`
            raise Refused(f"it holds an instruction that arrays do not need ({error.args[0]!s:.9})") from None

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.names:
            raise Refused(f"it names {module[:40]}.{name[:40]}".encode("unicode_escape").decode())
        return self.names[module, name]

    def spend(self, size: int) -> None:
        """Refused once more has been made than a file of this size can need."""
        self.left -= size
        if self.left < 0:
            raise Refused("it asks for far more memory than its size")

    # What the names stand for.

    def ordered(self, items: Any = ()) -> OrderedDict[Any, Any]:
        if not isinstance(items, tuple | list) or not all(isinstance(i, tuple | list) and len(i) == 2 for i in items):
            raise Refused("it holds a dictionary that is no list of pairs")
        self.spend(16 * len(items))
        return OrderedDict((plain(key), value) for key, value in items)

    def dtype(self, name: Any, align: Any = False, copy: Any = True) -> DType:
        if not isinstance(name, str) or name.lstrip("<>|=") not in KINDS:
            told = name[:20] if isinstance(name, str) else type(name).__name__
            raise Refused(f"it holds an array of {told!r}, not of numbers")
        return DType(name.lstrip("<>|="))

    def encode(self, text: Any, encoding: Any = "latin1") -> bytes:
        if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
            raise Refused("it holds bytes that are not written as Latin-1")
        self.spend(len(text))
        return text.encode("latin1")

    def no_bytes(self) -> bytes:
        return b""

    def set_of(self, items: Any) -> set[Any]:
        if not isinstance(items, list):
            raise Refused("it holds a set that is no list")
        self.spend(8 * len(items))
        return {plain(item) for item in items}

    def reconstruct(self, kind: Any, shape: Any, code: Any) -> np.ndarray:
        if kind is not NDARRAY:
            raise Refused("it holds an array of another kind than numpy's")
        return np.empty(0, np.int8)  # filled by `fill`

    def fill(self, array: np.ndarray, state: Any) -> None:
        """numpy's own __setstate__ in place, as others may hold this array, once the state has been checked."""
        if not isinstance(state, tuple) or len(state) != 5 or array.size or not isinstance(state[3], bool | int):
            raise Refused("it holds an array of unknown state")
        shape, dtype, data = whole(state[1]), dtype_of(state[2]), state[4]
        if isinstance(data, str):  # of Python 2
            self.spend(len(data))
            data = data.encode("latin1")
        self.check(shape, dtype, data)
        array.__setstate__((1, shape, dtype, bool(state[3]), bytes(data)))  # type: ignore[arg-type]

    def frombuffer(self, data: Any, dtype: Any, shape: Any, order: Any, axes: Any = None) -> np.ndarray:
        sides, kind = whole(shape), dtype_of(dtype)
        if axes is not None or not isinstance(order, str) or order not in ("C", "F"):
            raise Refused("it holds an array of unknown order")
        self.check(sides, kind, data)
        return np.frombuffer(data, kind).reshape(sides, order="C" if order == "C" else "F")

    def scalar(self, dtype: Any, data: Any = b"") -> np.generic:
        kind = dtype_of(dtype)
        if isinstance(data, str):
            data = data.encode("latin1")
        self.check((), kind, data)
        value: np.generic = np.frombuffer(data, kind)[0]
        return value

    def check(self, shape: tuple[int, ...], dtype: np.dtype, data: Any) -> None:
        if not isinstance(data, bytes | bytearray) or len(data) != math.prod(shape) * dtype.itemsize:
            raise Refused("it holds an array whose bytes do not fit its shape")
        self.spend(len(data))

    # Instructions that pickle would carry out on any object.

    def load_append(self) -> None:
        value = self.stack.pop()
        of(self.stack[-1], list).append(value)

    def load_appends(self) -> None:
        items = self.pop_mark()
        of(self.stack[-1], list).extend(items)

    def load_additems(self) -> None:
        items = self.pop_mark()
        of(self.stack[-1], set).update(plain(item) for item in items)

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        of(self.stack[-1], dict)[plain(key)] = value

    def load_setitems(self) -> None:
        items = self.pop_mark()
        target = of(self.stack[-1], dict)
        for at in range(0, len(items), 2):
            target[plain(items[at])] = items[at + 1]

    def load_dict(self) -> None:
        items = self.pop_mark()
        self.append({plain(items[at]): items[at + 1] for at in range(0, len(items), 2)})

    def load_bytearray8(self) -> None:
        size = int.from_bytes(self.read(8), "little")
        self.append(bytearray(self.read(size)))

    def load_reduce(self) -> None:
        given, call = of(self.stack.pop(), tuple), self.stack.pop()
        if not isinstance(call, FunctionType | MethodType):
            raise Refused("it calls what is no function")
        self.append(call(*given))

    def load_build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, DType):
            target.build(state)
        elif isinstance(target, np.ndarray):
            self.fill(target, state)
        elif not isinstance(target, OrderedDict):  # torch writes `_metadata` on these, which nobody reads
            raise Refused("it sets what is inside an object")


OWN: dict[str, Callable[[Any], None]] = {
    "APPEND": ArrayUnpickler.load_append, "APPENDS": ArrayUnpickler.load_appends, "DICT": ArrayUnpickler.load_dict,
    "ADDITEMS": ArrayUnpickler.load_additems, "SETITEM": ArrayUnpickler.load_setitem,
    "SETITEMS": ArrayUnpickler.load_setitems, "BYTEARRAY8": ArrayUnpickler.load_bytearray8,
    "REDUCE": ArrayUnpickler.load_reduce, "BUILD": ArrayUnpickler.load_build,
}  # fmt: skip
ArrayUnpickler.dispatch |= {getattr(pickle, name)[0]: method for name, method in OWN.items()}


def plain(key: Any) -> Any:
    """A key that is text, bytes or a number. Refused for another, whose hash could nest."""
    if type(key) not in PLAIN:
        raise Refused(f"it holds a key of type {type(key).__name__}")
    return key


def of(value: Any, kind: type) -> Any:
    """The value, which is of this kind. Refused for another."""
    if not isinstance(value, kind):
        raise Refused(f"it uses a {type(value).__name__} as a {kind.__name__}")
    return value


class Bounded:
    """A file that is not asked for more bytes than it has: the request itself would take the memory."""

    def __init__(self, file: BinaryIO) -> None:
        here = file.tell()
        self.file, self.size = file, file.seek(0, io.SEEK_END)
        file.seek(here)

    def readline(self) -> bytes:
        """A whole line. EOFError at the end."""
        line = self.file.readline()
        if not line.endswith(b"\n"):
            raise EOFError("cut short")
        return line

    def read(self, size: int) -> bytes:
        """`size` bytes. EOFError where fewer are left."""
        if not 0 <= size <= self.size - self.file.tell():
            raise EOFError("cut short")
        return self.file.read(size)


def read_pickle(path: Path) -> Any:
    """The content of a pickle of arrays. InputError for one that holds anything else, or is damaged.

    Text of Python 2 is read as Latin-1, as detectron2's checkpointer does.
    """
    try:
        with path.open("rb") as file:
            return ArrayUnpickler(file).load()
    except Refused as error:
        raise InputError(f"a pickle of more than arrays, not read: {error}", file=path, remedy=REMEDY) from error
    except Exception as error:  # a damaged pickle can raise anything
        problem = f"not a whole pickle ({type(error).__name__}: {' '.join(str(error).split())})"
        raise InputError(problem, file=path, remedy=REMEDY) from error

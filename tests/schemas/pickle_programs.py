"""Random programs for the reader of pickles, run by tests/schemas/test_pickles.py in a process of its own."""

from __future__ import annotations

import io
import pickle
import resource
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.schemas.errors import InputError
from capgrade.schemas.pickles import read_pickle
from capgrade.schemas.torch_files import TensorUnpickler, read_torch

MEMORY = 6 * 2**30  # address space
NAMES = [f"c{module}\n{name}\n".encode() for module, name in TensorUnpickler(io.BytesIO(), 0).names]
INTEGERS = st.one_of(st.integers(0, 9), st.sampled_from([-1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64, -(2**63), 10**30]))
VALUES = st.recursive(
    st.one_of(
        INTEGERS, st.none(), st.booleans(), st.floats(), st.binary(max_size=17), st.text(max_size=3),
        st.sampled_from(["f4", "<f8", "O", "O8", "V8", "U9", "i8,O", "latin1", "utf-16", "C", "F", "storage", "0"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.lists(inner, max_size=5).map(tuple)),
    max_leaves=6,
)  # fmt: skip


def framed(value: Any) -> bytes:
    """The instructions that leave a value on the stack."""
    return pickle.dumps(value, 3)[2:-1]


WHOLE = [np.ones(3, "f4"), np.float64(2), np.zeros((2, 0)), np.asfortranarray(np.ones((2, 3), ">i2")), {"a": {1, 2}}]
PIECES = st.one_of(
    st.sampled_from(NAMES),
    VALUES.map(framed),
    st.sampled_from(WHOLE).map(framed),
    st.sampled_from([bytes([op]) for op in range(256)]),
    st.sampled_from([b"R", b"b", b"Q", b"\x85R", b"\x86R", b"\x87R", b"(", b"tR", b"e", b"u", b"d", b"\x90", b"s"]),
    st.integers(0, 5).map(lambda k: b"q" + bytes([k])),
    st.integers(0, 5).map(lambda k: b"h" + bytes([k])),
)  # fmt: skip
PROGRAMS = st.lists(PIECES, max_size=40).map(lambda parts: b"\x80\x04" + b"".join(parts) + b".")


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """A whole pickle, a few of its bytes replaced."""
    data = bytearray(pickle.dumps(draw(st.sampled_from(WHOLE)), draw(st.integers(2, 5))))
    for _ in range(draw(st.integers(1, 3))):
        data[draw(st.integers(2, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@st.composite
def calls(draw: st.DrawFn) -> bytes:
    """A name, called with any arguments, and what comes of it given any state, more than once."""
    arguments = draw(st.lists(st.one_of(VALUES.map(framed), st.sampled_from(NAMES), st.just(b"h\0")), max_size=6))
    state = draw(st.one_of(VALUES.map(framed), st.just(b"")))
    made = draw(st.sampled_from(NAMES)) + b"(" + b"".join(arguments) + b"tR"
    return b"\x80\x04" + framed(np.ones(2, "f4")) + b"q\0" + made + (state + b"b") * draw(st.integers(0, 2)) + b"."


def use(value: Any) -> None:
    """Touch every byte."""
    if isinstance(value, np.ndarray | np.generic):
        assert value.dtype.kind in "biuf" and len(value.tobytes()) == value.nbytes
        repr(value)
    elif isinstance(value, torch.Tensor):
        value.clone().sum()
    elif isinstance(value, dict | list | tuple | set):
        for part in list(value.items() if isinstance(value, dict) else value)[:50]:
            if part is not value:
                use(part)


def read(path: Path, reader: Any) -> None:
    try:
        use(reader(path))
    except InputError as error:
        assert "\n" not in str(error) and "MemoryError" not in str(error), error
    except RecursionError:  # of `use`, in a list that holds itself by way of another
        pass


@settings(max_examples=500, deadline=None, derandomize=True, database=None)
@given(program=st.one_of(PROGRAMS, calls(), changed()))
def never_crashes(program: bytes) -> None:
    path = FOLDER / "w"
    path.write_bytes(program)
    read(path, read_pickle)
    read(path, read_torch)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/data/0", bytes(64))
    read(path, read_torch)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with TemporaryDirectory() as name:
        FOLDER = Path(name)
        never_crashes()
    sys.exit(0)

"""Pickles that run something when they are loaded are refused before they do."""

import collections
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch

from capgrade.pickles import read_pickle, read_torch
from capgrade.pipelines.detectors.checkpoint import load_bottom_up
from capgrade.schemas.errors import InputError


class Runs:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


CONTENT = collections.OrderedDict(
    model={
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.float64(2.5),
        "c": np.array([], np.int64),
    },
    facts=[1, 2.5, None, True, "naïve", b"bytes", (3, "x"), {"y"}],
)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_arrays_and_builtin_containers_are_read(tmp_path, protocol):
    path = tmp_path / "w.pkl"
    path.write_bytes(pickle.dumps(CONTENT, protocol=protocol))
    found = read_pickle(path)
    assert isinstance(found, collections.OrderedDict) and found["facts"] == CONTENT["facts"]
    for name, value in CONTENT["model"].items():
        assert found["model"][name].dtype == value.dtype and np.array_equal(
            found["model"][name], value
        )


def test_names_of_numpy_1_and_text_of_python_2_are_read(tmp_path):
    path = tmp_path / "w.pkl"
    array = pickle.dumps(np.ones(3, np.float32), protocol=2)
    path.write_bytes(array.replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n"))
    assert b"_core" not in path.read_bytes() and read_pickle(path).tolist() == [1, 1, 1]
    text = b"\x80\x02U\x02\xe9tq\x00."  # SHORT_BINSTRING, which Python 2 wrote
    path.write_bytes(text)
    assert read_pickle(path) == "ét"
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("archive/data.pkl", text)
        out.writestr("archive/version", b"3\n")
    assert read_torch(path) == "ét"


WRITERS = {
    "pickle": lambda content, path: path.write_bytes(pickle.dumps(content, protocol=2)),
    "torch": torch.save,
    "torch 1.4": lambda content, path: torch.save(
        content, path, _use_new_zipfile_serialization=False
    ),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_that_runs_something_is_refused_and_does_not_run(tmp_path, kind):
    path, made = tmp_path / "w", tmp_path / "made"
    read, of = (read_pickle, "arrays") if kind == "pickle" else (read_torch, "tensors")
    traps = [np.array([Runs(made)], object), Runs(made)]
    for trap, told in zip(
        traps, ["holds an array of 'O8', not of numbers", "names (posix|nt).mkdir"], strict=True
    ):
        for content in (trap, {"model": {"a": np.ones(2), "b": trap}}):
            WRITERS[kind](content, path)
            for one in (read, load_bottom_up):
                with pytest.raises(
                    InputError, match=f"more than {of}, not read: it {told}"
                ) as error:
                    one(path)
                assert error.value.file == path
    assert not made.exists()
    pickle.loads(path.read_bytes()) if kind == "pickle" else torch.load(path, weights_only=False)
    assert made.exists()  # so the file was a real trap


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "w.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.txt", "no tensors")
    with pytest.raises(InputError, match="torch file"):
        read_torch(path)
    whole = pickle.dumps(CONTENT, protocol=2)
    for content in (b"", whole[:-1], whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(InputError, match="not a whole pickle") as error:
            read_pickle(path)
        assert error.value.file == path


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR"
F4 = b"cnumpy\ndtype\n(X\x02\0\0\0f4K\x00K\x01tR"
FLOATS = F4 + b"(K\x03X\x01\0\0\0<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"


OTHERS = ("builtins eval", "builtins getattr", "numpy load", "numpy.testing measure", "torch load",
          "collections defaultdict", "os system", "numpy ndarray.tofile")  # fmt: skip
# an address to read from
POINTER = b"c__builtin__\nset\ncnumpy\nndarray\n(K\x01\x85X\x01\0\0\0OC\x08AAAAAAAAtR\x85R."


@pytest.mark.parametrize(
    ("program", "told"),
    {
        "an array at an address": (POINTER, "TypeError"),
        "objects": (b"cnumpy\ndtype\n(X\x02\0\0\0O8K\x00K\x01tR.", "array of 'O8'"),
        "long doubles": (b"cnumpy\ndtype\n(X\x03\0\0\0f16K\x00K\x01tR.", "array of 'f16'"),
        "fields": (b"cnumpy\ndtype\n(X\x05\0\0\0f4,O8K\x00K\x01tR.", "array of 'f4,O8'"),
        "fewer bytes than its shape": (ARRAY + b"(K\x01K\x63\x85" + FLOATS + b"\x89C\x04abcdtb.", "not a whole"),
        "a negative side": (ARRAY + b"(K\x01J\xff\xff\xff\xff\x85" + FLOATS + b"\x89C\x04abcdtb.", "not a whole"),
        "a list of objects for bytes": (ARRAY + b"(K\x01K\x01\x85" + FLOATS + b"\x89]K\x01atb.", "not a whole"),
        "filled twice": (ARRAY + 2 * (b"(K\x01K\x01\x85" + FLOATS + b"\x89C\x04abcdtb") + b".", "filled twice"),
        "a buffer at an address": (b"c_codecs\nencode\nK\x08\x85R.", "not a whole"),
        "an object of a class": (b"cnumpy\nndarray\nK\x01\x85\x81.", "not a whole"),
        "a persistent id": (b"K\x01Q.", "not a whole"),
        "nothing": (b"", "not a whole"), "an item of what is no dict": (b"]K\x01s.", "not a whole"),
        **{name: (f"c{name}\n.".replace(" ", "\n").encode(), f"it names {name.replace(' ', '.')}") for name in OTHERS},
        "bytes as UTF-8": (b"c_codecs\nencode\nX\x02\0\0\0\xc3\xa9X\x05\0\0\0utf-8\x86R.", "not written as Latin-1"),
        "far more bytes than there are": (b"\x8e" + b"\xff" * 7 + b"\x0f.", "not a whole"),
    }.values(),
)  # fmt: skip
def test_what_the_names_may_not_be_given(tmp_path, program, told):
    (tmp_path / "w").write_bytes(b"\x80\x04" + program)
    with pytest.raises(InputError, match=told):
        read_pickle(tmp_path / "w")


def test_what_a_type_says_of_itself_does_not_count(tmp_path):
    """numpy would take the flag that these numbers are objects, and then their bytes for
    addresses."""
    state = b"(K\x03X\x01\0\0\0<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x3ftb"
    (tmp_path / "w").write_bytes(
        b"\x80\x04" + ARRAY + b"(K\x01K\x01\x85" + F4 + state + b"\x89C\x04abcdtb."
    )
    found = read_pickle(tmp_path / "w")
    assert found.tobytes() == b"abcd" and not found.dtype.hasobject


@pytest.mark.parametrize("zipped", [True, False])
def test_what_torch_saves_is_read(tmp_path, zipped):
    shared = torch.arange(6.0)
    content = {
        "tensors": [
            shared[1:4],
            shared.view(2, 3).T,
            torch.ones(3).bfloat16(),
            torch.zeros(0, 3),
            torch.ones(2).bool(),
        ],
        "layer": torch.nn.BatchNorm1d(2).state_dict(),  # with _metadata
        "facts": [1, 2.5, None, True, (torch.Size([2, 3]), "x"), {"y"}, collections.Counter("aab")],
        "numpy": [np.float64(2.5), np.int64(3), *CONTENT["model"].values()],
    }
    torch.save(content, tmp_path / "w", _use_new_zipfile_serialization=zipped)
    found = read_torch(tmp_path / "w")
    assert found["facts"] == content["facts"]
    for a, b in zip(found["numpy"], content["numpy"], strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b)
    tensors = [*content["tensors"], *content["layer"].values()]
    for a, b in zip([*found["tensors"], *found["layer"].values()], tensors, strict=True):
        assert a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a, b)

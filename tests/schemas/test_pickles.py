"""Pickles that run something when they are loaded are refused before they do."""

import collections
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from capgrade.pipelines.detectors.weights import load_bottom_up
from capgrade.schemas.errors import InputError
from capgrade.schemas.pickles import read_pickle
from capgrade.schemas.torch_files import DTYPES, MAGIC, read_torch


class Runs:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


CONTENT = collections.OrderedDict(
    model={"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.float64(2.5), "c": np.array([], np.int64)},
    facts=[1, 2.5, None, True, "naïve", b"bytes", (3, "x"), {"y"}],
)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_arrays_and_builtin_containers_are_read(tmp_path, protocol):
    path = tmp_path / "w.pkl"
    path.write_bytes(pickle.dumps(CONTENT, protocol=protocol))
    found = read_pickle(path)
    assert isinstance(found, collections.OrderedDict) and found["facts"] == CONTENT["facts"]
    for name, value in CONTENT["model"].items():
        assert found["model"][name].dtype == value.dtype and np.array_equal(found["model"][name], value)


def test_names_of_numpy_1_and_text_of_python_2_are_read(tmp_path):
    path = tmp_path / "w.pkl"
    array = pickle.dumps(np.ones(3, np.float32), protocol=2)
    path.write_bytes(array.replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n"))
    assert b"_core" not in path.read_bytes() and read_pickle(path).tolist() == [1, 1, 1]
    path.write_bytes(b"\x80\x02U\x02\xe9tq\x00.")  # SHORT_BINSTRING, which Python 2 wrote
    assert read_pickle(path) == "ét"


def test_a_pickle_that_runs_something_is_refused_and_does_not_run(tmp_path):
    path, made = tmp_path / "w.pkl", tmp_path / "made"
    objects = "it holds an array of 'O8', not of numbers"
    for content, told in (
        ([np.array([Runs(made)], object)], objects),
        (Runs(made), "it names (posix|nt).mkdir"),
        ({"model": {"a": np.ones(2), "b": Runs(made)}}, "it names (posix|nt).mkdir"),
    ):
        path.write_bytes(pickle.dumps(content, protocol=2))
        for read in (read_pickle, load_bottom_up):
            with pytest.raises(InputError, match=f"more than arrays, not read: {told}") as error:
                read(path)
            assert error.value.file == path
    assert not made.exists()
    pickle.loads(path.read_bytes())
    assert made.exists()  # so the file was a real trap


@pytest.mark.parametrize(
    ("module", "name"),
    [("builtins", "eval"), ("builtins", "getattr"), ("numpy", "load"), ("numpy.testing", "measure"), ("torch", "load"),
     ("collections", "defaultdict"), ("os", "system"), ("numpy", "ndarray.tofile")],
)  # fmt: skip
def test_nothing_is_looked_up_that_is_not_on_the_list(tmp_path, module, name):
    (tmp_path / "w").write_bytes(f"\x80\x02c{module}\n{name}\n.".encode("latin1"))
    with pytest.raises(InputError, match=f"it names {module}.{name}"):
        read_pickle(tmp_path / "w")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_torch_file_that_runs_something_is_refused_and_does_not_run(tmp_path, zipped):
    path, made = tmp_path / "w.pth", tmp_path / "made"
    content = {"model": {"a": torch.ones(2), "b": Runs(made)}}
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    for read in (read_torch, load_bottom_up):
        with pytest.raises(InputError, match="torch file of more than tensors"):
            read(path)
    assert not made.exists()
    torch.load(path, weights_only=False)
    assert made.exists()


def test_torch_files_of_tensors_are_read_and_damaged_ones_refused(tmp_path):
    path = tmp_path / "w.pth"
    torch.save({"model": collections.OrderedDict(a=torch.ones(2))}, path)
    assert read_torch(path)["model"]["a"].tolist() == [1, 1]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.txt", "no tensors")
    with pytest.raises(InputError, match="torch file"):
        read_torch(path)


def test_damaged_pickles_are_refused(tmp_path):
    path = tmp_path / "w.pkl"
    whole = pickle.dumps(CONTENT, protocol=2)
    for content in (b"", whole[:3], whole[:-1], whole[: len(whole) // 2], b"\x80\x02]K\x01s.", b"\x80\x02h\x05."):
        path.write_bytes(content)
        with pytest.raises(InputError, match="not a whole pickle") as error:
            read_pickle(path)
        assert error.value.file == path


NESTED = b"\x80\x02})" + b"\x85" * 1_000_000 + b"K\x01s."  # a dictionary whose key is a tuple in a tuple in a tuple
POINTER = b"\x80\x02c__builtin__\nset\ncnumpy\nndarray\n(K\x01\x85X\x01\0\0\0OC\x08AAAAAAAAtR\x85R."


def archive(path, program, members=()):
    with zipfile.ZipFile(path, "w") as out:
        for name, data in [("data.pkl", program), ("version", b"3\n"), *members]:
            out.writestr(f"archive/{name}", data)


def in_a_process(*args):
    """What a reader makes of a file, apart, as a crash would end the tests: InputError's text."""
    return subprocess.run([sys.executable, "-X", "faulthandler", *args], capture_output=True, text=True, timeout=300)


READ = """import sys, pathlib
from capgrade.schemas.{0} import {1}
for name in sys.argv[1:]:
    try:
        print({1}(pathlib.Path(name)))
    except Exception as error:
        print(error)"""


@pytest.mark.parametrize(
    "reader", [("pickles", "read_pickle"), ("torch_files", "read_torch")], ids=lambda name: name[1]
)
def test_files_that_crashed_the_process_are_refused(tmp_path, reader):
    """By one process for all files: each is said to be what it is."""
    paths = []
    for name, program in (("nested", NESTED), ("pointer", POINTER)):
        head = b"".join(pickle.dumps(x, 2) for x in (MAGIC, 1001, {"little_endian": True}))
        paths += [tmp_path / f"{name}.pkl" if reader[0] == "pickles" else tmp_path / f"{name}.old"]
        paths[-1].write_bytes(program if reader[0] == "pickles" else head + program)
        if reader[0] == "torch_files":
            paths += [tmp_path / f"{name}.zip"]
            archive(paths[-1], program)
    done = in_a_process("-c", READ.format(*reader), *map(str, paths))
    assert done.returncode == 0, done.stderr[-2000:]
    for path, line in zip(paths, done.stdout.splitlines(), strict=True):
        told = "a key of type tuple" if path.stem == "nested" else "calls what is no function"
        assert line.startswith(f"{path}: a ") and "of more than" in line and told in line


def test_these_files_do_crash_the_library(tmp_path):
    """So they are real traps."""
    (tmp_path / "w").write_bytes(NESTED)
    done = in_a_process("-c", f"import pickle; pickle.load(open({str(tmp_path / 'w')!r}, 'rb'))")
    assert done.returncode < 0


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR"
F4 = b"cnumpy\ndtype\n(X\x02\0\0\0f4K\x00K\x01tR"
FLOATS = F4 + b"(K\x03X\x01\0\0\0<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"


@pytest.mark.parametrize(
    ("program", "told"),
    {
        "bytes of a size": (b"c__builtin__\nbytes\n\x8a\x06\0\0\0\0\0\x01\x85R.", "takes 1 positional argument"),
        "objects": (b"cnumpy\ndtype\n(X\x02\0\0\0O8K\x00K\x01tR.", "array of 'O8'"),
        "long doubles": (b"cnumpy\ndtype\n(X\x03\0\0\0f16K\x00K\x01tR.", "array of 'f16'"),
        "fields": (F4 + b"(K\x03X\x01\0\0\0<N)}J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb.", "fields"),
        "a type that cannot be looked up": (b"cnumpy\ndtype\n)\x85\x85R.", "array of 'tuple'"),
        "fewer bytes than its shape": (ARRAY + b"(K\x01K\x63\x85" + FLOATS + b"\x89C\x04abcdtb.", "do not fit"),
        "a negative side": (ARRAY + b"(K\x01J\xff\xff\xff\xff\x85" + FLOATS + b"\x89C\x04abcdtb.", "no whole number"),
        "a huge side of nothing": (
            ARRAY + b"(K\x01K\x00\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x86" + FLOATS + b"\x89C\x00tb.", "no whole"
        ),
        "a list of objects for bytes": (ARRAY + b"(K\x01K\x01\x85" + FLOATS + b"\x89]K\x01atb.", "do not fit"),
        "filled twice": (ARRAY + b"(K\x01K\x01\x85" + FLOATS + b"\x89C\x04abcdtb" + b"Nb.", "unknown state"),
        "an array where a list is": (ARRAY + b"K\x01a.", "uses a ndarray as a list"),
        "a function where a dictionary is": (b"c_codecs\nencode\nK\x01K\x01s.", "as a dict"),
        "state of a function": (b"c_codecs\nencode\n}b.", "sets what is inside"),
        "an object of a class": (b"cnumpy\nndarray\n)\x81.", "instruction that arrays do not need"),
        "a persistent id": (b"K\x01Q.", "instruction that arrays do not need"),
        "far more bytes than there are": (b"\x8e" + b"\xff" * 7 + b"\x0f.", "EOFError"),
        "a byte array of that size": (b"\x96" + b"\xff" * 7 + b"\x0f.", "EOFError"),
        "a frame of that size": (b"\x95" + b"\xff" * 7 + b"\x0f.", "EOFError"),
        "a memo of that size": (b"Nr\xff\xff\xff\xff0.", "instruction that arrays do not need"),
        "one text, encoded ten thousand times": (
            b"X\x10\x27\0\0" + b"a" * 10_000 + b"q\0](" + b"c_codecs\nencode\nh\0\x85R" * 10_000 + b"e.",
            "more memory than its size",
        ),
    }.values(),
)  # fmt: skip
def test_what_the_names_may_not_be_given(tmp_path, program, told):
    (tmp_path / "w").write_bytes(b"\x80\x04" + program)
    with pytest.raises(InputError, match=told):
        read_pickle(tmp_path / "w")


class Views:
    """A tensor of torch.save with any offset, size and stride on a storage of any length."""

    def __init__(self, count, offset, size, stride):
        self.given = count, offset, size, stride

    def program(self, view=b""):
        count, offset, size, stride = (pickle.dumps(x, 2)[2:-1] for x in self.given)
        storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpu" + count + view + b"tQ"
        return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + offset + size + stride + b"\x89NtR."


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((4, 0, (4,), (1,)), None),
        ((4, 1, (2,), (2,)), None),
        ((4, 0, (0, 3), (3, 1)), None),
        ((2**28, 0, (4,), (1,)), "far more memory|bytes where"),
        ((2**45, 0, (2**45,), (1,)), "far more memory"),
        ((4, 1, (4,), (1,)), "beyond its storage"),
        ((4, 5, (0,), (1,)), "beyond its storage"),
        ((4, 0, (2,), (4,)), "beyond its storage"),
        ((4, 0, (2**40,), (0,)), "beyond its storage"),
        ((4, 3, (2,), (-1,)), "no whole number"),
        ((4, -1, (2,), (1,)), "without a storage"),
        ((4, 0, (-2,), (1,)), "no whole number"),
        ((4, 0, (2, 2), (1,)), "shorter than"),
        ((-4, 0, (0,), (1,)), "no storage"),
        ((3, 0, (3,), (1,)), "16 bytes where 12"),
    ],
)
@pytest.mark.parametrize("kind", ["zip", "old"])
def test_tensors_within_their_storage(tmp_path, given, told, kind):
    path, program = tmp_path / "w", Views(*given).program(b"" if kind == "zip" else b"N")
    numbers = np.arange(4, dtype="<f4").tobytes()
    if kind == "zip":
        archive(path, program, [("data/0", numbers)])
    else:
        head = b"".join(pickle.dumps(x, 2) for x in (MAGIC, 1001, {"little_endian": True}))
        path.write_bytes(head + program + pickle.dumps(["0"], 2) + (4).to_bytes(8, "little") + numbers)
    if told is None:
        found = read_torch(path)
        assert torch.equal(found, torch.arange(4.0).as_strided(given[2], given[3], given[1]))
        assert torch.equal(found, torch.load(path, weights_only=True))
    else:
        with pytest.raises(InputError, match=f"{told}|4 numbers where"):
            read_torch(path)


@pytest.mark.parametrize("zipped", [True, False])
def test_what_torch_saves_is_read_as_torch_does(tmp_path, zipped):
    shared = torch.arange(6.0)
    content = {
        **{str(dtype): torch.ones(3).to(dtype) for dtype in DTYPES.values()},
        "views": [shared, shared[1:4], shared.view(2, 3).T, shared[0]],
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "layer": torch.nn.BatchNorm1d(2).state_dict(),  # with _metadata
        "optimiser": torch.optim.Adam([torch.nn.Parameter(torch.ones(2))]).state_dict(),
        "none": torch.zeros(0, 3),
        "facts": [1, 2.5, None, True, (torch.Size([2, 3]), "x"), collections.Counter("aab")],
    }
    path = tmp_path / "w"
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    found, expected = read_torch(path), torch.load(path, weights_only=True)
    assert found.keys() == expected.keys() and repr(found["optimiser"]) == repr(expected["optimiser"])
    assert found["facts"] == [1, 2.5, None, True, ((2, 3), "x"), {"a": 2, "b": 1}]
    for a, b in zip(tensors_of(found), tensors_of(expected), strict=True):
        assert a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a, b)
    assert found["views"][0].data_ptr() + 4 == found["views"][1].data_ptr()  # still one storage


def tensors_of(content):
    if isinstance(content, torch.Tensor):
        return [content.detach()]
    inner = content.values() if isinstance(content, dict) else content if isinstance(content, list) else []
    return [tensor for part in inner for tensor in tensors_of(part)]


def test_archives_that_fill_the_memory_are_refused(tmp_path):
    path = tmp_path / "w"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("archive/data.pkl", Views(2**24, 0, (4,), (1,)).program())
        out.writestr("archive/data/0", bytes(2**26))
    with pytest.raises(InputError, match="a compressed member"):
        read_torch(path)


def test_programs_of_the_allowed_names_never_crash():
    """Of random instructions; apart, as a crash would end the tests."""
    done = in_a_process(str(Path(__file__).with_name("pickle_programs.py")))
    assert done.returncode == 0, done.stderr[-3000:]

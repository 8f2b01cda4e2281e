"""Pickles that run something when they are loaded are refused before they do."""

import collections
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch

from pipelines.detectors.unpickle import read_pickle, read_torch
from pipelines.detectors.weights import load_bottom_up
from schemas.errors import InputError


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
    for content in (Runs(made), {"model": {"a": np.ones(2), "b": Runs(made)}}, [np.array([Runs(made)], object)]):
        path.write_bytes(pickle.dumps(content, protocol=2))
        for read in (read_pickle, load_bottom_up):
            with pytest.raises(InputError, match="more than arrays, not read: it names (posix|nt).mkdir") as error:
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

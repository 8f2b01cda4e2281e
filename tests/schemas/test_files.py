"""Files between stages: whole or not there, and damage is seen."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    atomic,
    metadata_of,
    open_arrow,
    read_manifest,
    with_metadata,
    write_arrow,
    write_manifest,
)

SCHEMA = with_metadata(pa.schema([("x", pa.int64())]), {"kind": "test", "ümlaut": "✓"})


def batches() -> list[pa.RecordBatch]:
    return [pa.record_batch([pa.array([1, 2])], schema=SCHEMA)]


def test_what_is_written_is_read_with_its_metadata(tmp_path: Path) -> None:
    assert write_arrow(tmp_path / "a.arrow", SCHEMA, batches()) == 2
    reader = open_arrow(tmp_path / "a.arrow")
    assert reader.read_all()["x"].to_pylist() == [1, 2]
    assert metadata_of(reader.schema)["ümlaut"] == "✓"


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    write_arrow(tmp_path / "a.arrow", SCHEMA, batches())
    before = (tmp_path / "a.arrow").read_bytes()

    def broken():
        yield from batches()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_arrow(tmp_path / "a.arrow", SCHEMA, broken())
    assert (tmp_path / "a.arrow").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.arrow"]


def test_atomic_needs_something_written(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic(tmp_path / "x"):
        pass


@pytest.mark.parametrize("cut", [0, 5, 100, -1])
def test_truncated_arrow_is_refused(tmp_path: Path, cut: int) -> None:
    write_arrow(tmp_path / "a.arrow", SCHEMA, batches())
    data = (tmp_path / "a.arrow").read_bytes()
    (tmp_path / "a.arrow").write_bytes(data[:cut])
    with pytest.raises(InputError, match="not a whole Arrow file"):
        open_arrow(tmp_path / "a.arrow")


def test_manifest_guards_the_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no manifest.json: not a finished shards folder"):
        read_manifest(tmp_path, "shards")
    with pytest.raises(InputError, match="gone: no such folder: not a finished shards folder -> check the path"):
        read_manifest(tmp_path / "gone", "shards")
    write_arrow(tmp_path / "a.arrow", SCHEMA, batches())
    write_manifest(tmp_path, "shards", params={}, inputs={}, rows={"a.arrow": 2})
    assert read_manifest(tmp_path, "shards")["files"]["a.arrow"]["rows"] == 2
    with pytest.raises(InputError, match="a shards folder where a captions folder is needed"):
        read_manifest(tmp_path, "captions")
    with (tmp_path / "a.arrow").open("ab") as f:
        f.write(b"x")
    with pytest.raises(InputError, match=r"a.arrow: \d+ bytes where the manifest says \d+"):
        read_manifest(tmp_path, "shards")
    (tmp_path / "a.arrow").unlink()
    with pytest.raises(InputError, match="missing, though the manifest lists it"):
        read_manifest(tmp_path, "shards")
    (tmp_path / "manifest.json").write_text('{"kind"')
    with pytest.raises(InputError, match="not a manifest"):
        read_manifest(tmp_path, "shards")


def test_a_file_is_no_folder_of_a_stage(tmp_path: Path) -> None:
    """The captions themselves given for the folder: nothing is to be written in their place."""
    file = tmp_path / "captions.token"
    file.write_text("1.jpg#0\ta dog\n")
    with pytest.raises(InputError) as error:
        read_manifest(file, "captions")
    assert error.value.problem == "a file where a captions folder is needed"
    assert error.value.remedy == "give what --out named"


def test_errors_survive_the_way_from_a_worker() -> None:
    error = InputError("wrong", file="f.tsv", row=3, remedy="mend it")
    assert str(pickle.loads(pickle.dumps(error))) == "f.tsv row 3: wrong -> mend it"

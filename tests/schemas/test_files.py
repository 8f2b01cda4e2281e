"""Files between stages: whole or not there, and damage is seen."""

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.main import get_command

from capgrade.pipelines.cli import app
from capgrade.schemas.arrow import ArrowFile, metadata_of, with_metadata, write_arrow
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import COMMANDS, made_again, read_manifest, write_manifest

SCHEMA = with_metadata(pa.schema([("x", pa.int64())]), {"kind": "test", "ümlaut": "✓"})


def batches() -> list[pa.RecordBatch]:
    return [pa.record_batch([pa.array([1, 2])], schema=SCHEMA)]


def test_what_is_written_is_read_and_outlives_a_failed_write(tmp_path: Path) -> None:
    assert write_arrow(tmp_path / "a.arrow", SCHEMA, batches()) == 2
    reader = ArrowFile(tmp_path / "a.arrow")
    assert (
        reader.read_all()["x"].to_pylist() == [1, 2] and metadata_of(reader.schema)["ümlaut"] == "✓"
    )
    before = (tmp_path / "a.arrow").read_bytes()

    def broken():
        yield from batches()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_arrow(tmp_path / "a.arrow", SCHEMA, broken())
    assert (tmp_path / "a.arrow").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.arrow"]


@pytest.mark.parametrize("cut", [0, 5, 100, -1])
def test_truncated_arrow_is_refused(tmp_path: Path, cut: int) -> None:
    write_arrow(tmp_path / "a.arrow", SCHEMA, batches())
    data = (tmp_path / "a.arrow").read_bytes()
    (tmp_path / "a.arrow").write_bytes(data[:cut])
    with pytest.raises(InputError, match="not a whole Arrow file"):
        ArrowFile(tmp_path / "a.arrow")


def test_damaged_metadata_are_told_with_their_file(tmp_path: Path) -> None:
    write_arrow(tmp_path / "a.arrow", SCHEMA, batches())
    data = (tmp_path / "a.arrow").read_bytes()
    (tmp_path / "a.arrow").write_bytes(data.replace(b'"kind":', b'"kind"]'))
    with pytest.raises(InputError, match="metadata of an Arrow file are damaged") as refused:
        ArrowFile(tmp_path / "a.arrow")
    assert str(tmp_path / "a.arrow") in str(refused.value)


def test_manifest_guards_the_folder(tmp_path: Path) -> None:
    (tmp_path / "captions.token").write_text("1.jpg#0\ta dog\n")
    with pytest.raises(
        InputError, match="a file where a folder of captions is needed -> give what --out named"
    ):
        read_manifest(tmp_path / "captions.token", "captions")
    with pytest.raises(InputError, match="no manifest.json: not a finished shards folder"):
        read_manifest(tmp_path, "shards")
    with pytest.raises(
        InputError, match="gone: no such folder: not a finished shards folder -> check the path"
    ):
        read_manifest(tmp_path / "gone", "shards")
    write_arrow(tmp_path / "a.arrow", SCHEMA, batches())
    write_manifest(tmp_path, "shards", params={}, inputs={}, rows={"a.arrow": 2})
    assert read_manifest(tmp_path, "shards")["files"]["a.arrow"]["rows"] == 2
    with pytest.raises(InputError, match="a folder of shards where one of captions is needed"):
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


@pytest.mark.parametrize("kind", ["shards", *COMMANDS])
def test_what_makes_a_folder_again_is_a_command_with_such_options(
    kind: str, tmp_path: Path
) -> None:
    words = made_again(kind, tmp_path).replace("`", "").split()
    known_commands = get_command(app).commands  # type: ignore[attr-defined]
    found: Any = known_commands.get(" ".join(words[2:4])) or known_commands[words[2]]
    known = {option for parameter in found.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known and tmp_path.is_relative_to(
        words[-1]
    )


def test_errors_survive_the_way_from_a_worker() -> None:
    error = InputError("wrong", file="f.tsv", row=3, remedy="mend it")
    assert str(pickle.loads(pickle.dumps(error))) == "f.tsv row 3: wrong -> mend it"

"""A dry run: what would be written and replaced, and nothing written."""

import json
import shutil
from pathlib import Path

import pytest

from capgrade.schemas.files import MANIFEST, entry_of, read_manifest
from tests.conftest import call, printed, refusal


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def line(made: Path, *more: object) -> list[object]:
    told = f"publish --captions {made}/captions --license cc-by-4.0 --name tiny --language en"
    return [*told.split(), *more]


def test_a_new_folder_is_told_and_not_made(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = line(made, "--shards", made / "train", "--out", "out")
    assert call(*given, "--dry-run") == 0
    said = capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    assert call(*given) == 0
    manifest = read_manifest(tmp_path / "out", "publish")
    files = {**manifest["files"], MANIFEST: entry_of(tmp_path / "out" / MANIFEST)}
    size = sum(entry["bytes"] for entry in files.values())
    first = f"dry run, nothing is written; it would be {len(files)} files, {size:,} bytes -> out"
    assert said.splitlines()[0] == first
    for name, entry in files.items():
        assert f"  new     {name}: {entry['bytes']:,} bytes" in said
    assert said.endswith(f"README.md:\n\n{(tmp_path / 'out' / 'README.md').read_text()}")
    assert "dry_run" not in json.dumps(manifest)


def test_what_would_be_replaced_and_deleted(made: Path, tmp_path: Path) -> None:
    out = shutil.copytree(made / "out", tmp_path / "out")
    before = state(tmp_path)
    found = printed(*line(made, "--shards", made / "train", "--out", out, "--dry-run"))
    assert state(tmp_path) == before
    changes = {name: entry["change"] for name, entry in found["files"].items()}
    assert changes["relevance/train-00000-of-00001.parquet"] == "same"
    assert changes["README.md"] == "changed"
    assert changes["captions/val-00000-of-00001.parquet"] == "deleted"
    assert found["card"].startswith("---\n")


def test_a_folder_of_something_else_is_refused_as_by_a_run(made: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    given = line(made, "--shards", made / "train", "--out", tmp_path)
    assert refusal(*given, "--dry-run") == refusal(*given)


def test_what_nobody_chose_is_said(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = f"publish --captions {made}/captions --shards {made}/val --license cc-by-4.0 --out"
    assert call(*told.split(), tmp_path / "chosen by nobody", "--dry-run") == 0
    said = capsys.readouterr().err
    assert "called 'chosen by nobody', as its folder" in said
    assert "the captions' language is 'en', by their words" in said

"""Shards of a few captions, as one run makes them, and a temporary folder for each test's machine."""

from pathlib import Path

import pytest

from capgrade.pipelines.shards import shards
from capgrade.schemas.params import MeasuresParams, ShardsParams, WindowsParams
from tests.conftest import caption_table, contents, random_sets, write_captions_folder

PARAMS = ShardsParams(measures=("rouge_l",), top=3, uniform=4, windows=WindowsParams(per_window=1), block_images=6)


@pytest.fixture(scope="package")
def captions_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_captions_folder(tmp_path_factory.mktemp("c") / "c", [caption_table(random_sets(20, seed=5, least=4))])


@pytest.fixture(scope="package")
def expected(captions_dir: Path) -> dict[str, bytes]:
    shards(captions_dir, captions_dir.parent / "expected", PARAMS, MeasuresParams())
    return contents(captions_dir.parent / "expected")


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where workers keep their copies of what is at a URL."""
    folder = tmp_path / "machine"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder

"""Shards of a few captions, as one run makes them, and a temporary folder for each test's
machine."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.execution.runners import BeamRunner
from capgrade.pipelines.shards import shards
from capgrade.pipelines.stages.shards import ShardsParams, WindowsParams
from tests.conftest import caption_table, contents, random_sets, write_captions_folder

PARAMS = ShardsParams(
    measures=("rouge_l",), top=3, uniform=4, windows=WindowsParams(per_window=1), block_images=6
)


@pytest.fixture(scope="package")
def captions_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_captions_folder(
        tmp_path_factory.mktemp("c") / "c", [caption_table(random_sets(20, seed=5, least=4))]
    )


def made(
    captions_dir: Path, out: Path, options: Sequence[str] = (), **changed: object
) -> dict[str, bytes]:
    """The files of one run with PARAMS, some of them changed."""
    runner = BeamRunner(options) if options else None
    shards(captions_dir, out, PARAMS.model_copy(update=changed), MeasuresParams(), runner)
    return contents(out)


@pytest.fixture(scope="package")
def expected(captions_dir: Path) -> dict[str, bytes]:
    return made(captions_dir, captions_dir.parent / "expected")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Dask cluster of two processes, with a temporary folder of their own."""
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    with pytest.MonkeyPatch.context() as patch:  # for processes that are started here
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("workers")))
        running = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        )
    with running:
        yield running.scheduler_address


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where workers keep their copies of what is at a URL."""
    folder = tmp_path / "machine"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder

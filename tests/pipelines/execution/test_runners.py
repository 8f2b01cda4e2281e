"""Shards have the same bytes on every Beam runner as without one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from capgrade.pipelines.execution import job as module
from capgrade.pipelines.execution.runners import RUNNERS, arguments, processes_here
from capgrade.pipelines.shards import shards
from capgrade.schemas.errors import InputError
from capgrade.schemas.output import WORK
from capgrade.schemas.params import MeasuresParams, ShardsParams
from tests.conftest import contents
from tests.pipelines.execution.conftest import PARAMS

DIRECT = ("--runner=DirectRunner",)
PROCESSES = ("--runner=DirectRunner", "--direct_num_workers=2", "--direct_running_mode=multi_processing")
PORTABLE = ("--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=LOOPBACK")

# A cluster of two processes, as a user starts one; it says where it listens and ends with its standard input.
CLUSTER = """
import sys
from dask.distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def cluster() -> Iterator[str]:
    pytest.importorskip("distributed", reason="Dask is not installed")
    command = [sys.executable, "-c", CLUSTER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


def made(captions_dir: Path, out: Path, params: ShardsParams, options: tuple[str, ...]) -> dict[str, bytes]:
    shards(captions_dir, out, params, MeasuresParams(), options)
    return contents(out)


@pytest.mark.parametrize("options", [DIRECT, PROCESSES, PORTABLE], ids=["direct", "processes", "portable"])
def test_local_runners(
    options: tuple[str, ...], captions_dir: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    assert made(captions_dir, tmp_path / "out", PARAMS, options) == expected


def test_dask(captions_dir: Path, expected: dict[str, bytes], tmp_path: Path, cluster: str) -> None:
    from distributed import Client

    options = ("--runner=DaskRunner", f"--dask_client_address={cluster}")
    assert made(captions_dir, tmp_path / "out", PARAMS, options) == expected
    with Client(cluster, set_as_default=False) as client:
        tasks = client.run(lambda dask_worker: sum("executing" in event for event in dask_worker.state.log))
    assert len(tasks) == 2 and all(tasks.values()), tasks  # Dask does not reshuffle: the graph must have many elements


def test_exchanged_through_a_store(
    captions_dir: Path, expected: dict[str, bytes], tmp_path: Path, machine: Path
) -> None:
    """Workers that do not see the output: files go through a URL, and nothing stays there."""
    store = tmp_path / "bucket"
    exchanged = PARAMS.model_copy(update={"exchange": f"file://{store}"})
    assert made(captions_dir, tmp_path / "out", exchanged, PROCESSES) == expected
    assert not [path for path in store.rglob("*") if path.is_file()] and not list(machine.glob("capgrade-*"))


def test_what_a_store_has_is_not_computed_again(
    captions_dir: Path, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was stopped, and lost its own parts, takes those at the URL; a damaged one is known by its digest and
    made anew."""
    store, params = tmp_path / "bucket", PARAMS.model_copy(update={"exchange": f"file://{tmp_path / 'bucket'}"})

    def stopped(folder: Path, *_: object) -> None:
        shutil.rmtree(folder / WORK / "parts")
        (folder / WORK / "parts").mkdir()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("capgrade.pipelines.shards.write_shards", stopped)
        run, again = module._run, []
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                made(captions_dir, tmp_path / "out", params, ())
            patch.setattr(module, "_run", lambda job, todo, options: again.append((job, todo, options)))
        assert not again
        part, receipt = store.rglob("000000-pairs.arrow"), store.rglob("000001-.json")
        for file in (next(part), next(receipt)):
            file.write_bytes(file.read_bytes()[:-7])
        with pytest.raises(InputError, match=r"2 such in all -> run again, it computes them anew"):
            made(captions_dir, tmp_path / "out", params, ())
        assert again[0][1] == [0, 1]
        patch.setattr(module, "_run", run)
    assert made(captions_dir, tmp_path / "out", params, ()) == expected


def test_a_url_that_cannot_be(captions_dir: Path, tmp_path: Path) -> None:
    params = PARAMS.model_copy(update={"exchange": "nosuch://bucket"})
    with pytest.raises(
        InputError, match="nosuch://bucket/[0-9a-f]{16}-[0-9a-f]{8}: .* -> give a URL such as gs://bucket/folder"
    ):
        shards(captions_dir, tmp_path / "out", params, MeasuresParams())


DASK = RUNNERS["--runner=DaskRunner"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--runner", "DaskRunner", "--x=1"], [DASK, "--x=1", "--dask_partition_size=1"]),
        (["--runner=DaskRunner", "--dask_npartitions=4"], [DASK, "--dask_npartitions=4"]),
        (["--runner=DaskRunner", "--dask_partition_size=9"], [DASK, "--dask_partition_size=9"]),
        (["--runner"], [RUNNERS["--runner=DirectRunner"], "--runner"]),  # without its name: left to Beam
    ],
)
def test_a_runner_is_known_by_its_name_however_it_is_written(given: list[str], expected: list[str]) -> None:
    assert arguments(given) == expected


@pytest.mark.parametrize(
    ("options", "processes"),
    [
        ((), 1),
        (PROCESSES, 2),
        (("--direct_num_workers=0", "--direct_running_mode=multi_processing"), os.cpu_count()),
        (("--direct_num_workers=4", "--direct_running_mode=multi_threading"), 1),  # threads take turns with all cores
        (("--direct_num_workers=4",), 1),
    ],
)
def test_processes_that_share_the_cores(options: tuple[str, ...], processes: int) -> None:
    assert processes_here(PipelineOptions(arguments(options))) == processes

"""Shards have the same bytes on every Beam runner as without one."""

import os
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from capgrade.pipelines.execution.job import run_blocks
from capgrade.pipelines.execution.runners import RUNNERS, arguments, local_processes
from capgrade.pipelines.execution.worker import Job
from capgrade.schemas.errors import InputError
from tests.pipelines.execution.conftest import made

DIRECT = ("--runner=DirectRunner",)
PROCESSES = (
    "--runner=DirectRunner",
    "--direct_num_workers=2",
    "--direct_running_mode=multi_processing",
)
PORTABLE = ("--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=LOOPBACK")


@pytest.mark.parametrize(
    "options", [DIRECT, PROCESSES, PORTABLE], ids=["direct", "processes", "portable"]
)
def test_local_runners(
    options: tuple[str, ...], captions_dir: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    assert made(captions_dir, tmp_path / "out", options) == expected


@pytest.mark.parametrize(
    "options", [DIRECT, PROCESSES, PORTABLE], ids=["direct", "processes", "portable"]
)
def test_what_a_worker_raises_is_one_line_wherever_it_is(
    options: tuple[str, ...], captions_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(job: Job, work: Path, *given: Any) -> None:
        (work / "keys" / "image_ids.arrow").write_text("no Arrow file")
        run_blocks(job, work, *given)

    monkeypatch.setattr("capgrade.pipelines.shards.run_blocks", damaged)
    with pytest.raises(
        InputError, match=r"^/.*/image_ids\.arrow: not a whole Arrow file .* -> .* that writes it$"
    ):
        made(captions_dir, tmp_path / "out", options)


@pytest.mark.parametrize(("options", "said"), [
    (("--runner=SparkRuner",), "ValueError: Unexpected pipeline runner: SparkRuner"),
    (("--runner=nothing.of.this.Name",), "ModuleNotFoundError: No module named 'nothing'"),
    (
        ("--runner=PortableRunner", "--job_endpoint=localhost:1", "--job_server_timeout=1"),
        "FutureTimeoutError",
    ),
])  # fmt: skip
def test_what_beam_says_is_one_line(
    options: tuple[str, ...], said: str, captions_dir: Path, tmp_path: Path
) -> None:
    """Finished blocks stay, so that the same command with another runner goes on."""
    with pytest.raises(InputError) as found:
        made(captions_dir, tmp_path / "out", options)
    text = str(found.value)
    assert text.startswith("Apache Beam: ") and said in text and "\n" not in text
    assert text.endswith(
        "-> check the runner and its options, which follow `--`; finished blocks stay"
    )


def test_dask(captions_dir: Path, expected: dict[str, bytes], tmp_path: Path, cluster: str) -> None:
    from distributed import Client

    options = ("--runner=DaskRunner", f"--dask_client_address={cluster}")
    assert made(captions_dir, tmp_path / "out", options) == expected
    with Client(cluster, set_as_default=False) as client:
        tasks = client.run(
            lambda dask_worker: sum("executing" in event for event in dask_worker.state.log)
        )
    assert len(tasks) == 2 and all(tasks.values()), (
        tasks
    )  # Dask does not reshuffle: the graph must have many elements


def test_a_url_that_cannot_be(captions_dir: Path, tmp_path: Path) -> None:
    said = "nosuch://bucket: .* -> give a URL such as gs://bucket/folder"
    with pytest.raises(InputError, match=said):
        made(captions_dir, tmp_path / "out", exchange="nosuch://bucket")


DASK = RUNNERS["--runner=DaskRunner"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--runner", "DaskRunner", "--x=1"], [DASK, "--x=1", "--dask_partition_size=1"]),
        (["--runner=DaskRunner", "--dask_npartitions=4"], [DASK, "--dask_npartitions=4"]),
        (["--runner=DaskRunner", "--dask_partition_size=9"], [DASK, "--dask_partition_size=9"]),
        (
            ["--runner"],
            [RUNNERS["--runner=DirectRunner"], "--runner"],
        ),  # without its name: left to Beam
    ],
)
def test_a_runner_is_known_by_its_name_however_it_is_written(
    given: list[str], expected: list[str]
) -> None:
    assert arguments(given) == expected


@pytest.mark.parametrize(
    ("options", "processes"),
    [
        ((), 1),
        (PROCESSES, 2),
        (("--direct_num_workers=0", "--direct_running_mode=multi_processing"), os.cpu_count()),
        (
            ("--direct_num_workers=4", "--direct_running_mode=multi_threading"),
            1,
        ),  # threads take turns with all cores
        (("--direct_num_workers=4",), 1),
    ],
)
def test_processes_that_share_the_cores(options: tuple[str, ...], processes: int) -> None:
    assert local_processes(PipelineOptions(arguments(options))) == processes

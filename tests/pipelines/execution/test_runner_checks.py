"""A runner that cannot run ends in one error, soon."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from capgrade.pipelines.execution import runner_checks
from capgrade.pipelines.execution.runner_checks import check_runner
from capgrade.pipelines.execution.runners import arguments
from capgrade.schemas.errors import InputError

DEAD = "localhost:1"


def checked(*options: str) -> str:
    with pytest.raises(InputError) as found:
        check_runner(PipelineOptions(arguments(options)))
    return str(found.value)


def test_what_is_not_there_is_told_within_seconds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from apache_beam.utils.subprocess_server import JavaJarServer

    monkeypatch.setattr(JavaJarServer, "JAR_CACHE", str(tmp_path))
    for name in ("MAVEN_CENTRAL_REPOSITORY", "GOOGLE_MAVEN_MIRROR", "MAVEN_STAGING_REPOSITORY"):
        monkeypatch.setattr(JavaJarServer, name, "http://127.0.0.1:1")
    start = time.monotonic()
    assert "Beam has no runner 'SparkRuner' -> --runner, near it: SparkRunner" in checked(
        "--runner=SparkRuner"
    )
    assert "Beam has no runner 'apache_beam.Runer'" in checked("--runner", "apache_beam.Runer")
    assert "cannot be loaded" in checked("--runner=nothing.of.this.Name")
    assert "nothing answers there" in checked("--runner=PortableRunner", f"--job_endpoint={DEAD}")
    assert "not HOST:PORT" in checked("--runner=PortableRunner", "--job_endpoint=here")
    assert "needs a job server" in checked("--runner=PortableRunner")
    for runner in ("Flink", "Spark"):
        assert "nothing answers there" in checked(
            f"--runner={runner}Runner", f"--job_endpoint={DEAD}"
        )
        said = checked(f"--runner={runner}Runner")
        assert "the job server's jar is not here" in said or "no Java" in said
    assert time.monotonic() - start < 30


@pytest.fixture
def scheduler() -> Iterator[str]:
    """The address of a Dask scheduler without workers."""
    pytest.importorskip("distributed", reason="Dask is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "distributed.cli.dask_scheduler",
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
    ]
    process = subprocess.Popen(
        [*command, "--no-dashboard"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield f"tcp://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def test_dask_without_scheduler_or_workers(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_checks, "WORKERS", 1.0)
    monkeypatch.setattr(runner_checks, "ANSWER", 30.0)
    said = checked("--runner=DaskRunner", f"--dask_client_address={scheduler}")
    assert said.startswith(f"{scheduler}: the Dask scheduler has no workers -> start some")
    assert said.endswith(f"dask worker {scheduler}")
    monkeypatch.setattr(runner_checks, "ANSWER", 1.0)
    assert "no Dask scheduler answers" in checked(
        "--runner=DaskRunner", "--dask_client_address=tcp://127.0.0.1:1"
    )

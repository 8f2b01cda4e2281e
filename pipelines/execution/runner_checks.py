"""Checks of what a runner needs, before the work: Beam and Dask would raise, or wait for ever."""

import shutil
import socket

from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions, StandardOptions
from apache_beam.runners.dask.dask_runner import DaskOptions, DaskRunner
from apache_beam.runners.portability.flink_runner import FlinkJarJobServer, FlinkRunner
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.portability.spark_runner import SparkJarJobServer, SparkRunner
from apache_beam.runners.runner import create_runner

from capgrade.schemas.errors import InputError, choose_from

ANSWER = 10.0  # seconds for a server to answer
WORKERS = 30.0  # seconds for the first of Dask's workers to come
IN_PROCESS = {"embed", "[local]", "[auto]"}


def check_runner(options: PipelineOptions) -> None:
    """InputError for a runner that Beam lacks, or whose server, jar or workers are missing."""
    name = options.view_as(StandardOptions).runner
    try:
        runner = create_runner(name)
    except (ValueError, AttributeError):
        known = sorted({*StandardOptions.KNOWN_RUNNER_NAMES, "DaskRunner"})
        raise InputError(
            f"Beam has no runner '{name}'", remedy=f"--runner, {choose_from(name, known)}"
        ) from None
    except ImportError as error:
        raise InputError(
            f"runner '{name}' cannot be loaded: {error}", remedy="install what it needs"
        ) from None
    if isinstance(runner, DaskRunner):
        _check_dask(options)
    elif isinstance(runner, PortableRunner):
        _check_portable(runner, options)


def _check_portable(runner: PortableRunner, options: PipelineOptions) -> None:
    endpoint = options.view_as(PortableOptions).job_endpoint
    if endpoint:
        _check_address("--job_endpoint", endpoint)
    elif isinstance(runner, (FlinkRunner, SparkRunner)):
        server = (FlinkJarJobServer if isinstance(runner, FlinkRunner) else SparkJarJobServer)(
            options
        )
        if shutil.which(server._java_launcher) is None:
            raise InputError(
                "no Java, which its job server runs on",
                remedy="install a JRE, or give --job_endpoint",
            )
        jar, before = server.path_to_jar(), socket.getdefaulttimeout()
        socket.setdefaulttimeout(ANSWER)
        try:
            # It takes the one that is there, or downloads it, as the runner itself does.
            server.local_jar(jar)
        except (OSError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            remedy = "download it and give --flink_job_server_jar or --spark_job_server_jar, "
            remedy += "or give --job_endpoint"
            raise InputError(
                f"the job server's jar is not here ({reason})", file=jar, remedy=remedy
            ) from None
        finally:
            socket.setdefaulttimeout(before)
    else:
        raise InputError(
            f"{type(runner).__name__} needs a job server", remedy="give --job_endpoint=HOST:PORT"
        )


def _check_address(option: str, address: str) -> None:
    if address in IN_PROCESS:
        return
    host, _, port = address.rpartition("//")[2].rpartition(":")
    if not host or not port.isdecimal():
        raise InputError(
            "not HOST:PORT",
            file=f"{option}={address}",
            remedy="give the job server's host and port",
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER).close()
    except (OSError, OverflowError) as error:
        problem = f"nothing answers there ({error})"
        raise InputError(
            problem, file=f"{option}={address}", remedy="start the job server, or correct it"
        ) from None


def _check_dask(options: PipelineOptions) -> None:
    """InputError where a scheduler is named that does not answer or has no workers."""
    from distributed import Client

    dask = options.view_as(DaskOptions)
    where = {"address": dask.address} if dask.address else {"scheduler_file": dask.scheduler_file}
    place = next(iter(where.values()))
    if not place:  # Beam then starts a cluster of its own
        return
    try:
        client = Client(**where, timeout=ANSWER, set_as_default=False, name="capgrade-check")
    except (OSError, ValueError, TimeoutError) as error:
        reason = " ".join(str(error).split())
        remedy = "start it: dask scheduler --port 8786"
        raise InputError(
            f"no Dask scheduler answers ({reason})", file=place, remedy=remedy
        ) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=WORKERS)
        except TimeoutError:
            named = place if dask.address else f"--scheduler-file {place}"
            remedy = f"start some, each with capgrade installed: dask worker {named}"
            raise InputError(
                "the Dask scheduler has no workers", file=place, remedy=remedy
            ) from None

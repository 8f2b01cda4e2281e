"""Beam's texts, which nothing promises: each is taken from Beam itself."""

import inspect
import logging
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.local_job_service import SubprocessSdkWorker

from capgrade.pipelines.cli import _worth_saying
from capgrade.pipelines.execution import runners
from capgrade.schemas.errors import InputError


@pytest.mark.parametrize(("command", "status"), [(b"kill -9 $$", -9), (b"exit 137", 137), (b"exit 3", 3)])
def test_the_end_of_a_worker_is_understood(command: bytes, status: int) -> None:
    """Beam's own class runs a command that ends so."""
    facts = SimpleNamespace(provision_info=beam_provision_api_pb2.ProvisionInfo())
    with pytest.raises(RuntimeError) as told:
        SubprocessSdkWorker(command, "localhost:1", facts).run()
    assert runners.ended(told.value) == status
    assert runners.ended(RuntimeError("return code 9")) is runners.ended(None) is None


def test_a_worker_is_known_by_its_command_line() -> None:
    assert runners.WORKER.decode() in inspect.getsource(fn_runner)


def test_the_word_about_google_cloud_is_not_worth_saying() -> None:
    """Logged at import, where Google Cloud's client is not installed."""
    found = find_spec("apache_beam.io.gcp.internal.clients.bigquery")
    assert found is not None and found.origin is not None
    said = "apitools not found"
    assert said in Path(found.origin).read_text(encoding="utf-8")
    assert not _worth_saying(logging.makeLogRecord({"msg": f"{said}, and bigquery client libraries are not available"}))
    assert _worth_saying(logging.makeLogRecord({"msg": "3 captions left out"}))


def a_thread_raises(error: Exception) -> None:
    def raise_it() -> None:
        raise error

    thread = threading.Thread(target=raise_it)
    thread.start()
    thread.join()


def status(code: int) -> Exception:
    return RuntimeError(f"Worker subprocess exited with return code {code}")


ENDS = {
    "a worker process was killed": (grpc.RpcError(), status(-9)),
    "a worker process ended before its work was done": (status(1),),
    "worker process ended before its work": (grpc.RpcError(),),  # with status 0, of which nothing tells
}


@pytest.mark.parametrize("said", ENDS)
def test_a_lost_worker_ends_the_wait_with_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """Also where what the first signal raises is passed over, as in the code of a library that waits."""
    told: list[object] = []
    monkeypatch.setattr("threading.excepthook", told.append)
    monkeypatch.setattr(runners, "UNWINDS", 0.1)
    never = threading.Event()

    with pytest.raises(InputError, match=said), runners.workers_watched(tmp_path):
        for error in ENDS[said]:
            a_thread_raises(error)
        with suppress(InputError):
            never.wait(30)
        never.wait(30)
    a_thread_raises(status(-9))  # of those that were ended for it
    assert told == []


def test_a_stop_that_reaches_this_process_alone_ends_the_workers(tmp_path: Path) -> None:
    """Beam waits for ever for one that was not connected yet."""
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", runners.WORKER])
    with pytest.raises(KeyboardInterrupt), runners.workers_watched(tmp_path):
        os.kill(os.getpid(), signal.SIGINT)
        worker.wait(30)
    assert worker.wait(10) == -signal.SIGKILL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_that_beam_raises_itself_in_time_is_kept(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), runners.workers_watched(tmp_path):
        a_thread_raises(status(1))
        raise ZeroDivisionError


def test_other_errors_of_threads_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr("threading.excepthook", told.append)
    with runners.workers_watched(tmp_path):
        a_thread_raises(KeyError("caption"))
    assert [found.exc_type for found in told] == [KeyError]
    assert threading.excepthook == told.append

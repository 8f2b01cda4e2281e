"""Beam's texts, which nothing promises: each is taken from Beam itself."""

import inspect
import logging
import threading
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

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


def test_the_end_of_a_second_worker_is_not_told_after_the_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    monkeypatch.setattr("threading.excepthook", told.append)

    def die() -> None:
        raise RuntimeError("Worker subprocess exited with return code -9")

    def one_dies() -> None:
        thread = threading.Thread(target=die)
        thread.start()
        thread.join()

    with pytest.raises(InputError, match="a worker process was killed"), runners.workers_watched(tmp_path):
        one_dies()
    one_dies()
    assert told == []

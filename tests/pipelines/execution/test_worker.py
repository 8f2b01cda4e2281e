"""What workers share: one copy a machine, and at the URL a folder of each run."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from apache_beam.internal import pickler

from capgrade.pipelines.execution import job as module
from capgrade.pipelines.execution.job import Job, Worker, run_url
from capgrade.pipelines.execution.remote import Remote
from capgrade.pipelines.execution.runners import MakeBlock
from capgrade.pipelines.shards import job_of, shards, source_of
from capgrade.schemas.files import MANIFEST
from capgrade.schemas.output import work_folder
from capgrade.schemas.params import MeasuresParams
from tests.pipelines.execution.conftest import PARAMS


@pytest.fixture
def job(captions_dir: Path, tmp_path: Path) -> Job:
    """At a URL, as workers find it."""
    params = PARAMS.model_copy(update={"exchange": f"file://{tmp_path}/url"})
    with work_folder(tmp_path / "out", "shards", []) as work:
        job = job_of(source_of(captions_dir, params, MeasuresParams()), params, work)
        job.share()
    return job


def test_workers_that_start_together_fetch_once(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    get, fetched = Remote.get, list[str]()

    def counting(remote: Remote, name: str, *given: object) -> None:
        fetched.append(name)
        get(remote, name, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Remote, "get", counting)
    together(4, lambda: Worker(job))
    there = [path for path in (tmp_path / "url").rglob("*") if path.is_file()]
    copied = [name for name in fetched if name != MANIFEST]
    assert len(copied) == len(set(copied)) == len(there) - 1
    job.forget()
    assert not list((tmp_path / "machine").iterdir())


def test_threads_open_the_measures_once(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beam gives each thread a DoFn of its own."""
    opened = []

    class Counting(Worker):
        def __init__(self, job: Job, workers: int) -> None:
            opened.append(workers)
            super().__init__(job, workers)

    monkeypatch.setattr(module, "Worker", Counting)
    written = pickler.dumps(MakeBlock(job, 2))
    together(8, lambda: list(pickler.loads(written).process(0)))
    assert opened == [2]


def test_a_run_has_a_folder_of_its_own(captions_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first to finish of two equal runs leaves the other's alone; one that was stopped finds its own again."""
    names = []
    for out in ("one", "two", "one"):
        with work_folder(tmp_path / out, "shards", ["equal"]) as work:
            names.append(run_url(f"file://{tmp_path}/url", work))
    assert names[0] == names[2] != names[1]
    bucket, params = tmp_path / "bucket", PARAMS.model_copy(update={"exchange": f"file://{tmp_path}/bucket"})
    with monkeypatch.context() as patch:
        patch.setattr(Job, "forget", lambda self: None)
        shards(captions_dir, tmp_path / "goes on", params, MeasuresParams())
    shards(captions_dir, tmp_path / "finishes", params, MeasuresParams())
    assert len(list(bucket.iterdir())) == 1 and list(bucket.rglob(MANIFEST))


LOADED = """
import sys
from pathlib import Path
import capgrade.pipelines.shards, capgrade.pipelines.relevance
from capgrade.schemas import output
output.folder_digest = lambda root, files: "\\n".join(str(path.resolve()) for path in files)
known = set(output.code_digest().split("\\n"))
ours = [Path(one.__file__).resolve() for name, one in sys.modules.items() if name.startswith("capgrade")]
print([str(path) for path in ours if str(path) not in known])
"""


def test_the_digest_of_the_code_is_of_all_that_a_stage_imports() -> None:
    """Or parts that were made by other code would be joined: by a measure that has changed meanwhile, say."""
    told = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def together(count: int, work: object) -> None:
    """Do it in so many threads that start together."""
    start, errors = threading.Barrier(count), list[BaseException]()

    def one() -> None:
        start.wait()
        try:
            work()  # type: ignore[operator]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors

"""What workers share, one copy a machine and a folder of each run at the URL; and runners that hand elements out twice,
lose workers and rebuild what is lost: the same bytes all the same."""

import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import ANY, patch

import apache_beam as beam
import pytest
from apache_beam.internal import pickler

from capgrade.kernels import get_num_threads
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.execution.job import Job, Worker, run_url
from capgrade.pipelines.execution.remote import Remote, here
from capgrade.pipelines.execution.runners import MakeBlock, graph, shares
from capgrade.pipelines.relevance import DenseTables
from capgrade.pipelines.sampling.plan import Plan
from capgrade.pipelines.shards import SampledTables, job_of, source_of
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST
from capgrade.schemas.output import output_folder
from capgrade.schemas.relevance import relevance_schema
from capgrade.schemas.shards import shard_schema
from tests.conftest import ROOT
from tests.pipelines.execution.conftest import PARAMS, made


@pytest.fixture
def job(captions_dir: Path, tmp_path: Path) -> Job:
    """At a URL, as workers find it."""
    params = PARAMS.model_copy(update={"exchange": f"file://{tmp_path}/url"})
    with output_folder(tmp_path / "out", "shards") as folder:
        job = job_of(source_of(captions_dir, params, MeasuresParams()), params, folder)
        job.share()
    return job


def test_workers_that_start_together_fetch_once(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with patch.object(Remote, "get", autospec=True, side_effect=Remote.get) as get:
        together(4, lambda: Worker(job))
        there = [path for path in (tmp_path / "url").rglob("*") if path.is_file()]
        assert get.call_count == len({one.args[1] for one in get.call_args_list}) == len(there)
        monkeypatch.setattr("capgrade.pipelines.execution.remote.digest", None)
        Worker(job)  # of a process that starts later: nothing is read again
        assert get.call_count == len(there)
    job.forget()
    assert not list((tmp_path / "machine").iterdir())


@pytest.mark.parametrize(
    ("where", "number", "remedies"),
    [
        ("pathlib.Path.mkdir", errno.EROFS, ["set TMPDIR to", "set CAPGRADE_CACHE to"]),
        ("fsspec.implementations.local.LocalFileSystem.get_file", errno.ENOSPC, ["make room and run again"] * 2),
    ],
)
def test_a_disk_of_ones_own_is_not_the_stores_fault(
    where: str, number: int, remedies: list[str], job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object, **_: object) -> None:
        raise OSError(number, os.strerror(number), str(given[-1]))

    monkeypatch.setattr(where, refuse)
    for fetch, remedy in zip((job.here, lambda: here(str(job.url))), remedies, strict=True):
        with pytest.raises(InputError, match=rf"cannot be written \({os.strerror(number)}\) -> {remedy}"):
            fetch()


def test_threads_open_the_measures_once(job: Job) -> None:
    """Beam gives each thread a DoFn of its own."""
    written = pickler.dumps(MakeBlock(job, 2))
    with patch("capgrade.pipelines.execution.runners.Worker", wraps=Worker) as opened:
        together(8, lambda: list(pickler.loads(written).process(0)))
    opened.assert_called_once_with(ANY, 2)


def test_a_run_has_a_folder_of_its_own(captions_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first to finish of two equal runs leaves the other's alone; one that was stopped finds its own again."""
    names = []
    for out in ("one", "two", "one"):
        with output_folder(tmp_path / out, "shards", {"of": "equal"}) as folder:
            names.append(run_url(f"file://{tmp_path}/url", folder))
    assert names[0] == names[2] != names[1]
    bucket = tmp_path / "bucket"
    with monkeypatch.context() as patch:
        patch.setattr(Job, "forget", lambda self: None)
        made(captions_dir, tmp_path / "goes on", exchange=f"file://{bucket}")
    made(captions_dir, tmp_path / "finishes", exchange=f"file://{bucket}")
    assert len(list(bucket.iterdir())) == 1 and list(bucket.rglob(MANIFEST))


def together(count: int, work: Callable[[], object]) -> None:
    """Do it in so many threads that start together."""
    start = threading.Barrier(count)

    def one(_: int) -> None:
        start.wait()
        work()

    with ThreadPoolExecutor(count) as threads:
        list(threads.map(one, range(count)))


def test_killed_damaged_and_handed_out_again(captions_dir: Path, tmp_path: Path) -> None:
    """The end is the bytes of a run left alone, or one clear error whose remedy helps."""
    shutil.copytree(captions_dir, tmp_path / "captions")
    command = [sys.executable, "-m", "tests.pipelines.execution.killed", str(tmp_path), "15", "7"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    lines = [line.split() for line in told.stdout.splitlines()]
    assert [name for name, *_ in lines] == ["dense", "sampled", "exchanged", "in_parts", "by_beam"]
    for _, deaths, damages, operations in lines:
        assert int(deaths) > 7 and int(damages) > 1 and int(operations) > 100, told.stdout


def test_finished_blocks_are_fetched_at_the_same_time(captions_dir: Path, tmp_path: Path, monkeypatch) -> None:
    """Four copies wait for one another: one after the other they would wait for ever."""
    fetch, meeting = Job.fetch, threading.Barrier(4)

    def waiting(self: Job, block: int) -> bool:
        meeting.wait(timeout=60)
        return fetch(self, block)

    monkeypatch.setattr(Job, "fetch", waiting)
    made(captions_dir, tmp_path / "out", exchange=f"file://{tmp_path}/bucket")
    assert not meeting.broken


def test_a_file_at_a_file_url_is_whole_or_not_there(tmp_path: Path, monkeypatch) -> None:
    """What is being copied has another name, which nobody takes for a part."""
    remote, seen = Remote(f"file://{tmp_path / 'bucket'}"), []
    write = remote.files.put_file

    def half(source: str, target: str, **options: object) -> None:
        Path(target).write_bytes(Path(source).read_bytes()[:2])
        seen.append((remote.names("parts"), remote.has("parts/a")))
        write(source, target, **options)

    monkeypatch.setattr(remote.files, "put_file", half)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a").write_text("content")
    remote.put(tmp_path, ["parts/a"])
    assert seen == [(set(), False)]
    assert remote.names("parts") == {"parts/a"}
    assert (tmp_path / "bucket" / "parts" / "a").read_text() == "content"


def test_the_graph_has_a_size_of_its_own(tmp_path: Path) -> None:
    """A million images with their ids: some kilobytes. Dataflow takes 10 MB."""
    n = 1_000_000
    dense = DenseTables({"a": relevance_schema(5 * n, "float32", {})})
    plan = Plan((0.0,), (1.0,), 64, 0.1, 0.05, 4, 64, 0)
    for tables in (dense, SampledTables(("a",), plan, shard_schema(("a",), {}))):
        job = Job(work=tmp_path, kinds={"a": "FittedRougeL"}, tables=tables, n_images=n, block_images=64)
        pipeline = beam.Pipeline()
        graph(pipeline, job, [*range(1000), *range(2000, job.n_blocks)])
        assert len(pipeline.to_runner_api().SerializeToString()) < 100_000


def test_blocks_of_the_graph_are_all_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    todo = [0, 1, 2, 7, 9, 10]
    assert shares(todo) == [(n, n + 1) for n in todo]
    monkeypatch.setattr("capgrade.pipelines.execution.runners.SHARES", 3)
    assert shares(list(range(7))) == [(0, 3), (3, 6), (6, 7)]
    monkeypatch.setattr("capgrade.pipelines.execution.runners.SHARES", 1)
    assert shares(todo) == [(0, 3), (7, 8), (9, 11)]
    assert [block for share in shares(todo) for block in range(*share)] == todo
    assert shares([]) == []


def test_threads_are_those_of_the_worker(monkeypatch, tmp_path: Path) -> None:
    """However many the machine has that started the run."""
    monkeypatch.setattr("numba.config.NUMBA_NUM_THREADS", 32)
    job, threads = Job(work=tmp_path, kinds={}, tables=DenseTables({}), n_images=1, block_images=1), list[int]()
    monkeypatch.setattr(DenseTables, "__call__", lambda *_: threads.append(get_num_threads()) or {})
    for workers in (2, 1, 64):
        Worker(job, workers).tables(0)
    assert threads == [16, 32, 1]

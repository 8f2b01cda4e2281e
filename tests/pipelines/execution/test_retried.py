"""Runners hand elements out twice, lose workers and rebuild what is lost: the same bytes all the same."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import apache_beam as beam
import pytest

from capgrade.pipelines.execution import job as module
from capgrade.pipelines.execution.job import Job, Worker
from capgrade.pipelines.execution.remote import Remote
from capgrade.pipelines.execution.runners import graph, shares
from capgrade.pipelines.relevance import DenseTables
from capgrade.pipelines.sampling.plan import Plan
from capgrade.pipelines.shards import SampledTables, shards
from capgrade.schemas.params import MeasuresParams, ShardsParams
from capgrade.schemas.relevance import relevance_schema
from capgrade.schemas.shards import shard_schema
from tests.pipelines.execution.conftest import PARAMS, files

Make = Callable[[Job, int], None]


@pytest.fixture
def there(tmp_path: Path) -> ShardsParams:
    """By way of a URL."""
    return PARAMS.model_copy(update={"exchange": f"file://{tmp_path / 'bucket'}"})


def made(captions_dir: Path, out: Path, params: ShardsParams, make: Make | None = None) -> dict[str, bytes]:
    """With `make`, each block by a worker of its own."""

    def run(job: Job, todo: Sequence[int], options: object) -> None:
        job.share()
        for block in todo:
            assert make is not None
            make(job, block)

    with pytest.MonkeyPatch.context() as patch:
        if make:
            patch.setattr(module, "_run", run)
        shards(captions_dir, out, params, MeasuresParams())
    return files(out)


@pytest.mark.parametrize("where", ["here", "url"])
def test_each_block_twice(
    where: str, captions_dir: Path, expected: dict[str, bytes], tmp_path: Path, there: ShardsParams
) -> None:
    def twice(job: Job, block: int) -> None:
        for _ in range(2):
            Worker(job).make(block)

    assert made(captions_dir, tmp_path / "twice", there if where == "url" else PARAMS, twice) == expected
    assert not [path for path in (tmp_path / "bucket").rglob("*") if path.is_file()]


class WorkerDiedError(Exception):
    """A worker was killed."""


def test_killed_at_any_file_and_retried(
    captions_dir: Path, expected: dict[str, bytes], tmp_path: Path, there: ShardsParams, monkeypatch
) -> None:
    """A worker dies before the first, the second, ... file that it copies, renames or deletes; another has its block
    from the start."""
    do, left, deaths = Remote._do, [10**9], []

    def dying(self: Remote, action: Callable, *given: object, **options: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise WorkerDiedError
        return do(self, action, *given, **options)

    def until_done(job: Job, block: int) -> None:
        for steps in range(200):
            left[0] = steps
            try:
                Worker(job).make(block)
            except WorkerDiedError:
                deaths.append(steps)
            else:
                left[0] = 10**9
                return
        pytest.fail("never done")

    monkeypatch.setattr(Remote, "_do", dying)
    assert made(captions_dir, tmp_path / "killed", there, until_done) == expected
    assert len(deaths) > 20


def test_a_killed_run_goes_on(
    captions_dir: Path, expected: dict[str, bytes], tmp_path: Path, there: ShardsParams
) -> None:
    """kill -9 in the middle of the parts at a URL; the next run ends with the right bytes."""
    script = (
        "import os, signal\nfrom pathlib import Path\n"
        "from capgrade.pipelines.execution import remote\n"
        "from capgrade.pipelines import shards as stage\n"
        "from capgrade.schemas.params import *\n"
        "do, left = remote.Remote._do, [12]\n"
        "def dying(*given, **options):\n"
        "    left[0] -= '/parts/' in str(given)\n"
        "    os.kill(os.getpid(), signal.SIGKILL) if not left[0] else None\n"
        "    return do(*given, **options)\n"
        "remote.Remote._do = dying\n"
        f"stage.shards(Path({str(captions_dir)!r}), Path({str(tmp_path / 'out')!r}), "
        f"ShardsParams.model_validate({there.model_dump()!r}), MeasuresParams())\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    assert list((tmp_path / "bucket").rglob("parts/*"))
    assert made(captions_dir, tmp_path / "out", there) == expected


def test_finished_blocks_are_fetched_at_the_same_time(
    captions_dir: Path, tmp_path: Path, there: ShardsParams, monkeypatch
) -> None:
    """Four copies wait for one another: one after the other they would wait for ever."""
    fetch, meeting = Job.fetch, threading.Barrier(4)

    def waiting(self: Job, block: int) -> bool:
        meeting.wait(timeout=60)
        return fetch(self, block)

    monkeypatch.setattr(Job, "fetch", waiting)
    made(captions_dir, tmp_path / "out", there)
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
    monkeypatch.setattr("numba.set_num_threads", threads.append)
    monkeypatch.setattr(DenseTables, "make", lambda *_: {})
    for workers in (2, 1, 64):
        Worker(job, workers).tables(0)
    assert threads == [16, 32, 1]

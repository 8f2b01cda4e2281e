"""Runners hand elements out twice, lose workers and rebuild what is lost: the same bytes all the same."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import apache_beam as beam
import pytest

from capgrade.pipelines.execution.job import Job, Worker
from capgrade.pipelines.execution.remote import Remote
from capgrade.pipelines.execution.runners import graph, shares
from capgrade.pipelines.relevance import DenseTables
from capgrade.pipelines.sampling.plan import Plan
from capgrade.pipelines.shards import SampledTables, shards
from capgrade.schemas.params import MeasuresParams
from capgrade.schemas.relevance import relevance_schema
from capgrade.schemas.shards import shard_schema
from tests.conftest import ROOT
from tests.pipelines.execution.conftest import PARAMS


@pytest.mark.parametrize("what", ["dense", "sampled", "exchanged", "in_parts", "by_beam"])
def test_killed_damaged_and_handed_out_again(what: str, captions_dir: Path, tmp_path: Path) -> None:
    """The end is the bytes of a run left alone, or one clear error whose remedy helps."""
    shutil.copytree(captions_dir, tmp_path / "captions")
    command = [sys.executable, "-m", "tests.pipelines.execution.killed", what, str(tmp_path), "15", "7"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    deaths, damages, operations = map(int, told.stdout.split())
    assert deaths > 7 and damages > 1 and operations > 100, told.stdout


def test_finished_blocks_are_fetched_at_the_same_time(captions_dir: Path, tmp_path: Path, monkeypatch) -> None:
    """Four copies wait for one another: one after the other they would wait for ever."""
    fetch, meeting = Job.fetch, threading.Barrier(4)

    def waiting(self: Job, block: int) -> bool:
        meeting.wait(timeout=60)
        return fetch(self, block)

    monkeypatch.setattr(Job, "fetch", waiting)
    there = PARAMS.model_copy(update={"exchange": f"file://{tmp_path / 'bucket'}"})
    shards(captions_dir, tmp_path / "out", there, MeasuresParams())
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

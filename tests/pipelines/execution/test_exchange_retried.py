"""Runners hand elements out twice, lose workers and rebuild what is lost: the same bytes all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import pytest

from capgrade.pipelines.execution import blocks
from capgrade.pipelines.execution.exchange import Remote
from capgrade.pipelines.execution.graph import _elements, _runs, graph
from capgrade.pipelines.execution.job import Job
from capgrade.pipelines.execution.sampled import Sampled
from capgrade.pipelines.execution.scoring import Scorer
from capgrade.pipelines.execution.shared import share
from capgrade.pipelines.execution.workers import MergeBlock, ScoreBlock
from capgrade.pipelines.relevance import _Dense
from capgrade.pipelines.sampling.plan import Plan
from capgrade.pipelines.shards import shards
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams, ShardsParams, WindowsParams
from capgrade.schemas.relevance import relevance_schema
from capgrade.schemas.shards import shard_schema
from tests.conftest import caption_table, random_sets, write_captions_folder

TOGETHER = ShardsParams(measures=("rouge_l",), top=3, uniform=4, windows=WindowsParams(per_window=1), block_images=6)
CHUNK = 32  # captions: several groups of few captions
Run = Callable[..., None]


@pytest.fixture(scope="module")
def captions_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_captions_folder(tmp_path_factory.mktemp("c") / "c", [caption_table(random_sets(20, seed=5, least=4))])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (
        "capgrade.pipelines.execution.job",
        "capgrade.pipelines.execution.sampled",
        "capgrade.pipelines.measures.base",
    ):
        monkeypatch.setattr(f"{module}.CHUNK", CHUNK)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture(params=["together", "groups"])
def grouped(request: pytest.FixtureRequest) -> ShardsParams:
    return TOGETHER.model_copy(update={"group_captions": CHUNK} if request.param == "groups" else {})


@pytest.fixture(params=["here", "url"])
def params(request: pytest.FixtureRequest, grouped: ShardsParams, tmp_path: Path) -> ShardsParams:
    where = f"file://{tmp_path / 'bucket'}" if request.param == "url" else None
    return grouped.model_copy(update={"exchange": where})


def made(captions_dir: Path, out: Path, params: ShardsParams, run: Run | None = None) -> dict[str, bytes]:
    with pytest.MonkeyPatch.context() as patch:
        if run:
            patch.setattr(blocks, "_run", run)
        shards(captions_dir, out, params, MeasuresParams())
    return {path.name: path.read_bytes() for path in out.iterdir()}


def by_hand(times: int, again: Callable[[beam.DoFn, object], None]) -> Run:
    """Every element `times` times, each by a worker of its own: scored, scored again, merged, merged again."""

    def run(job: Job, what: str, todo: list[int], options: object) -> None:
        share(job)
        for block in todo:
            for group in range(len(job.groups)):
                for _ in range(times):
                    again(ScoreBlock(job, 1), (block, group))
        for block in todo if len(job.groups) > 1 else ():
            for _ in range(times):
                again(MergeBlock(job), (block, range(len(job.groups))))
            for group in range(len(job.groups)):  # what a lost worker had scored is scored anew, and merged anew
                again(ScoreBlock(job, 1), (block, group))
            again(MergeBlock(job), (block, range(len(job.groups))))

    return run


def once(worker: beam.DoFn, element: object) -> None:
    worker.setup()
    list(worker.process(element) or ())


def test_each_element_twice(captions_dir: Path, tmp_path: Path, params: ShardsParams, small) -> None:
    expected = made(captions_dir, tmp_path / "once", params.model_copy(update={"exchange": None}))
    assert made(captions_dir, tmp_path / "twice", params, by_hand(2, once)) == expected
    assert not [path for path in (tmp_path / "bucket").rglob("*") if path.is_file()]


class WorkerDiedError(Exception):
    """A worker was killed."""


def test_killed_at_any_file_and_retried(
    captions_dir: Path, tmp_path: Path, params: ShardsParams, small, monkeypatch
) -> None:
    """A worker dies before the first, the second, ... file that it copies, renames or deletes; another has its element
    from the start."""
    if params.exchange is None:
        pytest.skip("of a URL")
    expected = made(captions_dir, tmp_path / "once", params.model_copy(update={"exchange": None}))
    do, left, deaths = Remote._do, [10**9], []

    def dying(self: Remote, action: Callable, *given: object, **options: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise WorkerDiedError
        return do(self, action, *given, **options)

    def until_done(worker: beam.DoFn, element: object) -> None:
        for steps in range(200):
            left[0] = steps
            try:
                once(type(worker)(worker.job, *([1] if isinstance(worker, ScoreBlock) else [])), element)
            except WorkerDiedError:
                deaths.append(steps)
            else:
                left[0] = 10**9
                return
        pytest.fail("never done")

    monkeypatch.setattr(Remote, "_do", dying)
    assert made(captions_dir, tmp_path / "killed", params, by_hand(1, until_done)) == expected
    assert len(deaths) > 20


def test_two_workers_merge_one_block(captions_dir: Path, tmp_path: Path, small, monkeypatch) -> None:
    """One deletes the groups' parts while the other reads them."""
    params = TOGETHER.model_copy(update={"group_captions": CHUNK, "exchange": f"file://{tmp_path / 'bucket'}"})
    expected = made(captions_dir, tmp_path / "once", params.model_copy(update={"exchange": None}))
    read, overtaken = Job.read, []

    def overtaking(self: Job, block: int, group: int):
        if group == 1 and block not in overtaken:
            overtaken.append(block)
            once(MergeBlock(self), (block, range(len(self.groups))))
        return read(self, block, group)

    monkeypatch.setattr(Job, "read", overtaking)
    assert made(captions_dir, tmp_path / "two", params, by_hand(1, once)) == expected
    assert len(overtaken) == 4


@pytest.mark.parametrize("what", ["-.json", "-state.arrow"])
def test_a_cut_group_is_one_error_and_then_made_anew(
    what: str, captions_dir: Path, tmp_path: Path, params: ShardsParams, small
) -> None:
    if params.group_captions is None:
        pytest.skip("of groups")
    expected = made(captions_dir, tmp_path / "once", params.model_copy(update={"exchange": None}))
    cut: list[Path] = []

    def cutting(worker: beam.DoFn, element: tuple[int, int]) -> None:
        once(worker, element)
        found = sorted(tmp_path.rglob(f"parts/000002/0001{what}"))
        if isinstance(worker, ScoreBlock) and element == (2, 1) and not cut:
            cut.extend(found)
            found[0].write_bytes(found[0].read_bytes()[:-7])

    with pytest.raises(InputError, match=r"parts/000002/0001-.json and its parts do not fit -> run again"):
        made(captions_dir, tmp_path / "cut", params, by_hand(1, cutting))
    assert made(captions_dir, tmp_path / "cut", params, by_hand(1, cutting)) == expected
    assert len(cut) == 1


def test_a_killed_run_goes_on(captions_dir: Path, tmp_path: Path, grouped: ShardsParams, small) -> None:
    """kill -9 in the middle of the parts at a URL; the next run ends with the right bytes."""
    grouped = grouped.model_copy(update={"exchange": f"file://{tmp_path / 'bucket'}"})
    script = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from capgrade.pipelines.execution import exchange as remote, job, sampled\n"
        "from capgrade.pipelines.measures import base\n"
        "from capgrade.pipelines import shards as stage\n"
        "from capgrade.schemas.params import *\n"
        f"for one in (base, job, sampled): one.CHUNK = {CHUNK}\n"
        "do, left = remote.Remote._do, [12]\n"
        "def dying(*given, **options):\n"
        "    left[0] -= '/parts/' in str(given)\n"
        "    os.kill(os.getpid(), signal.SIGKILL) if not left[0] else None\n"
        "    return do(*given, **options)\n"
        "remote.Remote._do = dying\n"
        f"stage.shards(Path({str(captions_dir)!r}), Path({str(tmp_path / 'out')!r}), "
        f"ShardsParams.model_validate({grouped.model_dump()!r}), MeasuresParams())\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", script], env=environment, check=False).returncode == -signal.SIGKILL
    assert list((tmp_path / "bucket").rglob("parts/*"))
    expected = made(captions_dir, tmp_path / "whole", grouped.model_copy(update={"exchange": None}))
    assert made(captions_dir, tmp_path / "out", grouped) == expected


def test_finished_blocks_are_fetched_at_the_same_time(captions_dir: Path, tmp_path: Path, small, monkeypatch) -> None:
    """Four copies wait for one another: one after the other they would wait for ever."""
    params = TOGETHER.model_copy(update={"exchange": f"file://{tmp_path / 'bucket'}"})
    fetched, meeting = Job.fetched, threading.Barrier(4)

    def waiting(self: Job, block: int, group: int | None = None) -> Job:
        meeting.wait(timeout=60)
        return fetched(self, block, group)

    monkeypatch.setattr(Job, "fetched", waiting)
    made(captions_dir, tmp_path / "out", params)
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
    """A million images with their ids, in groups: some kilobytes. Dataflow takes 10 MB."""
    n = 1_000_000
    dense = _Dense({"a": relevance_schema(5 * n, "float32", {})})
    plan = Plan((0.0,), (1.0,), 64, 0.1, 0.05, 4, 64, 0)
    sampled = Sampled(("a",), plan, shard_schema(("a",), {}))
    for tables, group in ((dense, None), (sampled, 250_000)):
        job = Job(
            work=tmp_path, kinds={"a": "FittedRougeL"}, tables=tables, n_images=n, block_images=64, n_captions=5 * n,
            group_captions=group,
        )  # fmt: skip
        pipeline = beam.Pipeline()
        graph(pipeline, job, [*range(1000), *range(2000, job.n_blocks)])
        assert len(pipeline.to_runner_api().SerializeToString()) < 100_000


def test_blocks_of_the_graph_are_all_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    todo = [0, 1, 2, 7, 9, 10]
    assert _runs(todo) == [(n, n + 1) for n in todo]
    monkeypatch.setattr("capgrade.pipelines.execution.graph.SHARES", 3)
    assert _runs(list(range(7))) == [(0, 3), (3, 6), (6, 7)]
    monkeypatch.setattr("capgrade.pipelines.execution.graph.SHARES", 1)
    assert _runs(todo) == [(0, 3), (7, 8), (9, 11)]
    assert [e for run in _runs(todo) for e in _elements(run, 2)] == [(b, g) for b in todo for g in (0, 1)]
    assert _runs([]) == []


def test_threads_are_those_of_the_worker(monkeypatch, tmp_path: Path) -> None:
    """However many the machine has that started the run."""
    job = Job(work=tmp_path, kinds={}, tables=_Dense({}), n_images=1, block_images=1, n_captions=1)
    scorer = Scorer(job, 2)
    monkeypatch.setattr("numba.config.NUMBA_NUM_THREADS", 32)
    assert scorer._threads() == 16
    assert Scorer(job, 1)._threads() == 32 and Scorer(job, 64)._threads() == 1

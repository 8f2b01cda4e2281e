"""What workers read, with one copy a machine where it lies in a store; and runners that hand
elements out twice, lose workers and rebuild what is lost: the same bytes all the same."""

import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import ANY, Mock, patch

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.internal import pickler
from fsspec.implementations.memory import MemoryFileSystem

from capgrade.kernels import get_num_threads
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.execution.folder import Folder, local_folder
from capgrade.pipelines.execution.job import put_shared
from capgrade.pipelines.execution.runners import MakeBlock, graph, shares
from capgrade.pipelines.execution.worker import Job, Worker
from capgrade.pipelines.relevance import DenseTables
from capgrade.pipelines.sampling.sampler import Plan
from capgrade.pipelines.shards import SampledTables, open_shards_run, save_shards_job, schema_of
from capgrade.schemas.arrow import write_arrow
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_text
from capgrade.schemas.output import output_folder
from capgrade.schemas.relevance import relevance_schema
from capgrade.schemas.shards import shard_schema
from tests.conftest import ROOT, work_of
from tests.kills import EVERY
from tests.pipelines.execution.conftest import PARAMS, made


@pytest.fixture
def store() -> Iterator[str]:
    """A URL in no file system."""
    yield "memory://bucket"
    Folder("memory://bucket").delete()


@pytest.fixture
def job(captions_dir: Path, tmp_path: Path, store: str) -> Job:
    """In the store, as workers find it."""
    params = PARAMS.model_copy(update={"exchange": store})
    with output_folder(tmp_path / "out", "shards") as folder:
        run = open_shards_run(captions_dir, params, MeasuresParams())
        job = save_shards_job(run, schema_of(run), folder)
        put_shared(folder, Folder(job.url))
    return job


def test_workers_that_start_together_fetch_once(job: Job, tmp_path: Path) -> None:
    files, real = MemoryFileSystem, MemoryFileSystem.get_file
    with patch.object(files, "get_file", autospec=True, side_effect=real) as get:
        together(4, lambda: Worker(job))
        fetched = [call.args[1] for call in get.call_args_list if not files().isdir(call.args[1])]
        root = Folder(job.url).root
        assert sorted(fetched) == sorted(f"{root}/{name}" for name in Folder(job.url).names())
        before = get.call_count
        Worker(job)  # of a process that starts later
        assert get.call_count == before
    Folder(job.url).delete_all()
    assert not list((tmp_path / "machine").iterdir()) and not Folder(job.url).names()


def test_a_store_gives_the_bytes_of_a_folder(
    captions_dir: Path, expected: dict[str, bytes], tmp_path: Path, store: str
) -> None:
    """And nothing is left there, nor in the temporary folder of this machine."""
    assert made(captions_dir, tmp_path / "out", exchange=store) == expected
    assert not Folder(store).names() and not list((tmp_path / "machine").iterdir())


@pytest.mark.parametrize(
    ("where", "number", "remedies"),
    [
        ("pathlib.Path.mkdir", errno.EROFS, ["set TMPDIR to", "set CAPGRADE_CACHE to"]),
        (
            "fsspec.implementations.memory.MemoryFileSystem.get_file",
            errno.ENOSPC,
            ["make room and run again"] * 2,
        ),
    ],
)
def test_a_disk_of_ones_own_is_not_the_stores_fault(
    where: str, number: int, remedies: list[str], job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object, **_: object) -> None:
        raise OSError(number, os.strerror(number), str(given[-1]))

    Folder(job.url).write("manifest.json", lambda file: write_text(file, "{}"))
    monkeypatch.setattr(where, refuse)
    for fetch, remedy in zip(
        (lambda: Worker(job), lambda: local_folder(job.url)), remedies, strict=True
    ):
        with pytest.raises(
            InputError, match=rf"cannot be written \({os.strerror(number)}\) -> {remedy}"
        ):
            fetch()


def test_threads_open_the_measures_once(job: Job) -> None:
    """Beam gives each thread a DoFn of its own."""
    written = pickler.dumps(MakeBlock(2))
    with patch("capgrade.pipelines.execution.runners.Worker", wraps=Worker) as opened:
        together(8, lambda: list(pickler.loads(written).process((job, 0))))
    opened.assert_called_once_with(ANY, 2)


def test_a_run_finds_its_own_folder_again(
    captions_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no other run's, though its output or its parameters alone are other."""
    names = []

    def stop(job: Job, *_: object) -> list[Path]:
        names.append(job.url)
        raise InputError("stopped")

    monkeypatch.setattr("capgrade.pipelines.shards.run_blocks", stop)
    for out, top in (("one", 1), ("two", 1), ("one", 1), ("one", 2)):
        with pytest.raises(InputError, match="stopped"):
            made(captions_dir, tmp_path / out, exchange=f"file://{tmp_path}/url", top=top)
    assert names[0] == names[2] and len(set(names)) == 3


def test_parts_that_are_not_here(
    captions_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers on machines that have another folder of this name."""
    monkeypatch.setattr(Worker, "make", lambda *_: None)
    with pytest.raises(
        InputError, match="4 of 4 parts are not here, though workers have ended -> let workers see"
    ):
        made(captions_dir, tmp_path / "out")


def together(count: int, work: Callable[[], object]) -> None:
    """Do it in so many threads that start together."""
    start = threading.Barrier(count)

    def one(_: int) -> None:
        start.wait()
        work()

    with ThreadPoolExecutor(count) as threads:
        list(threads.map(one, range(count)))


def test_a_copy_that_the_machine_has_tidied_away_is_fetched_again(job: Job) -> None:
    """As where old files of the temporary folder are deleted, one by one."""
    local = Worker(job).local
    file = next(path for path in sorted((local / "fit").rglob("*")) if path.is_file())
    content = file.read_bytes()
    for damage in (Path.unlink, lambda path: path.write_bytes(b"")):
        damage(file)
        Worker(job)
        assert file.read_bytes() == content


def test_a_part_that_somebody_has_damaged_is_made_again(
    captions_dir: Path, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, stop = tmp_path / "out", Mock(side_effect=KeyboardInterrupt)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("capgrade.pipelines.shards.write_shards", stop)
        made(captions_dir, out)
    first, second, *_ = sorted((work_of(tmp_path / "out") / "parts").glob("*.arrow"))
    first.write_bytes(b"")
    second.write_bytes(second.read_bytes()[:-40])
    assert made(captions_dir, out) == expected


def test_killed_and_handed_out_again(captions_dir: Path, tmp_path: Path) -> None:
    """The end is the bytes of a run left alone, and under DVC nothing is made twice. .ci/run has
    more moments."""
    shutil.copytree(captions_dir, tmp_path / "captions")
    moments, seed = 45 if EVERY in os.environ else 4, 7
    program = [sys.executable, "-m", "tests.pipelines.execution.killed"]
    command = [*program, str(tmp_path), str(moments), str(seed)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, f"{command}\n{told.stdout}{told.stderr}"
    lines = [line.split() for line in told.stdout.splitlines()]
    stages = ["dense", "sampled", "detected", "trained"]
    assert [name for name, *_ in lines] == [*stages, "exchanged", "in_parts", "by_beam", *stages]
    for _, deaths, operations in lines:
        assert int(deaths) * 2 >= moments and int(operations) > 20, told.stdout


def test_parts_in_a_store_are_not_made_again(
    captions_dir: Path,
    expected: dict[str, bytes],
    tmp_path: Path,
    store: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that was stopped, and has lost its own folder, goes on with those that are there."""
    made_blocks, table = list[int](), Worker.table
    monkeypatch.setattr(
        Worker, "table", lambda self, block: (made_blocks.append(block), table(self, block))[1]
    )

    def stopped(folder: Folder, name: str, file: Path) -> None:
        """As parts are fetched, all of which have been made."""
        folder.delete("parts/000002.arrow")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "get", stopped)
        with pytest.raises(KeyboardInterrupt):
            made(captions_dir, tmp_path / "out", exchange=store)
    assert made(captions_dir, tmp_path / "out", exchange=store) == expected
    assert made_blocks == [0, 1, 2, 3, 2]


def test_a_path_is_no_url(tmp_path: Path) -> None:
    """Whatever its name means in a URL of fsspec."""
    folder = Folder(f"{tmp_path}/zip::a #1*")
    folder.write("parts/a", lambda file: write_text(file, "content"))
    write_text(tmp_path / "zip::a #1*" / "parts" / ".b.1.2.tmp", "being written")
    assert folder.names("parts") == folder.names() == {"parts/a"} and folder.exists("parts/a")
    assert (tmp_path / "zip::a #1*" / "parts" / "a").read_text() == "content"


class Sftp(MemoryFileSystem):
    """A file system of which nothing says that a put is whole."""

    protocol = "sftp"


def test_a_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is being copied has another name, which nobody takes for a part."""
    folder, seen = Folder("memory://bucket"), []
    folder.files = Sftp()
    put = folder.files.put_file

    def watched(source: str, target: str) -> None:
        put(source, target)
        seen.append((folder.names("parts"), folder.exists("parts/a"), folder.files.cat(target)))

    monkeypatch.setattr(folder.files, "put_file", watched)
    folder.write("parts/a", lambda file: file.write_text("content"))
    assert seen == [(set(), False, b"content")]
    assert (
        folder.names("parts") == {"parts/a"} and folder.files.cat("/bucket/parts/a") == b"content"
    )


def test_the_graph_has_a_size_of_its_own(tmp_path: Path) -> None:
    """A million images with their ids: some kilobytes. Dataflow takes 10 MB."""
    n = 1_000_000
    dense = DenseTables({"a": relevance_schema(5 * n, "float32", {})})
    plan = Plan((0.0,), (1.0,), 64, 0.1, 0.05, 4, 64, 0)
    for table in (dense, SampledTables(("a",), plan, shard_schema(("a",), {}))):
        job = Job(
            url=str(tmp_path),
            kinds={"a": "FittedRougeL"},
            table=table,
            n_images=n,
            block_images=64,
            n_blocks=n // 64,
        )
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
    assert [block for put_shared in shares(todo) for block in range(*put_shared)] == todo
    assert shares([]) == []


def test_threads_are_those_of_the_worker(monkeypatch, tmp_path: Path) -> None:
    """However many the machine has that started the run."""
    monkeypatch.setattr("numba.config.NUMBA_NUM_THREADS", 32)
    ids = pa.record_batch({"image_ids": pa.array(["1.jpg"], pa.large_string())})
    write_arrow(tmp_path / "keys" / "image_ids.arrow", ids.schema, [ids])
    job = Job(
        url=str(tmp_path), kinds={}, table=DenseTables({}), n_images=1, block_images=1, n_blocks=1
    )
    threads = list[int]()
    monkeypatch.setattr(DenseTables, "__call__", lambda *_: threads.append(get_num_threads()))
    for workers in (2, 1, 64):
        Worker(job, workers).table(0)
    assert threads == [16, 32, 1]

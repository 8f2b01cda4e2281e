"""What a stop, another run, a full disk or one that may not be written leave: what was finished,
and one clear line."""

import errno
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.numpy import save_file

from capgrade.pipelines import relevance as stage
from capgrade.pipelines.verify import verify
from capgrade.schemas.arrow import write_arrow
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic, reserve, write_text, writing
from capgrade.schemas.output import LOCK, holder, only_run, output_folder, work_folder
from capgrade.trainer.search.encode import create_array
from tests.conftest import ROOT, call, caption_table, random_sets, refusal, write_captions_folder

HOLD = "import sys; from pathlib import Path; from capgrade.schemas.output import only_run\n"
HOLD += "with only_run(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"


@pytest.fixture(scope="module")
def captions_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_captions_folder(
        tmp_path_factory.mktemp("c") / "c", [caption_table(random_sets(40, seed=2))]
    )


@pytest.fixture
def other_run(tmp_path: Path):
    """Another process that writes to `tmp_path / out`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "out")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def test_the_second_run_refuses_and_a_killed_one_is_no_hindrance(tmp_path: Path, other_run) -> None:
    message = rf"out: another run .* \(process {other_run.pid}\) -> wait"
    with pytest.raises(InputError, match=message) as refused, only_run(tmp_path / "out"):
        pass
    assert refused.value.file == tmp_path / "out"
    assert holder(tmp_path / "out") == other_run.pid
    other_run.kill()
    other_run.wait()
    assert holder(tmp_path / "out") is None
    with only_run(tmp_path / "out"):
        assert (tmp_path / "out.unfinished" / LOCK).is_file()
    assert not list(tmp_path.iterdir())


def test_whoever_asks_for_the_holder_hinders_no_run(tmp_path: Path) -> None:
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            assert holder(tmp_path / "out") in (None, os.getpid())

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for one in asking:
        one.start()
    try:
        for _ in range(200):
            with only_run(tmp_path / "out"):
                pass
    finally:
        ended.set()
        for one in asking:
            one.join()


def test_processes_of_one_launcher_do_not_refuse_each_other(
    tmp_path: Path, other_run, monkeypatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    write_text(work_folder(tmp_path / "out", "shards", None) / "a", "of the first process")
    with output_folder(tmp_path / "out", "shards") as folder:
        assert (folder / "a").read_text() == "of the first process"
    assert (folder / "a").exists()


def test_a_worker_that_outlives_its_killed_parent_holds_nothing(tmp_path: Path) -> None:
    """Forked while the folder is held, it says its number and waits for the end of its input."""
    program = HOLD.replace(
        "print('held', flush=True); sys.stdin.read()",
        "os.write(1, b'%d\\n' % os.fork()); sys.stdin.read()",
    )
    command = [sys.executable, "-c", f"import os\n{program}", str(tmp_path / "out")]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    said = {int(parent.stdout.readline()), int(parent.stdout.readline())}
    assert holder(tmp_path / "out") == parent.pid
    parent.kill()
    parent.wait()
    worker = max(said)
    os.kill(worker, 0)  # it lives
    with only_run(tmp_path / "out"):
        assert holder(tmp_path / "out") == os.getpid()
    assert parent.stdin is not None
    parent.stdin.close()


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of 1 MB; skipped where mounting is not allowed."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("mode", ["in one process", "in two"])
def test_a_full_disk_is_one_line_and_what_is_finished_stays(
    mode: str,
    captions_dir: Path,
    small_disk: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody else fills the disk after the run has seen that there is room."""
    two = (
        ["--", "--direct_num_workers=2", "--direct_running_mode=multi_processing"]
        if mode == "in two"
        else []
    )
    blocks = [
        "--set",
        "relevance.block_images=2",
        "--measures",
        "rouge_l",
        "--out",
        f"{small_disk}/r",
    ]
    filling = small_disk / "filling"
    fill = partial(filling.write_bytes, b"x" * (2**20 - 40 * 1024))
    monkeypatch.setattr(stage, "require_space", lambda *_, **__: filling.exists() or fill())
    assert call("relevance", "--captions", str(captions_dir), *blocks, *two) == 2
    lines = capsys.readouterr().err.splitlines()  # the last; before it, how far a slow machine is
    error = lines[-1]
    assert [line for line in lines if line.startswith("error:")] == [error]
    assert "cannot be written (No space left on device) -> make room" in error, error
    assert str(small_disk) in error
    parts = {path: path.stat().st_ino for path in small_disk.glob("r.unfinished/*/parts/*")}
    assert not (small_disk / "r" / "manifest.json").exists()
    assert not list(small_disk.rglob(".*.tmp"))
    assert "an unfinished run" in verify(small_disk).problems[0].problem
    monkeypatch.undo()
    filling.unlink()
    for path, inode in parts.items():
        assert path.stat().st_ino == inode
    assert call("relevance", "--captions", str(captions_dir), *blocks) == 0
    assert not verify(small_disk).problems


WRITERS = ("an Arrow file", "a text", "numpy", "safetensors", "torch", "a memory map", "encodings")


@pytest.mark.parametrize("where", WRITERS)
def test_every_writer_names_the_full_disk(where: str, small_disk: Path) -> None:
    big = np.zeros(2**20)
    schema = pa.schema([("x", pa.float64())])
    with pytest.raises(
        InputError, match=r"disk/a: cannot be written \(No space left on device\) -> make room"
    ):
        if where == "an Arrow file":
            write_arrow(small_disk / "a", schema, [pa.record_batch([pa.array(big)], schema=schema)])
        elif where == "a text":
            write_text(small_disk / "a", "x" * 2**21)
        else:
            with atomic(small_disk / "a") as temporary:
                if where == "numpy":
                    with temporary.open("wb") as file:
                        np.save(file, big)
                elif where == "torch":
                    torch.save(torch.from_numpy(big), temporary)
                elif (
                    where == "a memory map"
                ):  # sparse, it ends the process when its pages are filled
                    reserve(temporary, big.nbytes)
                elif where == "encodings":
                    create_array(temporary, (1000, 1000))[:] = 1
                else:
                    save_file({"x": big}, temporary)
    assert not list(small_disk.iterdir())


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_disk_that_may_not_be_written(
    number: int, captions_dir: Path, tmp_path: Path, monkeypatch
) -> None:
    def refuse(path: Path, *args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    german = ROOT / "examples" / "german.tsv"
    for given in (
        ("shards", "--captions", captions_dir),
        ("captions", "--source", "tsv", "--input", german),
    ):
        error = refusal(*given, "--out", f"{tmp_path}/o")
        assert f"{tmp_path}/o: cannot be written ({os.strerror(number)}) -> give an --out" in error


def test_a_file_that_is_read_is_not_called_the_output(tmp_path: Path) -> None:
    """An input that may not be read is named, wherever it is opened; what is written keeps the
    remedy of its option."""
    out, refused = tmp_path / "out", "Permission denied"
    read = r"run/model: cannot be read or written \(Permission denied\) -> check the path"
    with pytest.raises(InputError, match=read), output_folder(out, "run", {"of": "run"}):
        raise PermissionError(errno.EACCES, refused, str(tmp_path / "run" / "model"))
    written = r"out: cannot be written \(Permission denied\) -> give an --out"
    for name in (out, out / "x", tmp_path, f"{tmp_path}/.out.1.2.tmp"):
        with pytest.raises(InputError, match=written), writing(out):
            raise PermissionError(errno.EACCES, refused, str(name))


def test_a_run_folder_that_may_not_be_written_wants_another_folder(
    tmp_path: Path, monkeypatch
) -> None:
    def refuse(path: Path, *args: object, **kwargs: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    message = r"index: cannot be written \(Permission denied\) -> give an --out that may"
    with pytest.raises(InputError, match=message), output_folder(tmp_path / "index", "embeddings"):
        raise AssertionError("it was entered")

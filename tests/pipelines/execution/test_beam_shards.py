"""The transform in anybody's pipeline: the files of `capgrade shards`, whatever runner makes them
and whoever is killed."""

import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from capgrade.measures.params import MeasuresParams
from capgrade.pipelines import beam_shards
from capgrade.pipelines.beam_shards import WriteShards
from capgrade.pipelines.execution.runners import MakeBlock, arguments
from capgrade.pipelines.shards import shards
from capgrade.schemas.errors import InputError
from tests.conftest import call, contents, refusal
from tests.pipelines.execution.conftest import PARAMS
from tests.pipelines.execution.test_runners import PORTABLE, PROCESSES

SMALL = PARAMS.model_copy(update={"block_images": 2})


@pytest.fixture(scope="module")
def small(captions_dir: Path) -> dict[str, bytes]:
    """The files of the command."""
    shards(captions_dir, captions_dir.parent / "small", SMALL, MeasuresParams())
    return contents(captions_dir.parent / "small")


def written(captions_dir: Path, folder: Path) -> WriteShards:
    return WriteShards(
        f"file://{captions_dir}", f"file://{folder}/out", f"file://{folder}/url", SMALL
    )


def run(transform: beam.PTransform, *options: str) -> None:
    with beam.Pipeline(options=PipelineOptions(arguments(options))) as pipeline:
        _ = pipeline | transform


def on_dask(address: str) -> tuple[str, ...]:
    """Few partitions, as each step has as many."""
    return ("--runner=DaskRunner", f"--dask_client_address={address}", "--dask_npartitions=4")


def made_by_hand(transform: WriteShards) -> dict[str, Any]:
    """All elements, one after the other."""
    job, make = transform.work.begin(), MakeBlock()
    jobs = [one for block in range(job.n_blocks) for _, one in make.process((job, block))]
    return transform.work.finish(jobs)


@pytest.mark.parametrize("runner", ["direct", "processes", "portable", "dask"])
def test_shards_are_those_of_the_command_whatever_runner(
    runner: str,
    captions_dir: Path,
    small: dict[str, bytes],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """And nothing is left where workers exchanged files."""
    options: tuple[str, ...] = {"processes": PROCESSES, "portable": PORTABLE}.get(runner, ())
    if runner == "dask":
        options = on_dask(request.getfixturevalue("cluster"))
    run(written(captions_dir, tmp_path), *options)
    assert contents(tmp_path / "out") == small
    assert not [path for path in (tmp_path / "url").rglob("*") if path.is_file()]


def test_processes_of_the_direct_runner_divide_the_cores() -> None:
    with patch.object(beam_shards, "MakeBlock", wraps=MakeBlock) as made:
        _ = beam.Pipeline(options=PipelineOptions(PROCESSES)) | written(Path("/c"), Path("/d"))
    made.assert_called_once_with(2)


def test_a_dask_worker_is_killed(
    captions_dir: Path, small: dict[str, bytes], tmp_path: Path, cluster: str
) -> None:
    from distributed import Client

    with Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(2)
        pids, at = client.run(os.getpid), []

    def kill() -> None:
        until = time.monotonic() + 120
        while not list((tmp_path / "url").glob("*/parts/*.arrow")) and time.monotonic() < until:
            time.sleep(0.002)
        os.kill(next(iter(pids.values())), signal.SIGKILL)
        at.append((tmp_path / "out" / "manifest.json").exists())

    killer = threading.Thread(target=kill)
    killer.start()
    run(written(captions_dir, tmp_path), *on_dask(cluster))
    killer.join()
    assert at == [False]
    assert contents(tmp_path / "out") == small


def test_what_was_done_may_be_asked_for_again(
    captions_dir: Path, small: dict[str, bytes], tmp_path: Path
) -> None:
    """Each worker's element, after any other: whole runs are killed in `killed.by_beam`."""
    transform = written(captions_dir, tmp_path)
    job = transform.work.begin()
    (_, first), *_ = MakeBlock().process((job, 0))
    assert first == job and list(MakeBlock().process((job, 1))) == [(0, None)]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "shard-00000-of-00001.arrow").write_text("of a worker that was killed")
    manifest = made_by_hand(transform)
    assert transform.work.finish([job]) == manifest and transform.work.begin() == job
    assert contents(tmp_path / "out") == small


def test_what_another_version_made_is_not_these_shards(
    captions_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transform = written(captions_dir, tmp_path)
    made_by_hand(transform)
    before = contents(tmp_path / "out")
    monkeypatch.setattr("capgrade.pipelines.beam_shards.package_version", lambda: "9")
    with pytest.raises(InputError, match="not of these shards"):
        transform.work.begin()
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize("name", ["letter.txt", "shard-00000-of-00001.arrow", "manifest.json"])
def test_what_is_not_of_these_shards_stays(name: str, captions_dir: Path, tmp_path: Path) -> None:
    """Shards without a manifest may be anybody's, though they have the names of these."""
    content = (captions_dir / "manifest.json").read_bytes()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_bytes(content)
    said = f"/out: holds {name}, which is not of these shards -> give the URL of an empty folder"
    with pytest.raises(InputError, match=said):
        written(captions_dir, tmp_path).work.begin()
    assert contents(tmp_path / "out") == {name: content}


def test_nothing_is_done_when_it_is_built(captions_dir: Path, tmp_path: Path) -> None:
    pipeline = beam.Pipeline()
    assert (pipeline | written(captions_dir, tmp_path)).element_type == beam.typehints.Dict[
        str, Any
    ]
    assert len(pipeline.to_runner_api().SerializeToString()) < 100_000
    assert not (tmp_path / "out").exists() and not (tmp_path / "url").exists()


def test_a_command_takes_captions_from_a_url(
    captions_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPGRADE_CACHE", str(tmp_path / "cache"))
    there = shutil.copytree(captions_dir, tmp_path / "bucket" / "captions")
    command = (
        "relevance",
        "--captions",
        f"file://{there}",
        "--measures",
        "rouge_l",
        "--out",
        tmp_path / "out",
    )
    assert call(*command) == 0
    copied = next((tmp_path / "cache").rglob("captions.arrow"))
    before = copied.stat().st_mtime_ns
    assert call(*command) == 0
    assert copied.stat().st_mtime_ns == before
    copied.write_bytes(copied.read_bytes()[:-9])
    assert call(*command) == 0
    assert copied.read_bytes() == (captions_dir / "captions.arrow").read_bytes()
    (there / "captions.arrow").write_bytes(b"other")
    copied.unlink()
    assert "captions.arrow: not as its manifest says -> copy the whole folder there" in refusal(
        *command
    )
    shutil.rmtree(there)
    assert "captions: not a finished folder of a stage" in refusal(*command)

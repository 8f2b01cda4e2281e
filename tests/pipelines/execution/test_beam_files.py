"""Files of WriteShards: those of `capgrade shards`, whatever runner writes them and whoever is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from capgrade.pipelines.beam_shards import RUN, WriteBlock, WriteShards
from capgrade.pipelines.execution.remote import Remote
from capgrade.pipelines.execution.runners import arguments
from capgrade.pipelines.shards import shards
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digest, made_again, manifest_of, write_json
from capgrade.schemas.params import MeasuresParams, ShardsParams
from capgrade.schemas.shards import read_shards
from tests.conftest import call
from tests.pipelines.execution.conftest import PARAMS, files
from tests.pipelines.execution.test_runners import PORTABLE, PROCESSES, cluster  # noqa: F401  # a fixture

SMALL = PARAMS.model_copy(update={"block_images": 2})
NOTHING = (0, {RUN: ["first"]})  # but the folder at the URL to fit on
WORDS = ("a red dog runs", "two dogs on a beach", "a man rides", "the cat sits", "a blue bike near a street")
ROWS = [
    {"image_id": f"i{i}", "caption_id": f"i{i}#{k}", "caption": f"{WORDS[(i + k) % 5]} {WORDS[k]}"}
    for i in range(8)
    for k in range(5)
]


@pytest.fixture(scope="module")
def expected(captions_dir: Path) -> dict[str, bytes]:
    """Of `capgrade shards`, with a shard for each block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("capgrade.pipelines.shards._by_size", lambda parts, size: [[part] for part in parts])
        shards(captions_dir, captions_dir.parent / "here", SMALL, MeasuresParams())
    return files(captions_dir.parent / "here")


def run(transform: beam.PTransform, *options: str) -> None:
    with beam.Pipeline(options=PipelineOptions(arguments(options))) as pipeline:
        _ = pipeline | transform


def write(captions_dir: Path, folder: Path, **options: str) -> WriteShards:
    return WriteShards(
        f"file://{folder}/out", f"file://{folder}/url", SMALL, captions=f"file://{captions_dir}", **options
    )


def run_on(rows: list[dict[str, str]], folder: Path, params: ShardsParams = SMALL, *options: str) -> None:
    with beam.Pipeline(options=PipelineOptions(arguments(options))) as pipeline:
        transform = WriteShards(f"file://{folder}/out", f"file://{folder}/url", params)
        _ = pipeline | beam.Create(rows) | transform


def test_files_are_those_of_the_command(captions_dir: Path, expected: dict[str, bytes], tmp_path: Path) -> None:
    run(write(captions_dir, tmp_path))
    assert files(tmp_path / "out") == expected
    assert [row["image"] for batch in read_shards(tmp_path / "out").batches() for row in batch.to_pylist()] == [
        *range(20)
    ]


def test_a_dask_worker_is_killed(
    captions_dir: Path,
    expected: dict[str, bytes],
    tmp_path: Path,
    cluster: str,  # noqa: F811
) -> None:
    from distributed import Client

    with Client(cluster, set_as_default=False) as client:
        pids, at = client.run(os.getpid), []

    def kill() -> None:
        until = time.monotonic() + 120
        while not list((tmp_path / "out").glob("*.arrow")) and time.monotonic() < until:
            time.sleep(0.002)
        os.kill(next(iter(pids.values())), signal.SIGKILL)
        at.append((tmp_path / "out" / "manifest.json").exists())

    killer = threading.Thread(target=kill)
    killer.start()
    run(
        write(captions_dir, tmp_path), "--runner=DaskRunner", f"--dask_client_address={cluster}", "--dask_npartitions=4"
    )
    killer.join()
    assert at == [False]
    assert files(tmp_path / "out") == expected


def test_parquet_holds_the_same(captions_dir: Path, expected: dict[str, bytes], tmp_path: Path) -> None:
    run(write(captions_dir, tmp_path, format="parquet"))
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["kind"] == "shards_parquet" and len(manifest["files"]) == 10
    assert "`WriteShards` again" in made_again(manifest["kind"], tmp_path)  # it is no command
    for name, entry in manifest["files"].items():
        assert digest(tmp_path / "out" / name) == entry["sha256"]
        with pa.ipc.open_file(expected[name.replace("parquet", "arrow")]) as arrow:
            table, same = pq.read_table(tmp_path / "out" / name), arrow.read_all()
        assert table.equals(same) and table.schema.metadata == same.schema.metadata


def test_elements_that_come_twice(captions_dir: Path, expected: dict[str, bytes], tmp_path: Path) -> None:
    transform = write(captions_dir, tmp_path)
    one, same = (transform.fit.run(NOTHING) for _ in range(2))
    assert one == same
    writer, out = WriteBlock(transform.target), []
    for block in (3, 1, *range(10), 3, 0):
        transform.target.claimed(one)
        out += [entry for _, entry in writer.process((one, block))]
    left = tmp_path / "out" / f"shard-00001-of-00010.arrow.{'0' * 32}.partial"
    left.write_bytes(b"of a worker that was lost")
    for _ in range(2):
        transform.target.finished(out)
        transform.target.claimed(one)
    assert files(tmp_path / "out") == expected
    other = replace(out[0], entry={**out[0].entry, "sha256": "0" * 64})
    with pytest.raises(InputError, match=f"{other.name} was written twice, with other bytes -> give all workers"):
        transform.target.finished([*out, other])


@pytest.mark.parametrize("runner", ["processes", "portable", "dask"])
def test_a_collection_on_other_runners(runner: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    params = SMALL.model_copy(update={"measures": ("rouge_l", "cider")})
    options: tuple[str, ...] = {"processes": PROCESSES, "portable": PORTABLE}.get(runner, ())
    if runner == "dask":
        options = ("--runner=DaskRunner", f"--dask_client_address={request.getfixturevalue('cluster')}")
        options = (*options, "--dask_npartitions=2")
    run_on(ROWS, tmp_path / "here", params)
    run_on(ROWS, tmp_path / "there", params, *options)
    assert files(tmp_path / "there" / "out") == files(tmp_path / "here" / "out")


def test_two_to_one_folder(tmp_path: Path) -> None:
    """One is refused, and nothing of the other is written over."""
    others = [{**row, "image_id": f"other {row['image_id']}"} for row in ROWS]
    with pytest.raises(Exception, match="is not of these shards -> give the URL of an empty"), beam.Pipeline() as both:
        for name, rows in (("a", ROWS), ("b", others)):
            captions = both | f"Read {name}" >> beam.Create(rows)
            _ = captions | name >> WriteShards(f"file://{tmp_path}/out", f"file://{tmp_path}/url", SMALL)
    found = [pa.ipc.open_file(path).read_all() for path in (tmp_path / "out").glob("*.arrow")]
    assert len({image.startswith("other") for table in found for image in table["image_id"].to_pylist()}) <= 1
    with pytest.raises(Exception, match="is not of these shards|holds shards of other captions or parameters"):
        run_on(ROWS[:20], tmp_path)


def test_two_that_begin_at_once(captions_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find an empty folder, and the second claims it first: before a shard is there, one sees the other."""
    transform = write(captions_dir, tmp_path)
    one = transform.fit.run(NOTHING)
    other = replace(one, facts={**one.facts, "inputs": {"captions": "others"}})
    put = Remote.put

    def faster(remote: Remote, folder: Path, names: list[str]) -> None:
        monkeypatch.setattr(Remote, "put", put)
        transform.target.claimed(other)
        put(remote, folder, names)

    monkeypatch.setattr(Remote, "put", faster)
    with pytest.raises(InputError, match=r"holds \.capgrade-[0-9a-f]{32}, which is not of these shards"):
        transform.target.claimed(one)


def test_no_captions(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="captions of the pipeline: no captions: empty"):
        run_on([], tmp_path)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("letter.txt", "holds letter.txt, which is not of these shards"),
        ("shard-00000-of-00010.arrow", r"holds shard-00000-of-00010\.arrow, which is not of these shards"),
        ("manifest.json", "holds shards of other captions or parameters"),
    ],
)
def test_what_is_not_of_these_shards_stays(name: str, says: str, captions_dir: Path, tmp_path: Path) -> None:
    """Shards without a claim may be anybody's, though they have the names of these."""
    transform, content = write(captions_dir, tmp_path), (captions_dir / "manifest.json").read_bytes()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_bytes(content)
    with pytest.raises(InputError, match=f"/out: {says}.* -> give the URL of an empty folder"):
        transform.target.claimed(transform.fit.run(NOTHING))
    assert files(tmp_path / "out") == {name: content}


def test_shards_of_another_version_stay(captions_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transform = write(captions_dir, tmp_path)
    one = transform.fit.run(NOTHING)
    entry = {"rows": 2, "bytes": 9, "sha256": "0" * 64}
    (tmp_path / "out").mkdir()
    write_json(
        tmp_path / "out" / "manifest.json", manifest_of("shards", {"shard-00000-of-00010.arrow": entry}, **one.facts)
    )
    transform.target.claimed(one)
    monkeypatch.setattr("capgrade.pipelines.beam_shards.package_version", lambda: "0.0.1")
    with pytest.raises(InputError, match="other captions or parameters, or of another version -> give the URL"):
        transform.target.claimed(one)


def test_what_cannot_be_is_said_when_it_is_built(captions_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no format 'csv' -> one of arrow, parquet"):
        write(captions_dir, tmp_path, format="csv")
    for given, captions in ((beam.Pipeline() | beam.Create([]), "file:///c"), (beam.Pipeline(), None)):
        with pytest.raises(InputError, match="captions from the pipeline and from a URL, or from neither"):
            _ = given | WriteShards("file:///nowhere", "file:///nowhere", SMALL, captions=captions)
    pipeline = beam.Pipeline()
    _ = pipeline | write(captions_dir, tmp_path)
    assert len(pipeline.to_runner_api().SerializeToString()) < 100_000
    assert not (tmp_path / "out").exists() and not (tmp_path / "url").exists()


def test_a_command_takes_captions_from_a_url(
    captions_dir: Path, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("CAPGRADE_CACHE", str(tmp_path / "cache"))
    there = shutil.copytree(captions_dir, tmp_path / "bucket" / "captions")
    options = ["--measures", "rouge_l", "--out", str(tmp_path / "out"), "--json"]
    assert call("relevance", "--captions", f"file://{there}", *options) == 0
    copied = next((tmp_path / "cache").rglob("captions.arrow"))
    before = copied.stat().st_mtime_ns
    assert call("relevance", "--captions", f"file://{there}", *options) == 0
    assert copied.stat().st_mtime_ns == before
    copied.write_bytes(copied.read_bytes()[:-9])
    assert call("relevance", "--captions", f"file://{there}", *options) == 0
    assert copied.read_bytes() == (captions_dir / "captions.arrow").read_bytes()
    capsys.readouterr()
    (there / "captions.arrow").write_bytes(b"other")
    copied.unlink()
    monkeypatch.setattr("capgrade.pipelines.execution.remote.PAUSES", ())
    assert call("relevance", "--captions", f"file://{there}", *options) == 2
    assert "captions.arrow: not as it was written -> copy the whole folder there again" in capsys.readouterr().err
    assert call("relevance", "--captions", f"file://{tmp_path}/none", *options) == 2
    assert "none: not a finished folder of a stage" in capsys.readouterr().err

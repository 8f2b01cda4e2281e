"""Parts exchanged through an S3 server that fails: the same bytes, or one error and nothing half
published."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apache_beam as beam
import fsspec
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from capgrade.pipelines.beam_shards import WriteShards
from capgrade.pipelines.execution.folder import without_secrets
from capgrade.pipelines.execution.runners import arguments
from capgrade.schemas.errors import InputError
from tests.pipelines.execution.conftest import PARAMS, made
from tests.pipelines.execution.faulty import KINDS, Faults, faulty

THERE = "s3://bucket/runs"
SECRET = "not-for-logs"


@pytest.fixture(scope="module")
def store() -> Iterator[int]:
    """The port of moto's S3."""
    pytest.importorskip("s3fs", reason="s3fs is not installed: pip install 'capgrade[dev]'")
    moto = pytest.importorskip(
        "moto.server", reason="moto is not installed: pip install 'capgrade[dev]'"
    )
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


@contextmanager
def through(port: int) -> Iterator[Any]:
    """s3:// goes to this port meanwhile, without waiting long; yields its files."""
    config = {"read_timeout": 0.3, "connect_timeout": 2, "retries": {"max_attempts": 3}}
    with pytest.MonkeyPatch.context() as patch:
        options = {
            "endpoint_url": f"http://127.0.0.1:{port}",
            "key": "me",
            "secret": SECRET,
            "config_kwargs": config,
        }
        patch.setitem(fsspec.config.conf, "s3", options)
        # seconds, not up to 4
        patch.setattr("botocore.retryhandler.delay_exponential", lambda *_, **__: 0.01)
        yield fsspec.filesystem("s3")


@pytest.fixture
def bucket(store: int) -> Iterator[Any]:
    """Empty, without faults."""
    with through(store) as files:
        files.mkdir("bucket")
        yield files
        files.invalidate_cache()
        files.rm("bucket", recursive=True)


def test_faults_that_pass(
    captions_dir: Path, expected: dict[str, bytes], tmp_path: Path, store: int, bucket: Any
) -> None:
    faults = Faults(seed=5, share=0.3)
    with faulty(store, faults) as port, through(port):
        assert made(captions_dir, tmp_path / "out", exchange=THERE) == expected
    assert all(faults.counted[kind] for kind in KINDS), faults.counted
    bucket.invalidate_cache()
    assert bucket.find("bucket") == [] and not list((tmp_path / "machine").iterdir())


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("403", "Access Denied"),
        ("503", "reduce your|Unavailable"),
        ("stalled", "[Tt]imeout"),
        ("lost", "onnection"),
    ],
)
def test_faults_that_do_not_pass(
    fault: str,
    says: str,
    captions_dir: Path,
    expected: dict[str, bytes],
    tmp_path: Path,
    store: int,
    bucket: Any,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From some request on, drawn by a seed. When the store is well again the run goes on."""
    faults = Faults(always=fault, after={"403": 7, "503": 20, "stalled": 30, "lost": 26}[fault])
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 2)  # times botocore's, of 5
    with (
        faulty(store, faults) as port,
        through(port),
        pytest.raises(InputError, match=says) as told,
    ):
        made(captions_dir, tmp_path / "out", exchange=THERE)
    line = str(told.value)
    assert line.startswith("s3://bucket/runs/") and " -> check the URL" in line and "\n" not in line
    assert SECRET not in line + "".join(capfd.readouterr())
    assert not (tmp_path / "out").exists()
    read_parts(bucket)
    assert made(captions_dir, tmp_path / "out", exchange=THERE) == expected
    bucket.invalidate_cache()
    assert bucket.find("bucket") == []


def test_a_pipeline_reads_and_writes_there(
    captions_dir: Path, tmp_path: Path, store: int, bucket: Any
) -> None:
    """Captions, what workers share and files, by a server that fails; the same bytes as in a folder
    here."""
    for file in captions_dir.iterdir():
        bucket.put_file(str(file), f"bucket/captions/{file.name}")

    def written(out: str, captions: str) -> None:
        with beam.Pipeline(options=PipelineOptions(arguments([]))) as pipeline:
            _ = pipeline | WriteShards(captions, f"{out}/out", f"{out}/url", PARAMS)

    written(f"file://{tmp_path}", str(captions_dir))
    faults = Faults(seed=5, share=0.2)
    with faulty(store, faults) as port, through(port):
        written("s3://bucket", "s3://bucket/captions")
    assert all(faults.counted[kind] for kind in KINDS), faults.counted
    bucket.invalidate_cache()
    found = {path.rsplit("/", 1)[1]: bucket.cat_file(path) for path in bucket.find("bucket/out")}
    assert found == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}


def read_parts(files: Any) -> None:
    """Each part that is there is a whole Arrow file."""
    files.invalidate_cache()
    for path in files.find("bucket"):
        if "/parts/" in path:
            pa.ipc.open_file(files.cat_file(path)).read_all()


def test_a_bucket_that_is_not_there_is_not_made(
    captions_dir: Path, tmp_path: Path, store: int
) -> None:
    with through(store) as files:
        with pytest.raises(
            InputError, match="s3://no-such-bucket/runs/.*bucket does not exist.* -> check the URL"
        ):
            made(captions_dir, tmp_path / "out", exchange="s3://no-such-bucket/runs")
        assert not files.exists("no-such-bucket")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sftp://me:pass@host/a", "sftp://***@host/a"),
        (
            "https://host/a?x=1&sig=abc%2F&X-Amz-Signature=def",
            "https://host/a?x=1&sig=***&X-Amz-Signature=***",
        ),
        ("abfs://container@account/a", "abfs://container@account/a"),
    ],
)
def test_secrets_of_urls_are_not_shown(url: str, shown: str) -> None:
    assert without_secrets(f"cannot read {url} now") == f"cannot read {shown} now"

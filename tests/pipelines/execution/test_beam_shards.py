"""The transform in anybody's pipeline: which captions it takes, and files with the bytes of
`capgrade shards`, whatever runner writes them and whoever is killed."""

import json
import os
import shutil
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import ANY, patch

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.typehints.decorators import TypeCheckError

from capgrade.measures.params import MeasuresParams
from capgrade.pipelines import beam_shards
from capgrade.pipelines.beam_shards import (
    CAPTIONS,
    WriteBlock,
    WriteShards,
    key_by_share,
    tokenize_share,
)
from capgrade.pipelines.captions import write_records
from capgrade.pipelines.execution.runners import arguments
from capgrade.pipelines.shards import shards
from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.pipelines.stages.shards import SHARDS, ShardsParams, WindowsParams
from capgrade.schemas.captions import Caption, Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digest, made_again
from capgrade.schemas.shards import read_shards
from tests.conftest import call, contents, random_sets, refusal
from tests.pipelines.execution.conftest import PARAMS as ROUGE
from tests.pipelines.execution.test_runners import PORTABLE, PROCESSES

PARAMS = ShardsParams(
    measures=("cider", "rouge_l"),
    top=4,
    uniform=3,
    windows=WindowsParams(per_window=1),
    block_images=7,
)
SMALL = ROUGE.model_copy(update={"block_images": 2})
NOTHING = (0, {})  # but the folder at the URL to fit on
ROWS = [
    {"image_id": f"i{i:03d}", "caption_id": f"i{i:03d}#{k}", "caption": text}
    for i, one in enumerate(random_sets(30, seed=4))
    for k, text in enumerate(one)
]


def by_command(captions_dir: Path, params: ShardsParams) -> dict[str, bytes]:
    """Of `capgrade shards`, with a shard for each block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "capgrade.schemas.shards.by_size", lambda parts, *_: [[part] for part in parts]
        )
        shards(captions_dir, captions_dir.parent / "here", params, MeasuresParams())
    return contents(captions_dir.parent / "here")


@pytest.fixture(scope="module")
def of_rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder: Path = tmp_path_factory.mktemp("expected")
    records = [
        Caption(r["image_id"], r["caption_id"], "all", r["caption"], "here", k)
        for k, r in enumerate(ROWS)
    ]
    write_records(folder / "captions", records, CaptionsParams(source="jsonl", input="-"))
    return by_command(folder / "captions", PARAMS)


@pytest.fixture(scope="module")
def expected(captions_dir: Path) -> dict[str, bytes]:
    return by_command(captions_dir, SMALL)


def write(
    folder: Path = Path("/nowhere"), params: ShardsParams = PARAMS, **options: Any
) -> WriteShards:
    return WriteShards(f"file://{folder}/out", f"file://{folder}/url", params, **options)


def written(captions_dir: Path, folder: Path, **options: str) -> WriteShards:
    return write(folder, SMALL, captions=f"file://{captions_dir}", **options)


def run(transform: beam.PTransform, *options: str, of: list[dict[str, str]] | None = None) -> None:
    with beam.Pipeline(options=PipelineOptions(arguments(options))) as pipeline:
        _ = (pipeline if of is None else pipeline | beam.Create(of)) | transform


def gathered(rows: list[dict[str, str]]) -> tuple[int, dict[str, list]]:
    """What the runner hands to the worker that fits."""
    shares = dict[int, list]()
    for share, fields in map(key_by_share, rows):
        shares.setdefault(share, []).append(fields)
    return 0, {CAPTIONS: [tokenize_share(one, "ptb_py") for one in shares.items()]}


@pytest.mark.parametrize("runner", ["direct", "triggers", "processes", "portable", "dask"])
def test_shards_are_those_of_the_command_whatever_windows_and_runner(
    runner: str, of_rows: dict[str, bytes], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    options: tuple[str, ...] = {"processes": PROCESSES, "portable": PORTABLE}.get(runner, ())
    if runner == "dask":
        options = (
            "--runner=DaskRunner",
            f"--dask_client_address={request.getfixturevalue('cluster')}",
        )
        options = (*options, "--dask_npartitions=2")
    with beam.Pipeline(options=PipelineOptions(arguments(options))) as pipeline:
        given = pipeline | beam.Create(
            [ROWS[k] for k in np.random.default_rng(1).permutation(len(ROWS))]
        )
        if runner in ("direct", "triggers"):
            trigger = Repeatedly(AfterCount(3)) if runner == "triggers" else None
            mode = AccumulationMode.ACCUMULATING if trigger else None
            timed = given | beam.Map(lambda row: TimestampedValue(row, int(row["image_id"][1:])))
            given = timed | beam.WindowInto(
                FixedWindows(4), trigger=trigger, accumulation_mode=mode
            )
        _ = given | write(tmp_path)
    assert contents(tmp_path / "out") == of_rows


def test_captions_that_no_stage_takes(tmp_path: Path) -> None:
    fit = write(tmp_path).fit
    with pytest.raises(InputError, match="tokenizer"):
        write(tokenizer="mecab")
    with pytest.raises(InputError, match="duplicate caption id 'i000#0'"):
        fit.run(gathered([ROWS[0], ROWS[0]]))
    with pytest.raises(
        InputError, match=r"caption 'i000#9' has no words \('...'\); in all 1 captions"
    ):
        fit.run(gathered([*ROWS, {**ROWS[0], "caption_id": "i000#9", "caption": "..."}]))
    with pytest.raises(Exception, match="captions of the pipeline: no captions: empty"):
        run(write(tmp_path), of=[])
    assert not (tmp_path / "url").exists() and not (tmp_path / "out").exists()


class Named(NamedTuple):
    image_id: str
    caption_id: int
    caption: str


@pytest.mark.parametrize("kind", [dict, beam.Row, Named])
def test_elements_of_other_types(kind: Any, tmp_path: Path) -> None:
    """Integer ids are texts in decimal, so 10 stands before 9."""
    given = [
        {"image_id": f"i{k % 4}", "caption_id": k, "caption": one[0]}
        for k, one in enumerate(random_sets(12))
    ]

    with beam.Pipeline() as pipeline:
        _ = pipeline | beam.Create([kind(**one) for one in given]) | write(tmp_path)
    names = sorted((one["image_id"], str(one["caption_id"])) for one in given)
    assert [
        (row["image_id"], [names[c][1] for c in row["captions"] if names[c][0] == row["image_id"]])
        for batch in read_shards(tmp_path / "out").batches()
        for row in batch.to_pylist()
    ] == [
        ("i0", ["0", "4", "8"]),
        ("i1", ["1", "5", "9"]),
        ("i2", ["10", "2", "6"]),
        ("i3", ["11", "3", "7"]),
    ]


@pytest.mark.parametrize(
    ("element", "says"),
    [
        (
            {"image_id": "a", "caption": "a dog"},
            r"no 'caption_id' \(there is image_id, caption\) -> give each element",
        ),
        (
            {"image_id": None, "caption_id": "b", "caption": "a dog"},
            "'image_id' is None, not an id",
        ),
        (
            {"image_id": "a", "caption_id": 1.5, "caption": "a dog"},
            "'caption_id' is 1.5, not an id",
        ),
        ({"image_id": "a", "caption_id": "", "caption": "a dog"}, "'caption_id' is '', not an id"),
        ({"image_id": "a", "caption_id": "b", "caption": 7}, "'caption' is 7, not a text"),
        (
            {"image_id": "a", "caption_id": "b", "caption": "\ud83d"},
            "'caption' is .*, with half of a surrogate pair",
        ),
        (beam.Row(image_id="a", caption_id="b"), "no 'caption'"),
        (("a", "b", "a dog"), "no caption -> give each element image_id, caption_id and caption"),
    ],
)
def test_elements_that_are_no_captions(element: Any, says: str) -> None:
    with pytest.raises(InputError, match=f"captions of the pipeline row .*a.*: {says}"):
        key_by_share(element)


def test_processes_of_the_direct_runner_divide_the_cores() -> None:
    with patch.object(beam_shards, "WriteBlock", wraps=WriteBlock) as made:
        _ = beam.Pipeline(options=PipelineOptions(PROCESSES)) | beam.Create(ROWS[:2]) | write()
    made.assert_called_once_with(ANY, 2)


def test_the_fit_makes_no_python_objects_of_all_captions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    element = gathered(ROWS)
    monkeypatch.setattr(beam_shards, "Caption", None)  # none can be made
    for name in ("caption_ids", "texts"):
        monkeypatch.setattr(Captions, name, property())  # nor read
    run = write(tmp_path).fit.run(element)
    fitted = Path(str(run.job.url).removeprefix("file://")) / "fit"
    assert sorted(path.name for path in fitted.iterdir()) == ["cider", "rouge_l"]


def test_a_folder_of_each_format_at_the_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = write(tmp_path).fit
    urls = [fit.run(gathered(ROWS)).job.url for _ in range(2)]
    monkeypatch.setattr("capgrade.pipelines.shards.SHARDS", replace(SHARDS, format=99))
    urls.append(fit.run(gathered(ROWS)).job.url)
    assert urls[0] == urls[1] != urls[2] and len(list((tmp_path / "url").iterdir())) == 2


def test_a_dask_worker_is_killed(
    captions_dir: Path, expected: dict[str, bytes], tmp_path: Path, cluster: str
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
    dask = ("--runner=DaskRunner", f"--dask_client_address={cluster}", "--dask_npartitions=4")
    run(written(captions_dir, tmp_path), *dask)
    killer.join()
    assert at == [False]
    assert contents(tmp_path / "out") == expected


def test_parquet_holds_the_same(
    captions_dir: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    run(written(captions_dir, tmp_path, format="parquet"))
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["kind"] == "shards_parquet" and len(manifest["files"]) == 10
    assert "`WriteShards` again" in made_again(manifest["kind"], tmp_path)  # it is no command
    for name, entry in manifest["files"].items():
        assert digest(tmp_path / "out" / name) == entry["sha256"]
        with pa.ipc.open_file(expected[name.replace("parquet", "arrow")]) as arrow:
            table, same = pq.read_table(tmp_path / "out" / name), arrow.read_all()
        assert table.equals(same) and table.schema.metadata == same.schema.metadata


def test_elements_that_come_twice(captions_dir: Path, tmp_path: Path) -> None:
    """Whole runs of which all comes again: `killed.by_beam`."""
    transform = written(captions_dir, tmp_path)
    ((_, one),) = WriteBlock(transform.target).process((transform.fit.run(NOTHING), 0))
    assert transform.target.finish([one, one])["pairs"] == one.pairs


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("letter.txt", "holds letter.txt, which is not of these shards"),
        (
            "shard-00000-of-00010.arrow",
            r"holds shard-00000-of-00010\.arrow, which is not of these shards",
        ),
        ("manifest.json", "holds shards of other captions or parameters"),
    ],
)
def test_what_is_not_of_these_shards_stays(
    name: str, says: str, captions_dir: Path, tmp_path: Path
) -> None:
    """Shards without a claim may be anybody's, though they have the names of these."""
    content = (captions_dir / "manifest.json").read_bytes()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_bytes(content)
    with pytest.raises(Exception, match=f"/out: {says}.* -> give the URL of an empty folder"):
        run(written(captions_dir, tmp_path))
    assert contents(tmp_path / "out") == {name: content}


def test_unfinished_shards_of_other_captions_stay(captions_dir: Path, tmp_path: Path) -> None:
    transform = written(captions_dir, tmp_path)
    one = transform.target.begin(transform.fit.run(NOTHING))
    transform.target.begin(one)  # they are its own
    before = contents(tmp_path / "out")
    for found in (json.dumps({**one.facts, "inputs": {"captions": "others"}}), "[1]", "mine"):
        (tmp_path / "out" / "run.json").write_text(found)
        with pytest.raises(
            InputError, match="holds shards of other captions or parameters -> give the URL"
        ):
            transform.target.begin(one)
    assert list(before) == ["run.json"]


def test_what_cannot_be_is_said_when_it_is_built(captions_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no format 'csv' -> choose from: arrow, parquet"):
        written(captions_dir, tmp_path, format="csv")
    for given, captions in (
        (beam.Pipeline() | beam.Create([]), "file:///c"),
        (beam.Pipeline(), None),
    ):
        with pytest.raises(
            InputError, match="captions from the pipeline and from a URL, or from neither"
        ):
            _ = given | WriteShards("file:///nowhere", "file:///nowhere", SMALL, captions=captions)
    assert (beam.Pipeline() | beam.Create(ROWS[:2]) | write()).element_type == beam.typehints.Dict[
        str, Any
    ]
    with pytest.raises(TypeCheckError, match="Input type hint violation"):
        _ = beam.Pipeline() | beam.Create(["a dog"]) | write()
    with pytest.raises(InputError, match="without an end -> give a bounded PCollection"):
        _ = beam.Pipeline() | Stream() | write()
    pipeline = beam.Pipeline()
    _ = pipeline | written(captions_dir, tmp_path)
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

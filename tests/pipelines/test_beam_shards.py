"""The reusable transform: rows of `capgrade shards`, in anybody's pipeline."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.test_pipeline import TestPipeline as InMemory
from apache_beam.testing.util import assert_that

from capgrade.pipelines.beam_shards import Fit, SampledShards, ScoreImages
from capgrade.pipelines.captions import write_records
from capgrade.pipelines.execution.parts import Part
from capgrade.pipelines.shards import join_shards, shards_part
from capgrade.schemas.captions import Caption, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CaptionsParams, MeasuresParams, ShardsParams, WindowsParams
from capgrade.schemas.shards import read_shards
from tests.conftest import random_sets

PARAMS = ShardsParams(
    measures=("cider", "rouge_l"), top=4, uniform=3, windows=WindowsParams(per_window=1), block_images=7
)
READ = CaptionsParams(source="jsonl", input="-")
ROWS = [
    {"image_id": f"i{i:03d}", "caption_id": f"i{i:03d}#{k}", "caption": text}
    for i, one in enumerate(random_sets(30, seed=4))
    for k, text in enumerate(one)
]


@pytest.fixture(autouse=True)
def _machine(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary folder of its own, where copies of what is at the URL are kept."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("machine")))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    folder: Path = tmp_path_factory.mktemp("expected")
    records = [Caption(r["image_id"], r["caption_id"], "all", r["caption"], "here", k) for k, r in enumerate(ROWS)]
    write_records(folder / "captions", records, READ)
    shards_part(folder / "captions", folder / "out", PARAMS, MeasuresParams(), Part(1, 1))
    join_shards(folder / "captions", folder / "out", PARAMS, MeasuresParams())
    ids = read_captions(folder / "captions").caption_ids
    rows = [row for batch in read_shards(folder / "out").batches() for row in batch.to_pylist()]
    return [{**row, "caption_ids": [ids[c] for c in row["captions"]]} for row in rows]


def shuffled() -> list[dict[str, str]]:
    return [ROWS[k] for k in np.random.default_rng(1).permutation(len(ROWS))]


def test_rows_are_those_of_the_command(expected: list[dict], tmp_path: Path) -> None:
    def same(found: list[dict]) -> None:
        assert sorted(found, key=lambda row: row["image"]) == expected

    with InMemory() as pipeline:
        made = pipeline | beam.Create(shuffled()) | SampledShards(f"file://{tmp_path}/url", PARAMS)
        assert_that(made, same)


def test_elements_that_come_twice(expected: list[dict], tmp_path: Path) -> None:
    fit, score = Fit(f"file://{tmp_path}/url", PARAMS, MeasuresParams(), READ, None), ScoreImages()
    score.setup()
    (first,), (run,) = (list(fit.process((0, rows))) for rows in (ROWS, shuffled()))
    assert first == run
    found = [list(score.process((run, block))) for block in (0, 4, 2, 1, 3, 2, 0)]
    assert found[0] == found[-1] and found[2] == found[-2]
    assert sum((found[k] for k in (0, 3, 2, 4, 1)), []) == expected


def test_nothing_happens_before_it_runs(tmp_path: Path) -> None:
    pipeline = beam.Pipeline()
    _ = pipeline | beam.Create(ROWS[:2]) | SampledShards(f"file://{tmp_path}/url")
    assert len(pipeline.to_runner_api().SerializeToString()) < 100_000
    assert not list(tmp_path.iterdir())


def test_captions_that_no_stage_takes(tmp_path: Path) -> None:
    fit = Fit(f"file://{tmp_path}/url", PARAMS, MeasuresParams(), READ, None)
    with pytest.raises(InputError, match="tokenizer"):
        SampledShards("file:///nowhere", PARAMS, tokenizer="mecab")
    with pytest.raises(InputError, match="duplicate caption id 'i000#0'"):
        list(fit.process((0, [ROWS[0], ROWS[0]])))
    assert not list(tmp_path.iterdir())

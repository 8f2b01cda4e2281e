"""The transform in anybody's pipeline: which captions it takes, and the shards of `capgrade shards` of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pipeline import PipelineVisitor
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.typehints.decorators import TypeCheckError

from capgrade.pipelines import beam_shards
from capgrade.pipelines.beam_shards import (
    CAPTIONS,
    FREQUENCIES,
    RUN,
    FitCaptions,
    WriteBlock,
    WriteShards,
    added,
    counted,
    keyed,
    tokenized,
)
from capgrade.pipelines.captions import write_records
from capgrade.pipelines.shards import ShardsPart, join_shards, shards
from capgrade.schemas.captions import Caption, Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CaptionsParams, MeasuresParams, ShardsParams, WindowsParams
from capgrade.schemas.shards import read_shards
from tests.conftest import random_sets
from tests.pipelines.execution.test_runners import PROCESSES

PARAMS = ShardsParams(
    measures=("cider", "rouge_l"), top=4, uniform=3, windows=WindowsParams(per_window=1), block_images=7
)
READ = CaptionsParams(source="jsonl", input="-")
ROWS = [
    {"image_id": f"i{i:03d}", "caption_id": f"i{i:03d}#{k}", "caption": text}
    for i, one in enumerate(random_sets(30, seed=4))
    for k, text in enumerate(one)
]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    folder: Path = tmp_path_factory.mktemp("expected")
    records = [Caption(r["image_id"], r["caption_id"], "all", r["caption"], "here", k) for k, r in enumerate(ROWS)]
    write_records(folder / "captions", records, READ)
    shards(folder / "captions", folder / "out", PARAMS, MeasuresParams(), part=ShardsPart(1, 1))
    join_shards(folder / "captions", folder / "out", PARAMS, MeasuresParams())
    return rows(folder / "out")


def rows(folder: Path) -> list[dict]:
    return [row for batch in read_shards(folder).batches() for row in batch.to_pylist()]


def write(folder: Path = Path("/nowhere"), params: ShardsParams = PARAMS, **options: Any) -> WriteShards:
    return WriteShards(f"file://{folder}/out", f"file://{folder}/url", params, **options)


def shuffled() -> list[dict[str, str]]:
    return [ROWS[k] for k in np.random.default_rng(1).permutation(len(ROWS))]


def gathered(rows: list[dict[str, str]]) -> tuple[int, dict[str, list]]:
    """What the runner hands to the worker that fits."""
    shares, frequencies = dict[int, list](), dict[int, list]()
    for share, fields in map(keyed, rows):
        shares.setdefault(share, []).append(fields)
    tables = [tokenized(one, "ptb_py") for one in shares.items()]
    for share, found in (one for table in tables for one in counted(table, "ptb_py")):
        frequencies.setdefault(share, []).append(found)
    return 0, {RUN: ["first"], CAPTIONS: tables, FREQUENCIES: [added(one) for one in frequencies.values()]}


@pytest.mark.parametrize("trigger", [None, Repeatedly(AfterCount(3))], ids=["windows", "triggers"])
def test_shards_are_those_of_the_command_whatever_the_windows(
    trigger: Any, expected: list[dict], tmp_path: Path
) -> None:
    mode = AccumulationMode.ACCUMULATING if trigger else None
    with beam.Pipeline() as pipeline:
        _ = (
            pipeline
            | beam.Create(shuffled())
            | beam.Map(lambda row: TimestampedValue(row, int(row["image_id"][1:])))
            | beam.WindowInto(FixedWindows(4), trigger=trigger, accumulation_mode=mode)
            | write(tmp_path)
        )
    assert rows(tmp_path / "out") == expected


def test_captions_that_no_stage_takes(tmp_path: Path) -> None:
    fit = FitCaptions(f"file://{tmp_path}/url", PARAMS, MeasuresParams(), READ, None)
    with pytest.raises(InputError, match="tokenizer"):
        write(tokenizer="mecab")
    with pytest.raises(InputError, match="duplicate caption id 'i000#0'"):
        fit.run(gathered([ROWS[0], ROWS[0]]))
    with pytest.raises(InputError, match=r"caption 'i000#9' has no words \('...'\), 1 such in all"):
        fit.run(gathered([*ROWS, {**ROWS[0], "caption_id": "i000#9", "caption": "..."}]))
    assert not (tmp_path / "url").exists()


def test_a_source_that_is_none() -> None:
    assert (beam.Pipeline() | beam.Create(ROWS[:2]) | write()).element_type == beam.typehints.Dict[str, Any]
    with pytest.raises(TypeCheckError, match="Input type hint violation"):
        _ = beam.Pipeline() | beam.Create(["a dog"]) | write()
    with pytest.raises(InputError, match="without an end -> give a bounded PCollection"):
        _ = beam.Pipeline() | Stream() | write()


class Named(NamedTuple):
    image_id: str
    caption_id: int
    caption: str


@pytest.mark.parametrize("kind", [dict, beam.Row, Named])
def test_elements_of_other_types(kind: Any, tmp_path: Path) -> None:
    """Integer ids are texts in decimal, so 10 stands before 9."""
    given = [{"image_id": f"i{k % 4}", "caption_id": k, "caption": one[0]} for k, one in enumerate(random_sets(12))]

    with beam.Pipeline() as pipeline:
        _ = pipeline | beam.Create([kind(**one) for one in given]) | write(tmp_path)
    names = sorted((one["image_id"], str(one["caption_id"])) for one in given)
    assert [
        (row["image_id"], [names[c][1] for c in row["captions"] if names[c][0] == row["image_id"]])
        for row in rows(tmp_path / "out")
    ] == [("i0", ["0", "4", "8"]), ("i1", ["1", "5", "9"]), ("i2", ["10", "2", "6"]), ("i3", ["11", "3", "7"])]


@pytest.mark.parametrize(
    ("element", "says"),
    [
        ({"image_id": "a", "caption": "a dog"}, r"no 'caption_id' \(there is image_id, caption\) -> give each element"),
        ({"image_id": None, "caption_id": "b", "caption": "a dog"}, "'image_id' is None, not an id"),
        ({"image_id": "a", "caption_id": 1.5, "caption": "a dog"}, "'caption_id' is 1.5, not an id"),
        ({"image_id": "a", "caption_id": "", "caption": "a dog"}, "'caption_id' is '', not an id"),
        ({"image_id": "a", "caption_id": "b", "caption": 7}, "'caption' is 7, not a text"),
        ({"image_id": "a", "caption_id": "b", "caption": "\ud83d"}, "'caption' is .*, with half of a surrogate pair"),
        (beam.Row(image_id="a", caption_id="b"), "no 'caption'"),
        (("a", "b", "a dog"), "no caption -> give each element image_id, caption_id and caption"),
    ],
)
def test_elements_that_are_no_captions(element: Any, says: str) -> None:
    with pytest.raises(InputError, match=f"captions of the pipeline row .*a.*: {says}"):
        keyed(element)


def transforms(pipeline: beam.Pipeline) -> list[beam.PTransform]:
    """All of them, those within others too."""
    found = []

    class Visitor(PipelineVisitor):
        def enter_composite_transform(self, node: Any) -> None:
            found.append(node.transform)

        def visit_transform(self, node: Any) -> None:
            found.append(node.transform)

    pipeline.visit(Visitor())
    return found


def test_processes_of_the_direct_runner_divide_the_cores() -> None:
    pipeline = beam.Pipeline(options=PipelineOptions(PROCESSES))
    _ = pipeline | beam.Create(ROWS[:2]) | write()
    fns = [getattr(one, "fn", None) for one in transforms(pipeline)]
    assert [fn.workers for fn in fns if isinstance(fn, WriteBlock)] == [2]


@pytest.mark.parametrize(
    ("measures", "how"),
    [
        (("cider",), {}),
        (("half",), {"mixtures": {"half": {"cider_plain": 1, "rouge_l": 1}}}),
        (("rouge_l",), None),
        (("cider",), {"cider": {"document_frequency": "a-file"}}),
    ],
)
def test_the_runner_counts_what_measures_take_from_the_captions(measures: tuple[str, ...], how: dict | None) -> None:
    params, pipeline = PARAMS.model_copy(update={"measures": measures}), beam.Pipeline()
    _ = pipeline | beam.Create(ROWS[:2]) | write(params=params, measures=MeasuresParams(**(how or {})))
    combined = [one for one in transforms(pipeline) if isinstance(one, beam.CombinePerKey)]
    assert bool(combined) == (how is not None and "cider" not in how)


def test_document_frequencies_of_shares_are_those_of_all() -> None:
    """In how many images' captions each n-gram is, in plain words: `compute_doc_freq` of pycocoevalcap."""
    images: dict[str, set[str]] = {}
    for row in ROWS:
        words = row["caption"].split()
        grams = (" ".join(words[at : at + n]) for n in (1, 2, 3, 4) for at in range(len(words) - n + 1))
        images.setdefault(row["image_id"], set()).update(grams)
    tables = [table.to_pydict() for table in gathered(ROWS)[1][FREQUENCIES]]
    found = {ngram: n for table in tables for ngram, n in zip(table["ngram"], table["images"], strict=True)}
    assert found == Counter(gram for grams in images.values() for gram in grams)
    assert sum(len(table["ngram"]) for table in tables) == len(found)


def test_the_fit_takes_frequencies_from_the_runner_and_captions_as_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    element = gathered(ROWS)
    everywhere = [
        table.set_column(1, "images", pa.array([30] * len(table), pa.int32())) for table in element[1][FREQUENCIES]
    ]

    def refused(*_: object) -> None:
        raise AssertionError("all captions as Python objects")

    monkeypatch.setattr(beam_shards, "Caption", refused)
    for name in ("caption_ids", "texts"):
        monkeypatch.setattr(Captions, name, property(refused))
    fit = FitCaptions(f"file://{tmp_path}/url", PARAMS, MeasuresParams(), READ, None)
    run = fit.run(element)
    other = fit.run((0, {**element[1], RUN: ["other"], FREQUENCIES: everywhere}))
    gains = [
        np.load(Path(str(one.job.url).removeprefix("file://")) / "fit" / "cider" / "gain.npy") for one in (run, other)
    ]
    assert gains[0].any() and not gains[1].any()


def test_a_folder_of_each_run_and_each_code_at_the_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit = FitCaptions(f"file://{tmp_path}/url", PARAMS, MeasuresParams(), READ, None)
    parts = gathered(ROWS)[1]
    for name in ("first", "second"):
        fit.run((0, {**parts, RUN: [name]}))
    monkeypatch.setattr(beam_shards, "code_digest", lambda: "of other code")
    fit.run((0, parts))
    keys, runs = zip(*(path.name.split("-") for path in (tmp_path / "url").iterdir()), strict=True)
    assert len(set(keys)) == 2 and sorted(runs) == ["first", "first", "second"]

"""Corpora beyond 2^31 of something, with the limits made small."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from capgrade.measures import choose
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines import captions as stage
from capgrade.pipelines.captions import write_records
from capgrade.pipelines.shards import shards
from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.pipelines.stages.shards import ShardsParams
from capgrade.schemas.arrow import ArrowFile
from capgrade.schemas.captions import CAPTIONS_FILE, Caption, read_captions
from capgrade.schemas.errors import InputError
from tests.conftest import random_sets

READ = CaptionsParams(source="jsonl", input="-")
PARAMS = ShardsParams(measures=("cider", "rouge_l"), top=3, uniform=4, block_images=6)


def written(folder: Path) -> Path:
    sets = random_sets(20, seed=5, least=4)
    records = [
        Caption(f"i{i}", f"{i}#{k}", "all", text, "here", k)
        for i, one in enumerate(sets)
        for k, text in enumerate(one)
    ]
    write_records(folder, records, READ)
    return folder


@pytest.mark.parametrize(("limit", "value"), [("BATCH", 7), ("BATCH_BYTES", 90)])
def test_text_in_many_batches(
    limit: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No array of the table holds all of its text, in the file or when it is read; everything is as
    in one batch."""
    whole = read_captions(written(tmp_path / "whole"))
    monkeypatch.setattr(stage, limit, value)
    file = ArrowFile(written(tmp_path / "many") / CAPTIONS_FILE)
    assert file.num_record_batches > 10
    for k in range(file.num_record_batches):
        batch = file.get_batch(k)
        assert (
            batch.num_rows == 1
            or limit == "BATCH"
            or sum(map(len, batch["caption"].to_pylist())) <= value
        )
    many = read_captions(tmp_path / "many")
    assert (
        many.table.equals(whole.table)
        and many.table["tokens"].num_chunks == file.num_record_batches
    )
    assert many.image_ids == whole.image_ids and np.array_equal(many.owner, whole.owner)
    assert many.tokens()[0].equals(whole.tokens()[0]) and np.array_equal(
        many.tokens()[1], whole.tokens()[1]
    )
    for name, measure in choose(("cider", "rouge_l", "bleu"), MeasuresParams()).items():
        rows = np.arange(whole.n_images)
        one, other = (
            measure.fit(table).score(rows, np.arange(whole.n_captions)) for table in (whole, many)
        )
        assert np.array_equal(one, other), name


def test_a_table_stays_in_the_memory_map(tmp_path: Path) -> None:
    """Reading it allocates nothing for its text."""
    folder, before = written(tmp_path / "c"), pa.total_allocated_bytes()
    captions = read_captions(folder)
    assert captions.n_captions and pa.total_allocated_bytes() - before < 4096


@pytest.mark.parametrize(
    ("limit", "most", "message"),
    [
        (
            "schemas.captions.MOST_ROWS",
            102,
            f"{CAPTIONS_FILE}: 103 captions; their rows are numbers of 32 bits -> at ",
        ),
        (
            "measures.ngrams.MOST_NGRAMS",
            100,
            "more than 100 different n-grams, which are numbers of 32 bits -> divide",
        ),
    ],
)
def test_more_than_numbers_of_32_bits(
    limit: str, most: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would wrap around, and be other rows or n-grams."""
    monkeypatch.setattr(f"capgrade.{limit}", most)
    with pytest.raises(InputError, match=message):
        shards(written(tmp_path / "c"), tmp_path / "out", PARAMS, MeasuresParams())

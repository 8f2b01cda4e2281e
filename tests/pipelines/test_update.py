"""Shards that are updated have the bytes of a run from the start; what might not is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.execution.parts import Part
from capgrade.pipelines.measures.ngrams import document_frequencies
from capgrade.pipelines.shards import join_shards, shards_part
from capgrade.pipelines.update import saved, update_shards
from capgrade.pipelines.verify import verify
from capgrade.schemas.captions import SCHEMA, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams, ShardsParams, WindowsParams
from tests.conftest import call, make_captions, random_sets, write_captions_folder

NAMES = ("cider", "rouge_l", "bleu")
ALL = ShardsParams(
    measures=NAMES, top=4, uniform=3, windows=WindowsParams(per_window=2, width=0.3, stride=0.2, counts=True),
    block_images=7,
)  # fmt: skip
PLANS = {
    "windows": ALL,
    "a share": ALL.model_copy(update={"windows": ALL.windows.model_copy(update={"among": 0.3})}),
    "tops": ALL.model_copy(update={"windows": WindowsParams(per_window=0), "top": 6}),
    "no tops": ALL.model_copy(update={"top": 0}),
}
Row = tuple[str, str, str]  # image, caption id, text


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> MeasuresParams:
    file = tmp_path_factory.mktemp("fixed") / "frequencies.arrow"
    document_frequencies(make_captions(random_sets(40, seed=9))).save(file)
    return MeasuresParams.model_validate({"cider": {"document_frequency": str(file)}})


def captions_folder(folder: Path, rows: Sequence[Row]) -> Path:
    columns = [[row[k] for row in rows] for k in range(3)]
    table = pa.table(
        {
            "image_id": columns[0], "caption_id": columns[1], "split": ["train"] * len(rows), "caption": columns[2],
            "tokens": [text.split() for text in columns[2]], "image_file": pa.nulls(len(rows), pa.string()),
        },
        schema=SCHEMA,
    )  # fmt: skip
    return write_captions_folder(folder, [table])


def rows_of(n_images: int, seed: int) -> list[Row]:
    sets = random_sets(n_images, seed=seed)
    return [(f"i{i}", f"i{i}#{k}", text) for i, one in enumerate(sets) for k, text in enumerate(one)]


def changed(rows: list[Row], seed: int) -> list[Row]:
    """Captions and images that go, captions of old and new images that come, anywhere."""
    random = np.random.default_rng(seed)
    gone_images = set(random.choice([row[0] for row in rows], random.integers(0, 3)))
    few = random.choice([0.0, 0.02, 0.2])
    kept = [row for row in rows if row[0] not in gone_images and random.random() >= few]
    texts = [text for one in random_sets(6, seed=seed + 1) for text in one][: random.integers(0, 12)]
    for k, text in enumerate(texts):
        image = random.choice([f"new{k % 3}", *[row[0] for row in kept[:3]]], p=None)
        kept.insert(int(random.integers(0, len(kept) + 1)), (str(image), f"added{k}", text))
    return kept or rows[:1]


def data(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".arrow"}


def make(captions: Path, out: Path, plan: ShardsParams, measures: MeasuresParams) -> None:
    shards_part(captions, out, plan, measures, Part(1, 1))
    join_shards(captions, out, plan, measures)


def check(folder: Path, before: list[Row], after: list[Row], plan: ShardsParams, measures: MeasuresParams) -> dict:
    """Updated and made from the start; the manifest of the update."""
    old, new = captions_folder(folder / "old", before), captions_folder(folder / "new", after)
    make(old, folder / "before", plan, measures)
    make(new, folder / "anew", plan, measures)
    manifest = update_shards(new, folder / "before", old, folder / "updated", plan, measures)
    assert data(folder / "updated") == data(folder / "anew")
    return manifest


@pytest.mark.parametrize("plan", PLANS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_any_changes(
    tmp_path_factory: pytest.TempPathFactory, fixed: MeasuresParams, plan: str, seed: int
) -> None:
    before = rows_of(12 + seed % 20, seed)
    check(tmp_path_factory.mktemp("update"), before, changed(before, seed), PLANS[plan], fixed)

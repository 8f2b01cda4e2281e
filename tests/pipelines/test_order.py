"""A captions table in another order: the same pairs, reasons, weights and values are kept."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.shards import shards
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.params import MeasuresParams, ShardsParams, WindowsParams
from capgrade.schemas.shards import read_shards
from tests.conftest import caption_table, write_captions_folder

WORDS = ["a", "the", "man", "dog", "cat", "runs", "sits", "red", "on", "grass"]
Pairs = dict[tuple[str, str], tuple[Any, ...]]


def sets_full_of_ties(images: int, seed: int) -> list[list[str]]:
    """Few captions, which many images share: most values come many times."""
    random = np.random.default_rng(seed)
    known = [" ".join(random.choice(WORDS, random.integers(1, 6))) for _ in range(12)]
    return [list(random.choice(known, random.integers(1, 4))) for _ in range(images)]


def kept(folder: Path, captions: Captions, measures: tuple[str, ...]) -> Pairs:
    """By the ids of image and caption: reasons, weight, values."""
    found: Pairs = {}
    for batch in read_shards(folder).batches():
        for row in batch.to_pylist():
            columns = [row[name] for name in ("captions", "reasons", "weight", *measures)]
            for caption, *rest in zip(*columns, strict=True):
                found[row["image_id"], captions.caption_ids[caption]] = tuple(rest)
    return found


def made(folder: Path, table: Any, params: ShardsParams) -> Pairs:
    """What is kept."""
    captions = read_captions(write_captions_folder(folder / "captions", [table]))
    shards(folder / "captions", folder / "out", params, MeasuresParams())
    return kept(folder / "out", captions, params.measures)


@pytest.mark.parametrize("among", ["all", 0.3])
@pytest.mark.parametrize("measures", [("rouge_l",), ("rouge_l", "cider")], ids=str)
@settings(max_examples=5, deadline=None)
@given(st.integers(5, 70), st.sampled_from([1, 3, 20]), st.integers(0, 10**6))
def test_the_order_of_a_table_does_not_show(
    measures: tuple[str, ...], among: Any, images: int, top: int, seed: int
) -> None:
    windows = WindowsParams(per_window=1, among=among)
    params = ShardsParams(measures=measures, top=top, uniform=2, windows=windows, block_images=8)
    table = caption_table(sets_full_of_ties(images, seed))
    shuffled = table.take(np.random.default_rng(seed).permutation(len(table)))
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        assert made(Path(one), table, params) == made(Path(other), shuffled, params)

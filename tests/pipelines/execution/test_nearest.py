"""Shards with windows of a share of the captions: tops as of all pairs, what was drawn as drawn, in any blocks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from capgrade.pipelines.execution.parts import Part
from capgrade.pipelines.shards import join_shards, shards, shards_part
from capgrade.schemas.captions import read_captions
from capgrade.schemas.params import MeasuresParams, ShardsParams, WindowsParams
from capgrade.schemas.shards import read_shards
from tests.conftest import call, caption_table, random_sets, write_captions_folder

ALL = ShardsParams(measures=("cider", "rouge_l"), top=4, uniform=3, windows=WindowsParams(per_window=1), block_images=7)
SOME = ALL.model_copy(update={"windows": WindowsParams(per_window=1, among=0.1)})
LEFT_OUT = MeasuresParams.model_validate({name: {"self_reference": "left_out"} for name in ("cider", "rouge_l")})


@pytest.fixture(scope="module")
def captions_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("nearest") / "captions"
    write_captions_folder(folder, [caption_table(random_sets(60, seed=4, least=2))])
    return folder


def rows(folder: Path) -> list[dict]:
    return [row for batch in read_shards(folder).batches() for row in batch.to_pylist()]


@pytest.mark.parametrize("measures", [MeasuresParams(), LEFT_OUT], ids=["included", "left_out"])
def test_tops_uniform_and_own_are_those_of_all_pairs(
    captions_dir: Path, tmp_path: Path, measures: MeasuresParams
) -> None:
    full = shards(captions_dir, tmp_path / "all", ALL, measures)
    made = shards(captions_dir, tmp_path / "some", SOME, measures)
    n = read_captions(captions_dir).n_captions
    for one, other in zip(rows(tmp_path / "all"), rows(tmp_path / "some"), strict=True):
        for bit in (0, 1, 2, 4):  # own, uniform and both tops
            for name in ("captions", "cider", "rouge_l"):
                values = [
                    [value for value, reasons in zip(row[name], row["reasons"], strict=True) if reasons >> bit & 1]
                    for row in (one, other)
                ]
                np.testing.assert_allclose(values[0], values[1], rtol=1e-6)
    assert full["scored"] == dict.fromkeys(("cider", "rouge_l"), 60 * n)
    assert set(made["scored"]) == {"cider", "rouge_l"}
    assert made["pairs"] < full["pairs"]


def test_without_tops_only_what_was_drawn_is_scored(captions_dir: Path, tmp_path: Path) -> None:
    made = shards(captions_dir, tmp_path / "out", SOME.model_copy(update={"top": 0}), MeasuresParams())
    n = read_captions(captions_dir).n_captions
    assert made["scored"]["cider"] == made["scored"]["rouge_l"] < 60 * n / 4


def test_weights_count_the_captions(captions_dir: Path, tmp_path: Path) -> None:
    """Over all images the sums of weights average to the number of captions."""
    shards(captions_dir, tmp_path / "out", SOME, MeasuresParams())
    sums = np.array([sum(row["weight"]) for row in rows(tmp_path / "out")])
    n = read_captions(captions_dir).n_captions
    assert abs(sums.mean() - n) < 4 * sums.std() / np.sqrt(len(sums))


def test_blocks_and_parts_do_not_show(captions_dir: Path, tmp_path: Path) -> None:
    shards(captions_dir, tmp_path / "out", SOME, MeasuresParams())
    shards(captions_dir, tmp_path / "large", SOME.model_copy(update={"block_images": 64}), MeasuresParams())
    assert rows(tmp_path / "large") == rows(tmp_path / "out")
    for number in (2, 1):
        shards_part(captions_dir, tmp_path / "joined", SOME, MeasuresParams(), Part(number, 2))
    join_shards(captions_dir, tmp_path / "joined", SOME, MeasuresParams())
    for file in (tmp_path / "out").iterdir():
        assert file.read_bytes() == (tmp_path / "joined" / file.name).read_bytes()


def test_by_hand(captions_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    command = ["shards", "--captions", str(captions_dir), "--out", out, "--measures", "meteor,bleu"]
    assert call(*command, "--set", "shards.windows.among=0.05", "--set", "shards.top=2", "--json") == 0
    done = json.loads(capsys.readouterr().out)
    pairs = sum(one["rows"] for one in done["files"].values()) * done["n_captions"]
    # METEOR alone has a search; the captions that windows draw from are scored beside all pairs
    assert done["scored"]["meteor"] < pairs < done["scored"]["bleu"]

"""Pictures and the pointing game of a run, as the command makes them; words on regions by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.captions import captions
from capgrade.pipelines.stages.captions import CaptionsParams, ScenesParams
from capgrade.schemas.arrow import read_arrow
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import Regions, write_regions
from capgrade.trainer.alignment.align import ALIGNMENT_SIDE, Aligned, align, draw_panel
from capgrade.trainer.alignment.pointing_game import (
    Phrase,
    PointingScore,
    WordAlignment,
    align_words,
    play_pointing_game,
    read_phrases,
    score_phrase,
)
from capgrade.trainer.fit.setup import Data
from capgrade.trainer.models.base import Encoded
from capgrade.trainer.models.text_encoder import Pieces
from capgrade.trainer.stages.align import AlignParams
from capgrade.trainer.stages.train import ModelParams, TrainParams
from tests.trainer.fit.runs import train

TINY = {
    "embed_dim": 32,
    "image_layers": 1,
    "joint_layers": 1,
    "feedforward": 32,
    "text_layers": 1,
    "heads": 2,
}
LOSS = ({"name": "triplet", "margin": 0.2},)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Scenes whose regions are the true boxes and one that covers all, with random features."""
    folder: Path = tmp_path_factory.mktemp("scenes")
    captions(
        folder / "captions", CaptionsParams(scenes=ScenesParams(train=12, val=0, test=6, size=64))
    )
    rng, regions = np.random.default_rng(0), []
    for row in read_arrow(folder / "captions" / "scenes.arrow").to_pylist():
        boxes = [[thing[side] for side in ("x0", "y0", "x1", "y1")] for thing in row["objects"]] + [
            [0, 0, 64, 64]
        ]
        features = rng.normal(size=(len(boxes), 16)).astype(np.float32)
        regions.append(Regions(row["image_id"], 64, 64, np.array(boxes, np.float32), features))
    write_regions(folder / "regions", regions, dtype="float32")
    return Data(folder / "captions", folder / "regions")


def trained(data: Data, out: Path, model: str, **options: object) -> Path:
    torch.set_num_threads(1)
    chosen = ModelParams(name=model, options=options)
    train(
        data,
        out,
        TrainParams(model=chosen, loss=LOSS, batch_size=6, epochs=1, validation=None),
        MeasuresParams(),
    )
    return out


def asked(data: Data, **params: Any) -> AlignParams:
    return AlignParams(split="test", images=str(data.captions), **params)


@pytest.fixture(scope="module")
def run(scenes: Data, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(scenes, tmp_path_factory.mktemp("run"), "teran", **TINY)


def test_a_picture_and_the_pointing_game(
    scenes: Data, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = align(run, scenes.captions, scenes.regions, tmp_path / "out", asked(scenes, count=2))
    assert drawn.drawn == 2 and drawn.pointing is not None
    found = drawn.pointing
    assert found == json.loads((tmp_path / "out" / "pointing.json").read_text())
    table = read_captions(scenes.captions, "test")
    said = read_phrases(scenes.captions, table)
    assert list(said) == table.caption_ids
    phrases = [
        (text, one) for text, some in zip(table.texts, said.values(), strict=True) for one in some
    ]
    for text, phrase in phrases:
        assert 0 <= phrase.start < phrase.end <= len(text.split())
        assert phrase.boxes.shape[1] == 4 and (phrase.boxes[:, 2:] > phrase.boxes[:, :2]).all()
    spans = [
        span
        for row in read_arrow(scenes.captions / "meanings.arrow").to_pylist()
        for span in row["spans"]
        if row["caption_id"] in said and span["objects"]
    ]
    assert found["all"]["phrases"] == len(phrases) == len(spans)
    assert found["all"]["phrases"] == sum(
        one["phrases"] for kind, one in found.items() if kind != "all"
    )
    assert 0 < found["all"]["centre_chance"] < 1  # the box that covers all is right or wrong
    assert Image.open(tmp_path / "out" / "alignment.png").width == 2 * (420 + 14) + 14


def test_captions_without_truth_have_a_picture_alone(
    scenes: Data, run: Path, tmp_path: Path
) -> None:
    table = read_captions(scenes.captions, "test")
    rows = [
        f"{table.image_ids[i]}\t{text}" for i, text in zip(table.owner, table.texts, strict=True)
    ]
    (tmp_path / "c.tsv").write_text("image_id\tcaption\n" + "\n".join(rows) + "\n")
    captions(
        tmp_path / "plain", CaptionsParams(source="tsv", input=f"{tmp_path}/c.tsv", split="test")
    )
    out = tmp_path / "out"
    drawn = align(run, tmp_path / "plain", scenes.regions, out, asked(scenes))
    assert drawn == Aligned(6)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "alignment.png",
        "manifest.json",
    }


def test_a_model_without_words_is_refused(scenes: Data, tmp_path: Path) -> None:
    run = trained(scenes, tmp_path / "run", "vse", embed=8, word=8)
    with pytest.raises(
        InputError, match="aligns no words with regions -> give a run of --preset teran"
    ):
        align(run, scenes.captions, scenes.regions, tmp_path / "out", asked(scenes))


def test_a_pipeline_without_a_run_to_draw_says_so(scenes: Data, run: Path, tmp_path: Path) -> None:
    """And one of several runs is named by its preset."""
    said = tmp_path / "out" / "alignment.json"
    none = AlignParams(preset=None)
    drawn = align(tmp_path, scenes.captions, scenes.regions, tmp_path / "out", none)
    assert drawn == Aligned()
    assert json.loads(said.read_text()) == {"run": None}
    named = asked(scenes, preset=run.name, count=1)
    drawn = align(run.parent, scenes.captions, scenes.regions, tmp_path / "out", named)
    assert drawn.drawn == 1 and not said.exists()


# Four regions of a picture 100 wide: the dog, a tight half of it, the cat, all.
BOXES = np.array([[0, 0, 40, 40], [0, 0, 40, 16], [60, 60, 100, 100], [0, 0, 100, 100]], np.float32)
DOG = np.array([[2, 2, 40, 40]], np.float32)
CAT = np.array([[62, 60, 100, 98]], np.float32)
NAN = np.nan
GIVEN = WordAlignment(
    ["a", "dog", "sees", "the", "cat"],
    BOXES,
    #         a    dog  sees the  cat
    np.array([[NAN, 0.9, 0.1, NAN, 0.2],
              [NAN, 0.3, 0.2, NAN, 0.1],
              [NAN, 0.2, 0.3, NAN, 0.5],
              [NAN, 0.1, 0.4, NAN, 0.6]], np.float32),
)  # fmt: skip


def test_each_word_has_its_best_region_and_a_phrase_points_at_one():
    """Ties share the point; words that take no part do not point."""
    assert [GIVEN.region(k) for k in range(5)] == [None, 0, 3, None, 3]
    assert score_phrase(GIVEN, Phrase(0, 2, "dog", DOG)) == PointingScore(
        1, 1.0, 0.5, 1.0, 0.25
    )  # half the regions have centres in
    assert score_phrase(GIVEN, Phrase(3, 5, "cat", CAT)) == PointingScore(
        1, 0.0, 0.25, 0.0, 0.25
    )  # at the whole picture
    assert (
        score_phrase(GIVEN, Phrase(3, 5, "cat", np.vstack([DOG, CAT]))).centre_chance == 0.75
    )  # either will do
    assert score_phrase(GIVEN, Phrase(1, 5, "dog", DOG)) == PointingScore(
        1, 1.0, 0.5, 1.0, 0.25
    )  # means: 0.4, 0.2, 0.33, 0.37
    flat = WordAlignment(GIVEN.words, BOXES, np.zeros((4, 5), np.float32))
    result = score_phrase(flat, Phrase(0, 2, "dog", DOG))
    assert (result.centre, result.iou) == (result.centre_chance, result.iou_chance) == (0.5, 0.25)
    assert score_phrase(GIVEN, Phrase(0, 1, "dog", DOG)) is None
    none = WordAlignment(["a"], np.zeros((0, 4), np.float32), np.zeros((0, 1), np.float32))
    assert score_phrase(none, Phrase(0, 1, "dog", DOG)) is None and none.region(0) is None


def test_means_by_kind():
    phrases = [
        Phrase(0, 2, "dog", DOG),
        Phrase(3, 5, "cat", CAT),
        Phrase(0, 1, "cat", CAT),
        Phrase(1, 2, "dog", DOG),
    ]
    result = play_pointing_game([(GIVEN, phrases[:2]), (GIVEN, phrases[2:]), (GIVEN, [])])
    assert list(result) == ["all", "dog", "cat"]
    assert result["all"] == PointingScore(
        3, pytest.approx(2 / 3), pytest.approx(1.25 / 3), pytest.approx(2 / 3), 0.25
    )
    assert result["dog"] == PointingScore(2, 1.0, 0.5, 1.0, 0.25) and result["cat"].phrases == 1
    assert play_pointing_game([])["all"].phrases == 0


def test_words_are_means_of_their_pieces():
    """[CLS] dog run ##s ##away [SEP] and padding; "run ##s" with one region, the padding region
    left out."""
    parts, words = torch.eye(3)[None, :2], torch.zeros(1, 7, 3)
    words[0, 1, 0], words[0, 2, 1], words[0, 3, 1], words[0, 4, 1] = 1.0, 0.5, 1.0, 9.0
    mask = torch.tensor([[False, True, True, True, False, False, False]])
    images = Encoded(None, parts, torch.tensor([[True, True]]))
    given = align_words(
        images,
        Encoded(None, words, mask),
        BOXES[:2],
        "dog runsaway",
        Pieces([2, 5, 6, 7, 8, 3], [-1, 0, 1, 1, 1, -1]),
    )
    assert np.allclose(given.similarity, [[1, 0], [0, 0.75]]), given.similarity


def test_panel():
    drawn = draw_panel(Image.new("RGB", (100, 80), "white"), GIVEN)
    assert drawn.width == ALIGNMENT_SIDE and len(drawn.getcolors(drawn.width * drawn.height)) > 10

"""Words on regions, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from capgrade.pipelines.captions import captions
from capgrade.schemas.captions import read_captions
from capgrade.schemas.params import CaptionsParams, ScenesParams
from capgrade.trainer.alignment.picture import SIDE, picture
from capgrade.trainer.alignment.pointing_game import Aligned, Phrase, Pointed, aligned, point, pointing, read_phrases
from capgrade.trainer.models.base import Encoded
from capgrade.trainer.models.text_encoder import Pieces

# Four regions of a picture 100 wide: the dog, a tight half of it, the cat, all.
BOXES = np.array([[0, 0, 40, 40], [0, 0, 40, 16], [60, 60, 100, 100], [0, 0, 100, 100]], np.float32)
DOG = np.array([[2, 2, 40, 40]], np.float32)
CAT = np.array([[62, 60, 100, 98]], np.float32)
NAN = np.nan
GIVEN = Aligned(
    ["a", "dog", "sees", "the", "cat"],
    BOXES,
    #         a    dog  sees the  cat
    np.array([[NAN, 0.9, 0.1, NAN, 0.2],
              [NAN, 0.3, 0.2, NAN, 0.1],
              [NAN, 0.2, 0.3, NAN, 0.5],
              [NAN, 0.1, 0.4, NAN, 0.6]], np.float32),
)  # fmt: skip


def test_each_word_and_its_best_region_and_a_phrase_points_right():
    assert [GIVEN.region(k) for k in range(5)] == [None, 0, 3, None, 3]
    assert point(GIVEN, Phrase(0, 2, "dog", DOG)) == Pointed(1, 1.0, 0.5, 1.0, 0.25)  # half the regions have centres in
    assert point(GIVEN, Phrase(3, 5, "cat", CAT)) == Pointed(1, 0.0, 0.25, 0.0, 0.25)  # at the whole picture
    assert point(GIVEN, Phrase(3, 5, "cat", np.vstack([DOG, CAT]))).centre_chance == 0.75  # either will do
    assert point(GIVEN, Phrase(1, 5, "dog", DOG)) == Pointed(1, 1.0, 0.5, 1.0, 0.25)  # means: 0.4, 0.2, 0.33, 0.37


def test_ties_share_the_point():
    flat = Aligned(GIVEN.words, BOXES, np.zeros((4, 5), np.float32))
    result = point(flat, Phrase(0, 2, "dog", DOG))
    assert (result.centre, result.iou) == (result.centre_chance, result.iou_chance) == (0.5, 0.25)


def test_words_that_take_no_part_do_not_point():
    assert point(GIVEN, Phrase(0, 1, "dog", DOG)) is None
    none = Aligned(["a"], np.zeros((0, 4), np.float32), np.zeros((0, 1), np.float32))
    assert point(none, Phrase(0, 1, "dog", DOG)) is None and none.region(0) is None


def test_means_by_kind():
    phrases = [Phrase(0, 2, "dog", DOG), Phrase(3, 5, "cat", CAT), Phrase(0, 1, "cat", CAT), Phrase(1, 2, "dog", DOG)]
    result = pointing([(GIVEN, phrases[:2]), (GIVEN, phrases[2:]), (GIVEN, [])])
    assert list(result) == ["all", "dog", "cat"]
    assert result["all"] == Pointed(3, pytest.approx(2 / 3), pytest.approx(1.25 / 3), pytest.approx(2 / 3), 0.25)
    assert result["dog"] == Pointed(2, 1.0, 0.5, 1.0, 0.25) and result["cat"].phrases == 1
    assert pointing([])["all"].phrases == 0


def test_words_are_means_of_their_pieces():
    """[CLS] dog run ##s ##away [SEP] and padding; "run ##s" with one region, the padding region left out."""
    parts, words = torch.eye(3)[None, :2], torch.zeros(1, 7, 3)
    words[0, 1, 0], words[0, 2, 1], words[0, 3, 1], words[0, 4, 1] = 1.0, 0.5, 1.0, 9.0
    mask = torch.tensor([[False, True, True, True, False, False, False]])
    images = Encoded(None, parts, torch.tensor([[True, True]]))
    given = aligned(
        images, Encoded(None, words, mask), BOXES[:2], "dog runsaway", Pieces([2, 5, 6, 7, 8, 3], [-1, 0, 1, 1, 1, -1])
    )
    assert np.allclose(given.similarity, [[1, 0], [0, 0.75]]), given.similarity


def test_phrases_of_scenes(tmp_path: Path):
    captions(tmp_path, CaptionsParams(scenes=ScenesParams(train=2, val=0, test=3, size=64)))
    table = read_captions(tmp_path, "test")
    found = read_phrases(tmp_path, table)
    assert found is not None and list(found) == table.caption_ids
    for text, phrases in zip(table.texts, found.values(), strict=True):
        for phrase in phrases:
            assert 0 <= phrase.start < phrase.end <= len(text.split())
            assert phrase.boxes.shape[1] == 4 and (phrase.boxes[:, 2:] > phrase.boxes[:, :2]).all()
    (tmp_path / "meanings.arrow").unlink()
    assert read_phrases(tmp_path, table) is None


def test_picture(tmp_path: Path):
    picture([(Image.new("RGB", (100, 80), "white"), GIVEN)] * 4, tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as drawn:
        assert drawn.width > 3 * SIDE and len(set(drawn.convert("RGB").getdata())) > 10

"""The picture of regions: which boxes are drawn, what their labels say, and that labels do not
cover each other."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from capgrade.pictures.draw_regions import (
    _free_place,
    _touch,
    draw_regions,
    label_of,
    select_boxes,
)
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import Regions, write_regions
from tests.pipelines.features.made import made


def boxes_of(regions: Regions, boxes: list[list[float]], confidences: list[float]) -> Regions:
    return replace(
        regions, boxes=np.array(boxes, np.float32), confidences=np.array(confidences, np.float32),
    )  # fmt: skip


def test_the_most_confident_of_those_that_show_the_same() -> None:
    near, far = [0, 0, 100, 100], [200, 200, 300, 300]
    found = boxes_of(
        made("a", n=4), [near, [2, 2, 100, 100], far, [400, 0, 500, 90]], [0.5, 0.9, 0.4, 0.6]
    )
    assert select_boxes(found, 9) == [1, 3, 2]
    assert select_boxes(found, 2) == [1, 3]
    assert select_boxes(replace(found, confidences=None), 9) == [0, 2, 3]
    assert select_boxes(boxes_of(found, [near, far, near, far], [0.1, 0.2, 0.1, 0.1]), 9) == [1]


@pytest.mark.parametrize(
    ("classes", "drawn"), [([1, 2, 1], [0, 1]), ([1, 1, 1], [0]), ([1, 2, 3], [0, 1, 2])]
)
def test_a_part_is_drawn_when_it_is_another_class(classes: list[int], drawn: list[int]) -> None:
    """An apple on a table; the table's left half is the table."""
    boxes = [[0, 0, 100, 100], [10, 10, 30, 30], [0, 0, 50, 100]]
    found = replace(
        boxes_of(made("a", n=3), boxes, [0.9, 0.8, 0.7]), classes=np.array(classes, np.int32)
    )
    assert select_boxes(found, 9) == drawn


def test_labels() -> None:
    found = replace(
        made("a", n=1), classes=np.array([1], np.int32), attributes=np.array([0], np.int32),
        confidences=np.array([0.876], np.float32),
    )  # fmt: skip
    names = {"classes": ["cat", "dog"], "attributes": ["red"]}
    assert label_of(found, 0, names) == "red dog 0.88"
    assert label_of(found, 0, {"classes": None}) == "attribute 0 class 1 0.88"
    assert label_of(replace(found, attributes=None, confidences=None), 0, names) == "dog"
    assert label_of(replace(found, classes=None), 0, names) == ""


corner = st.tuples(st.floats(0, 300), st.floats(0, 300))


@settings(max_examples=50, deadline=None)
@given(st.lists(corner, min_size=1, max_size=8))
def test_labels_do_not_cover_each_other(corners: list[tuple[float, float]]) -> None:
    """Eight labels have room enough in an image of 20 lines, wherever their boxes are."""
    taken: list = []
    for x, y in corners:
        place = _free_place((x, y, x + 100, y + 100), (120, 20), (400, 400), taken)
        assert place[0] >= 0 and place[2] <= 400 and place[1] >= 0 and place[3] <= 400
        assert not any(_touch(place, other) for other in taken)
        taken.append(place)


def test_a_picture_of_regions(tmp_path: Path) -> None:
    images = [boxes_of(made(str(k), n=1), [[64, 48, 320, 240]], [1.0]) for k in range(5)]
    write_regions(tmp_path / "r", images)
    (tmp_path / "in").mkdir()
    for image in images:
        Image.new("RGB", (640, 480), "white").save(tmp_path / "in" / f"{image.image_id}.png")
    assert draw_regions(tmp_path / "r", tmp_path / "in", tmp_path / "p.png", 5, 3) == 5
    sheet = np.array(Image.open(tmp_path / "p.png"))
    edge = sheet[14 + round(480 * 420 / 640 * 0.3), 14 + round(420 * 0.1)]
    assert (edge == (0xD6, 0x27, 0x28)).all(), edge
    (tmp_path / "in" / "2.png").unlink()
    with pytest.raises(InputError, match="in: no image '2' -> give the images"):
        draw_regions(tmp_path / "r", tmp_path / "in", tmp_path / "q.png", 5, 3)
    write_regions(tmp_path / "bare", [replace(images[0], boxes=None)])
    with pytest.raises(InputError, match="image '0' has no boxes"):
        draw_regions(tmp_path / "bare", tmp_path / "in", tmp_path / "q.png", 1, 1)

"""A picture of a detector's boxes, with their classes and attributes, on some images; and how such
pictures are arranged and written."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

from capgrade.pictures.listing import make_opener
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic
from capgrade.schemas.out_files import refuse_file
from capgrade.schemas.regions import Regions, RegionStore

REGIONS_SIDE = 420  # pixels of the longer side of an image in the picture
_MIN_CONFIDENCE = 0.3  # of a box that is drawn
# Two boxes show the same thing above this IoU; boxes of one class also if they share more than this
# share of the smaller one.
SAME_BOX, SAME_CLASS = 0.7, 0.5
FONT_SIZE = 15
_COLOURS = ("#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#e377c2", "#8c564b")
_COLUMNS, _MARGIN = 3, 14  # of a grid, and pixels around its pictures

Rectangle = tuple[float, float, float, float]


def draw_regions(
    folder: Path, images: Path, out: Path, count: int = 6, top: int = 6, *, force: bool = False
) -> int:
    """Draw `count` images, spread evenly over the folder, each with its `top` most confident boxes;
    returns how many.

    Raises InputError for regions without boxes, when an image of theirs is not among `images`, and
    where a file is at `out`, but with `force`.
    """
    refuse_file(out, force)
    store = RegionStore(folder)
    drawn = draw_sheet(store, make_opener(images, dict.fromkeys(store.ids)), count, top)
    assert drawn is not None  # `make_opener` raises for an image that is not there.
    picture, images_drawn = drawn
    write_png(out, picture)
    return images_drawn


def draw_sheet(
    store: RegionStore, open_image: Callable[[str], Image.Image | None], count: int, top: int
) -> tuple[Image.Image, int] | None:
    """One picture of up to `count` images of a store, and how many they are. Images for which
    `open_image` gives None are left out; returns None if all are. InputError for regions without
    boxes."""
    chosen = sorted({int(k) for k in np.linspace(0, len(store) - 1, min(count, len(store)))})
    tiles = []
    for regions in (store[k] for k in chosen):
        image = open_image(regions.image_id)
        if image is not None:
            tiles.append(_tile(image, regions, top, store))
    return (arrange_in_grid(tiles), len(tiles)) if tiles else None


def _tile(image: Image.Image, regions: Regions, top: int, store: RegionStore) -> Image.Image:
    """The image with its boxes and their labels, and below it its id."""
    if regions.boxes is None:
        raise InputError(
            f"image {regions.image_id!r} has no boxes",
            file=store.folder,
            remedy="extract its regions",
        )
    font = ImageFont.load_default(FONT_SIZE)
    scale = REGIONS_SIDE / max(image.size)
    resized = image.resize(
        (round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS
    )
    tile = Image.new("RGB", (resized.width, resized.height + FONT_SIZE + 8), "white")
    tile.paste(resized, (0, 0))
    pen = ImageDraw.Draw(tile)
    pen.text((2, resized.height + 3), regions.image_id, "black", font)
    rows = select_boxes(regions, top)
    boxes: list[Rectangle] = [tuple((regions.boxes[row] * scale).tolist()) for row in rows]
    for k, box in enumerate(boxes):
        pen.rectangle(box, outline=_COLOURS[k % len(_COLOURS)], width=3)
    taken: list[Rectangle] = []
    for k, (row, box) in enumerate(zip(rows, boxes, strict=True)):
        text = label_of(regions, row, store.manifest)
        if text:
            size = pen.textlength(text, font) + 6, FONT_SIZE + 5
            place = _free_place(box, size, resized.size, taken)
            taken.append(place)
            pen.rectangle(place, fill=_COLOURS[k % len(_COLOURS)])
            pen.text((place[0] + 3, place[1] + 1), text, "white", font)
    return tile


def select_boxes(regions: Regions, top: int) -> list[int]:
    """Rows of the `top` most confident boxes, without those that show the same as a chosen one, and
    without unsure ones; at least one row."""
    confidences = np.ones(len(regions)) if regions.confidences is None else regions.confidences
    same = _show_same(regions)
    chosen: list[int] = []
    for row in np.argsort(-confidences, kind="stable"):
        wanted = not chosen or (confidences[row] >= _MIN_CONFIDENCE and len(chosen) < top)
        if wanted and not same[row, chosen].any():
            chosen.append(int(row))
    return chosen


def _show_same(regions: Regions) -> np.ndarray:
    """Which pairs of boxes show the same thing: bool [n, n]."""
    assert regions.boxes is not None  # `_tile` refuses regions without boxes.
    # Coordinates are pixels, and a box includes the pixels of both borders.
    corner, end = regions.boxes[:, :2], regions.boxes[:, 2:] + 1
    area = (end - corner).prod(axis=1)
    sides = np.minimum(end[:, None], end) - np.maximum(corner[:, None], corner)
    intersection = np.maximum(sides, 0).prod(axis=2)
    overlap = intersection / (area[:, None] + area - intersection)
    classes = np.arange(len(area)) if regions.classes is None else regions.classes
    same_class = classes[:, None] == classes
    return (overlap > SAME_BOX) | (
        same_class & (intersection > SAME_CLASS * np.minimum(area[:, None], area))
    )


def label_of(regions: Regions, row: int, names: Mapping[str, Any]) -> str:
    """Attribute, class and confidence of one box, with numbers where the manifest has no names;
    empty without a class."""
    if regions.classes is None:
        return ""
    words = []
    for singular, plural, numbers in (
        ("attribute", "attributes", regions.attributes),
        ("class", "classes", regions.classes),
    ):
        if numbers is not None:
            words.append(
                names[plural][numbers[row]] if names.get(plural) else f"{singular} {numbers[row]}"
            )
    if regions.confidences is not None:
        words.append(f"{regions.confidences[row]:.2f}")
    return " ".join(words)


def _free_place(
    box: Rectangle, size: tuple[float, float], image: tuple[int, int], taken: Sequence[Rectangle]
) -> Rectangle:
    """A place for a label of `size` that covers no other label: at a corner of its box, else on the
    line nearest to the box's top; at the first corner where none is free."""
    # Above the box, within its top, within its bottom, below it; left, then right.
    ys, xs = (box[1] - size[1], box[1], box[3] - size[1], box[3]), (box[0], box[2] - size[0])
    places = [_inside(x, y, size, image) for y in ys for x in xs]
    lines = sorted(np.arange(0, image[1], size[1] + 1), key=lambda line: abs(line - box[1]))
    places += [_inside(box[0], line, size, image) for line in lines]
    return next(
        (place for place in places if not any(_touch(place, other) for other in taken)), places[0]
    )


def _inside(x: float, y: float, size: tuple[float, float], image: tuple[int, int]) -> Rectangle:
    """The place moved into the image."""
    x, y = (
        max(0.0, min(position, limit - extent))
        for position, extent, limit in zip((x, y), size, image, strict=True)
    )
    return x, y, x + size[0], y + size[1]


def _touch(a: Rectangle, b: Rectangle) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def write_png(path: Path, image: Image.Image) -> None:
    """Write a PNG that says what drew it."""
    text = PngInfo()
    text.add_text("Software", "capgrade")
    with atomic(path) as temporary:
        image.save(temporary, "PNG", optimize=True, pnginfo=text)


def arrange_in_grid(tiles: Sequence[Image.Image]) -> Image.Image:
    """One picture of several, _COLUMNS in a row."""
    rows = [tiles[start : start + _COLUMNS] for start in range(0, len(tiles), _COLUMNS)]
    width = _MARGIN + max(sum(tile.width + _MARGIN for tile in row) for row in rows)
    height = _MARGIN + sum(max(tile.height for tile in row) + _MARGIN for row in rows)
    sheet = Image.new("RGB", (width, height), "white")
    y = _MARGIN
    for row in rows:
        x = _MARGIN
        for tile in row:
            sheet.paste(tile, (x, y))
            x += tile.width + _MARGIN
        y += max(tile.height for tile in row) + _MARGIN
    return sheet

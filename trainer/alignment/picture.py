"""Pictures of word-region alignments: an image, the regions its caption's words point at, and the words."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from capgrade.pipelines.pictures.listing import grid
from capgrade.schemas.files import atomic
from capgrade.trainer.alignment.pointing_game import Aligned

SIDE = 420  # pixels of the longer side of an image
LINE = 42  # pixels from one line of words to the next
COLOURS = ("#d1242f", "#0969da", "#1a7f37", "#8250df", "#bf5700", "#0e7c86", "#a8328a", "#6e5a00", "#3d4f9f", "#57606a")
SILENT = "#8c959f"  # words that take no part, or are like nothing in the image
LEAST = 1 / 3  # of the surest word's similarity: weaker words get no box


def picture(pairs: Sequence[tuple[Image.Image, Aligned]], out: Path) -> None:
    """Draw each image with its caption below. A word has the colour and number of its best region, and its cosine;
    words much weaker than the surest are grey, without a box."""
    with atomic(out) as temporary:
        grid([panel(image, given) for image, given in pairs]).save(temporary, "PNG", optimize=True)


def panel(image: Image.Image, given: Aligned) -> Image.Image:
    """One picture: the image with the regions that words point at, numbered, and the caption below."""
    scale = SIDE / max(image.size)
    image = image.convert("RGB").resize([round(side * scale) for side in image.size], Image.Resampling.LANCZOS)
    regions = [given.region(k) for k in range(len(given.words))]
    values = [-np.inf if r is None else given.similarity[r, k] for k, r in enumerate(regions)]
    least = LEAST * max([0.0, *values])  # function words would box the whole image
    regions = [r if value >= least else None for r, value in zip(regions, values, strict=True)]
    number = {region: k for k, region in enumerate(dict.fromkeys(r for r in regions if r is not None))}
    pen = ImageDraw.Draw(image)
    taken: list[tuple[float, float]] = []
    for region, k in number.items():
        pen.rectangle([x * scale for x in given.boxes[region].tolist()], outline=_colour(k), width=3)
    for region, k in number.items():  # numbers above all boxes
        left, top = (float(x) * scale for x in given.boxes[region, :2])
        left, top = _free(min(max(left, 0), image.width - 24), min(max(top, 0), image.height - 24), taken, image.width)
        taken.append((left, top))
        pen.rectangle((left, top, left + 22, top + 22), fill=_colour(k))
        pen.text((left + 11, top + 11), str(k + 1), "white", ImageFont.load_default(16), anchor="mm")
    font, small = ImageFont.load_default(18), ImageFont.load_default(12)
    places, across, line = [], 0.0, 0
    for word in given.words:
        width = max(font.getlength(word) + 8, 44)
        if across + width > SIDE and across:
            across, line = 0.0, line + 1
        places.append((across, image.height + 8 + line * LINE, width))
        across += width + 4
    canvas = Image.new("RGB", (SIDE, image.height + 8 + (line + 1) * LINE), "white")
    canvas.paste(image)
    pen = ImageDraw.Draw(canvas)
    for k, ((left, top, width), best) in enumerate(zip(places, regions, strict=True)):
        colour = SILENT if best is None else _colour(number[best])
        pen.text((left + width / 2, top + 11), given.words[k], colour, font, anchor="mm")
        if best is not None:
            pen.line((left + 2, top + 22, left + width - 2, top + 22), colour, 3)
            note = f"{number[best] + 1}: {given.similarity[best, k]:.2f}"
            pen.text((left + width / 2, top + 31), note, colour, small, anchor="mm")
    return canvas


def _free(left: float, top: float, taken: list[tuple[float, float]], width: int) -> tuple[float, float]:
    """The place, or the next to the right or back to the left, where no number is yet."""
    step = 24 if left + 24 * len(taken) < width - 24 else -24
    while any(abs(left - x) < 24 and abs(top - y) < 24 for x, y in taken):
        left += step
    return left, top


def _colour(k: int) -> str:
    return COLOURS[k % len(COLOURS)]

"""A caption, the images it is relevant to, and how relevant: one row of the labels, to read or to
look at."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from capgrade.labels import Labels
from capgrade.pictures.draw_regions import write_png
from capgrade.pictures.listing import PICTURES_TABLE, make_opener
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import read_manifest
from capgrade.schemas.out_files import refuse_file

_SIDE = 180  # pixels of an image in the picture
_MARGIN = 12


@dataclass(frozen=True)
class Match:
    """An image, one of its own captions, whether the caption shown is its own, and the caption's
    relevance to it."""

    image_id: str
    caption: str
    original: bool
    relevance: dict[str, float]


def matches(
    captions_dir: Path, relevance_dir: Path, caption_id: str | None, by: str | None, top: int
) -> tuple[str, str, list[Match]]:
    """The caption's id and text (None: the first of the split) and the `top` images by measure `by`
    (None: the last computed). Raises InputError for an unknown caption or measure, or when the two
    folders do not belong together."""
    measures = list(read_manifest(relevance_dir, "relevance")["params"]["measures"])
    labels = Labels.load(relevance_dir, measures=measures, captions=captions_dir)
    captions, by = labels.table, labels.choose_measure(by or measures[-1])
    column = 0 if caption_id is None else int(labels.rows_of_captions([caption_id])[0])
    values = {name: labels.stored.of_caption(column, name)[1] for name in measures}
    found = []
    for image in np.argsort(-values[by], kind="stable")[:top].tolist():
        first = captions.texts[captions.refs[captions.ref_ptr[image]]]
        relevance = {name: float(column_values[image]) for name, column_values in values.items()}
        found.append(
            Match(
                captions.image_ids[image], first, bool(captions.owner[column] == image), relevance
            )
        )
    return captions.caption_ids[column], captions.texts[column], found


def picture(
    captions_dir: Path, text: str, found: Sequence[Match], out: Path, force: bool = False
) -> None:
    """Draw the caption above the images it is relevant to, each with its relevance. InputError when
    the captions folder has no images (only `scenes` writes them), and where a file is at `out`, but
    with `force`."""
    refuse_file(out, force)
    if not (captions_dir / PICTURES_TABLE).is_file():
        remedy = "leave --out away"
        raise InputError(
            "no images beside these captions", file=captions_dir / PICTURES_TABLE, remedy=remedy
        )
    opened = make_opener(captions_dir, {match.image_id: None for match in found})
    lines = len(found[0].relevance)
    canvas = Image.new(
        "RGB", (_MARGIN + len(found) * (_SIDE + _MARGIN), _SIDE + 62 + 18 * lines), "white"
    )
    pen = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(18)
    small = ImageFont.load_default(14)
    pen.text((_MARGIN, _MARGIN), f"“{text}”", "black", font)
    for k, match in enumerate(found):
        left, below = _MARGIN + k * (_SIDE + _MARGIN), 46 + _SIDE
        canvas.paste(
            opened(match.image_id).resize((_SIDE, _SIDE), Image.Resampling.LANCZOS), (left, 44)
        )
        if match.original:
            pen.rectangle((left - 2, 42, left + _SIDE + 1, 45 + _SIDE), outline="#1a7f37", width=3)
        for line, (name, value) in enumerate(match.relevance.items()):
            pen.text((left, below + 18 * line), f"{name} {value:.2f}", "#333333", small)
    write_png(out, canvas)

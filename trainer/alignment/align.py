"""Stage: the regions that the words of a trained TERAN point at, as a picture, and the pointing
game where true boxes are known."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from capgrade.pictures.draw_regions import arrange_in_grid
from capgrade.pictures.listing import make_opener
from capgrade.schemas.captions import read_captions
from capgrade.schemas.console import console, print_table
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic, found_digests, write_json
from capgrade.schemas.regions import RegionStore
from capgrade.schemas.run import StageRun
from capgrade.trainer.alignment.pointing_game import (
    WordAlignment,
    align_words,
    play_pointing_game,
    read_phrases,
)
from capgrade.trainer.data.images import drop_left_out
from capgrade.trainer.data.pairs import SplitPairs
from capgrade.trainer.fit import VOCABULARY
from capgrade.trainer.fit.checkpoint import load_run, require_dim, weights_of
from capgrade.trainer.models.tern import TERAN
from capgrade.trainer.models.text_encoder import pieces_of
from capgrade.trainer.search.encode import encode_split
from capgrade.trainer.stages.align import ALIGN, AlignParams

_PICTURE, POINTING = "alignment.png", "pointing.json"
NO_RUN = "alignment.json"
ALIGNMENT_SIDE = 420  # pixels of the longer side of an image
_LINE = 42  # pixels from one line of words to the next
_COLOURS = (
    "#d1242f",
    "#0969da",
    "#1a7f37",
    "#8250df",
    "#bf5700",
    "#0e7c86",
    "#a8328a",
    "#6e5a00",
    "#3d4f9f",
    "#57606a",
)
SILENT = "#8c959f"  # colour of words without a box
_MIN_SHARE = 1 / 3  # of the surest word's similarity, below which a word gets no box


@dataclass(frozen=True)
class Aligned:
    """How many pictures were drawn, and the scores of the pointing game by kind of object; None
    where there are none."""

    drawn: int | None = None
    pointing: Mapping[str, Mapping[str, Any]] | None = None

    def json(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        """For a terminal; a table of the game, beside chance."""
        if self.drawn is None:
            return "align.preset is null: no words were drawn"
        if self.pointing is None:
            return "no true boxes beside these captions, so no pointing game; picture"
        columns = (
            "phrases about",
            "phrases",
            "centre in the box",
            "chance",
            "IoU at least 0.5",
            "chance",
        )
        shares = ("centre", "centre_chance", "iou", "iou_chance")
        rows = [
            [kind, f"{row['phrases']:,}", *(f"{row[name]:.1%}" for name in shares)]
            for kind, row in self.pointing.items()
        ]
        on = console()
        with on.capture() as captured:
            print_table("Pointing game", columns, rows, on=on)
        return f"{self.drawn} pictures\n{captured.get()}".rstrip("\n")


def align(run: Path, captions: Path, regions: Path, out: Path, params: AlignParams) -> Aligned:
    """Write alignment.png: `count` images spread over the split, each with its first caption; and
    pointing.json where the captions have true boxes. Without a run in a pipeline it writes
    alignment.json, which says so. Raises InputError for a model that aligns no words, for an `out`
    of another stage, and for inputs that do not fit together."""
    if params.preset is None and "preset" in params.model_fields_set:
        nothing = StageRun(stage=ALIGN, params=params, inputs={})
        with nothing.folder(out) as folder:
            write_json(folder / NO_RUN, {"run": None})
            nothing.finish(folder, {NO_RUN: 0})
        return Aligned()
    if params.images is None:
        raise InputError("no pictures to draw on", remedy="give --images")
    run = run / (params.preset or "")
    inputs = found_digests(
        model=run / weights_of(run), vocabulary=run / VOCABULARY, captions=captions, regions=regions
    )
    work = StageRun(stage=ALIGN, params=params, inputs=inputs)
    with work.folder(out) as folder:
        model, tokens, config = load_run(run)
        if not isinstance(model, TERAN):
            raise InputError(
                "this model aligns no words with regions", remedy="give a run of --preset teran"
            )
        table, store = read_captions(captions, params.split), RegionStore(regions)
        require_dim(config["feature_dim"], store.metadata["dim"], regions)
        table, _ = drop_left_out(table, store)
        by_caption = list(_align_captions(model, SplitPairs(table, store, tokens.encode(table))))
        count = min(params.count, table.n_images)
        chosen = sorted({int(i) for i in np.linspace(0, table.n_images - 1, count)})
        decode = make_opener(Path(params.images), table.image_files)
        panels = [
            draw_panel(decode(table.image_ids[i]), by_caption[table.rows_of(i)[0]]) for i in chosen
        ]
        with atomic(folder / _PICTURE) as temporary:
            arrange_in_grid(panels).save(temporary, "PNG", optimize=True)
        game, names = None, [_PICTURE]
        if (phrases := read_phrases(captions, table)) is not None:
            scores = play_pointing_game(
                zip(by_caption, (phrases[caption] for caption in table.caption_ids), strict=True)
            )
            game = {kind: asdict(score) for kind, score in scores.items()}
            write_json(folder / POINTING, game)
            names.append(POINTING)
        work.finish(folder, dict.fromkeys(names, 0))
        return Aligned(len(panels), game)


def _align_captions(model: TERAN, pairs: SplitPairs) -> Iterator[WordAlignment]:
    """The alignment of each caption of a split with its own image, in order. InputError for an
    image without boxes."""
    captions, (images, texts) = pairs.captions, encode_split(model, pairs)
    pieces = pieces_of(captions.texts, model.config.text_model)
    for c, text in enumerate(captions.texts):
        i = int(captions.owner[c])
        boxes = pairs.image(i).boxes
        if boxes is None:
            problem = f"image '{captions.image_ids[i]}' has no boxes"
            raise InputError(
                problem, file=pairs.store.folder, remedy="extract its regions with capgrade regions"
            )
        yield align_words(images[i : i + 1], texts[c : c + 1], boxes, text, pieces[c])


def draw_panel(image: Image.Image, alignment: WordAlignment) -> Image.Image:
    """The image with the regions that words point at, numbered, and the caption below. A word has
    the colour and number of its best region, and their cosine. Words that take no part, or are much
    weaker than the surest, are grey and have no box."""
    scale = ALIGNMENT_SIDE / max(image.size)
    image = image.convert("RGB").resize(
        [round(side * scale) for side in image.size], Image.Resampling.LANCZOS
    )
    regions = [alignment.region(k) for k in range(len(alignment.words))]
    values = [-np.inf if r is None else alignment.similarity[r, k] for k, r in enumerate(regions)]
    # Without a threshold, function words would put boxes all over the image.
    threshold = _MIN_SHARE * max([0.0, *values])
    regions = [r if value >= threshold else None for r, value in zip(regions, values, strict=True)]
    number = {
        region: k for k, region in enumerate(dict.fromkeys(r for r in regions if r is not None))
    }
    pen = ImageDraw.Draw(image)
    taken: list[tuple[float, float]] = []
    for region, k in number.items():
        pen.rectangle(
            [x * scale for x in alignment.boxes[region].tolist()], outline=_colour(k), width=3
        )
    for region, k in number.items():  # Numbers are drawn after all boxes, on top of them.
        left, top = (float(x) * scale for x in alignment.boxes[region, :2])
        left, top = _free_place(
            min(max(left, 0), image.width - 24),
            min(max(top, 0), image.height - 24),
            taken,
            image.width,
        )
        taken.append((left, top))
        pen.rectangle((left, top, left + 22, top + 22), fill=_colour(k))
        pen.text(
            (left + 11, top + 11), str(k + 1), "white", ImageFont.load_default(16), anchor="mm"
        )
    font, small = ImageFont.load_default(18), ImageFont.load_default(12)
    places, left_edge, row = [], 0.0, 0
    for word in alignment.words:
        width = max(font.getlength(word) + 8, 44)
        if left_edge + width > ALIGNMENT_SIDE and left_edge:
            left_edge, row = 0.0, row + 1
        places.append((left_edge, image.height + 8 + row * _LINE, width))
        left_edge += width + 4
    canvas = Image.new("RGB", (ALIGNMENT_SIDE, image.height + 8 + (row + 1) * _LINE), "white")
    canvas.paste(image)
    pen = ImageDraw.Draw(canvas)
    for k, ((left, top, width), best) in enumerate(zip(places, regions, strict=True)):
        colour = SILENT if best is None else _colour(number[best])
        pen.text((left + width / 2, top + 11), alignment.words[k], colour, font, anchor="mm")
        if best is not None:
            pen.line((left + 2, top + 22, left + width - 2, top + 22), colour, 3)
            note = f"{number[best] + 1}: {alignment.similarity[best, k]:.2f}"
            pen.text((left + width / 2, top + 31), note, colour, small, anchor="mm")
    return canvas


def _free_place(
    left: float, top: float, taken: list[tuple[float, float]], width: int
) -> tuple[float, float]:
    """The nearest place to the right that has no number yet, or to the left where the image
    ends."""
    step = 24 if left + 24 * len(taken) < width - 24 else -24
    while any(abs(left - x) < 24 and abs(top - y) < 24 for x, y in taken):
        left += step
    return left, top


def _colour(k: int) -> str:
    return _COLOURS[k % len(_COLOURS)]

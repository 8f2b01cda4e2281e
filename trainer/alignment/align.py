"""Stage: what the words of a trained TERAN point at: a picture, and where true boxes are known, how
often rightly."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from capgrade.pictures.listing import grid, opener
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic, write_json, write_manifest
from capgrade.schemas.inputs import found_digests, require_unchanged
from capgrade.schemas.output import output_folder
from capgrade.schemas.region_store import RegionStore
from capgrade.trainer.alignment.pointing_game import Aligned, aligned, pointing, read_phrases
from capgrade.trainer.data.images import drop_left_out
from capgrade.trainer.data.pairs import Pairs
from capgrade.trainer.fit import VOCABULARY
from capgrade.trainer.fit.checkpoint import load_run, require_dim, weights_of
from capgrade.trainer.models.tern import TERAN
from capgrade.trainer.models.text_encoder import word_pieces
from capgrade.trainer.search.encode import encode_split

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
SILENT = "#8c959f"  # words that take no part, or are like nothing in the image
_LEAST = 1 / 3  # of the surest word's similarity: weaker words get no box


def align(
    run: Path,
    captions_dir: Path,
    regions_dir: Path,
    split: str | None,
    out: Path,
    pictures: Path,
    count: int = 6,
) -> dict[str, Any] | None:
    """Write alignment.png, `count` images spread over the split, each with its first caption;
    `pictures` are those of the images. Where the captions have true boxes, also pointing.json: its
    content is returned, else None.

    Raises InputError for a model that aligns no words, for an `out` that another stage wrote, and
    for a run, captions and regions that do not fit together.
    """

    def sources() -> dict[str, str]:
        model = {"model": run / weights_of(run), "vocabulary": run / VOCABULARY}
        return found_digests(**model, captions=captions_dir, regions=regions_dir)

    with output_folder(out, "alignment") as folder:
        inputs = sources()
        model, tokens, config = load_run(run)
        if not isinstance(model, TERAN):
            raise InputError(
                "this model aligns no words with regions", remedy="give a run of --preset teran"
            )
        captions, store = read_captions(captions_dir, split), RegionStore(regions_dir)
        require_dim(config["feature_dim"], store.metadata["dim"], regions_dir)
        captions, _ = drop_left_out(captions, store)
        own = list(alignments(model, Pairs(captions, store, tokens.encode(captions))))
        shown = sorted(
            {int(i) for i in np.linspace(0, captions.n_images - 1, min(count, captions.n_images))}
        )
        decode = opener(pictures, captions.image_files)
        panels = [panel(decode(captions.image_ids[i]), own[captions.rows_of(i)[0]]) for i in shown]
        with atomic(folder / _PICTURE) as temporary:
            grid(panels).save(temporary, "PNG", optimize=True)
        game, names = None, [_PICTURE]
        if (phrases := read_phrases(captions_dir, captions)) is not None:
            played = pointing(
                zip(own, (phrases[caption] for caption in captions.caption_ids), strict=True)
            )
            game = {kind: asdict(one) for kind, one in played.items()}
            write_json(folder / POINTING, game)
            names.append(POINTING)
        require_unchanged(inputs, sources())
        inputs |= {} if split is None else {"split": split}
        write_manifest(
            folder,
            "alignment",
            params={"count": count},
            inputs=inputs,
            rows=dict.fromkeys(names, 0),
        )
        return game


def align_none(out: Path) -> None:
    """The folder of a pipeline that asks for no alignment: alignment.json, which says so.
    InputError as `align`."""
    with output_folder(out, "alignment") as folder:
        write_json(folder / NO_RUN, {"run": None})
        write_manifest(folder, "alignment", params={}, inputs={}, rows={NO_RUN: 0})


def alignments(model: TERAN, pairs: Pairs) -> Iterator[Aligned]:
    """Each caption of a split against its own image, in order."""
    captions, (images, texts) = pairs.captions, encode_split(model, pairs)
    pieces = word_pieces(captions.texts, model.config.text_model)
    for c, text in enumerate(captions.texts):
        i = int(captions.owner[c])
        boxes = pairs.image(i).boxes
        if boxes is None:
            problem = f"image '{captions.image_ids[i]}' has no boxes"
            raise InputError(
                problem, file=pairs.store.folder, remedy="extract its regions with capgrade regions"
            )
        yield aligned(images[i : i + 1], texts[c : c + 1], boxes, text, pieces[c])


def panel(image: Image.Image, given: Aligned) -> Image.Image:
    """The image with the regions that words point at, numbered, and the caption below. A word has
    the colour and number of its best region, and its cosine; words much weaker than the surest are
    grey, without a box."""
    scale = ALIGNMENT_SIDE / max(image.size)
    image = image.convert("RGB").resize(
        [round(side * scale) for side in image.size], Image.Resampling.LANCZOS
    )
    regions = [given.region(k) for k in range(len(given.words))]
    values = [-np.inf if r is None else given.similarity[r, k] for k, r in enumerate(regions)]
    least = _LEAST * max([0.0, *values])  # function words would box the whole image
    regions = [r if value >= least else None for r, value in zip(regions, values, strict=True)]
    number = {
        region: k for k, region in enumerate(dict.fromkeys(r for r in regions if r is not None))
    }
    pen = ImageDraw.Draw(image)
    taken: list[tuple[float, float]] = []
    for region, k in number.items():
        pen.rectangle(
            [x * scale for x in given.boxes[region].tolist()], outline=_colour(k), width=3
        )
    for region, k in number.items():  # numbers above all boxes
        left, top = (float(x) * scale for x in given.boxes[region, :2])
        left, top = _free(
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
    places, across, line = [], 0.0, 0
    for word in given.words:
        width = max(font.getlength(word) + 8, 44)
        if across + width > ALIGNMENT_SIDE and across:
            across, line = 0.0, line + 1
        places.append((across, image.height + 8 + line * _LINE, width))
        across += width + 4
    canvas = Image.new("RGB", (ALIGNMENT_SIDE, image.height + 8 + (line + 1) * _LINE), "white")
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


def _free(
    left: float, top: float, taken: list[tuple[float, float]], width: int
) -> tuple[float, float]:
    """The place, or the next to the right or back to the left, where no number is yet."""
    step = 24 if left + 24 * len(taken) < width - 24 else -24
    while any(abs(left - x) < 24 and abs(top - y) < 24 for x, y in taken):
        left += step
    return left, top


def _colour(k: int) -> str:
    return _COLOURS[k % len(_COLOURS)]

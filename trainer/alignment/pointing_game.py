"""Which region each word points at, and whether it points right: the pointing game on scenes.

The rule: a phrase that speaks of objects (a span of meanings.arrow) points at the region most
similar to its words, by the mean over the words that take part, a word being the mean over its word
pieces. It points right if the centre of that region lies in the true box of one of the objects
(Zhang et al. 2018 ask this of a point, in any object of the kind); the second, stricter rule asks
for an IoU of 0.5 with one of the boxes. Chance is the share of the image's regions that would be
right.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch

from capgrade.boxes import iou
from capgrade.schemas.captions import Captions
from capgrade.schemas.files import read_arrow
from capgrade.trainer.models.alignment import alignment_matrix
from capgrade.trainer.models.base import Encoded
from capgrade.trainer.models.text_encoder import Pieces

IOU = 0.5
_SEVERAL = "several kinds"
_TRUTH = ("scenes.arrow", "meanings.arrow")  # beside the captions of scenes


@dataclass(frozen=True)
class Aligned:
    """A caption's words against an image's regions."""

    words: list[str]
    boxes: np.ndarray  # float32 [R, 4]: x1, y1, x2, y2 in pixels
    similarity: np.ndarray  # float32 [R, words], NaN for words that do not take part

    def region(self, word: int) -> int | None:
        """The most similar region; None for words that do not take part."""
        column = self.similarity[:, word]
        return None if np.isnan(column).all() else int(np.nanargmax(column))


@dataclass(frozen=True)
class Phrase:
    """Words `start` to `end` (exclusive) of a caption, which speak of the objects in these
    boxes."""

    start: int
    end: int
    kind: str  # of the objects
    boxes: np.ndarray  # float32 [objects, 4] pixels


@dataclass(frozen=True)
class Pointed:
    """Means over phrases, in 0..1; of one phrase, what it scores."""

    phrases: int
    centre: float  # the centre of the region is in a box
    centre_chance: float
    iou: float  # the region and a box have an IoU of 0.5
    iou_chance: float


def aligned(
    images: Encoded, captions: Encoded, boxes: np.ndarray, text: str, pieces: Pieces
) -> Aligned:
    """The first image and caption of two encodings; `boxes` of the image's regions in pixels, float
    [R, 4]."""
    A = alignment_matrix(images, captions)[: len(boxes)].detach().cpu()  # [R, W]
    words = text.split()
    columns = np.full((len(boxes), len(words)), np.nan, np.float32)
    of = np.array(pieces.words)
    taking = (~A.isnan()).any(0)[: len(of)].numpy()
    for k in range(len(words)):
        if len(at := np.flatnonzero((of == k) & taking)):
            columns[:, k] = A.numpy()[:, at].mean(1)
    return Aligned(words, np.asarray(boxes, np.float32), columns)


def point(given: Aligned, phrase: Phrase) -> Pointed | None:
    """None where no word of the phrase takes part, or the image has no region. Tied regions share
    the point."""
    columns = given.similarity[:, phrase.start : phrase.end]
    columns = columns[:, ~np.isnan(columns).any(0)]
    if not columns.size:
        return None
    mean = columns.mean(1)
    best = mean == mean.max()
    inside = _inside(given.boxes, phrase.boxes).max(1)
    overlap = iou(torch.tensor(given.boxes), torch.tensor(phrase.boxes), caffe=False).numpy()
    near = (overlap >= IOU).max(1)  # NaN of two boxes without an area is not near
    return Pointed(
        1, *(float(x) for x in (inside[best].mean(), inside.mean(), near[best].mean(), near.mean()))
    )


def pointing(pairs: Iterable[tuple[Aligned, Sequence[Phrase]]]) -> dict[str, Pointed]:
    """Pointing-game accuracy and chance: "all", then each kind of object by its number of phrases.

    Phrases of stop words alone are left out, so `phrases` counts those that point.
    """
    results: dict[str, list[Pointed]] = {"all": []}
    for given, phrases in pairs:
        for phrase in phrases:
            if (result := point(given, phrase)) is not None:
                results["all"].append(result)
                results.setdefault(phrase.kind, []).append(result)
    order = sorted(results, key=lambda kind: (kind != "all", -len(results[kind]), kind))
    return {kind: _mean(results[kind]) for kind in order}


def read_phrases(folder: Path, captions: Captions) -> dict[str, list[Phrase]] | None:
    """Phrases by caption id; None for captions without the truth behind them: only scenes have
    it."""
    if not all((folder / name).is_file() for name in _TRUTH):
        return None
    scenes = read_arrow(folder / "scenes.arrow").select(["image_id", "objects"]).to_pylist()
    objects = {row["image_id"]: row["objects"] for row in scenes}
    meanings = read_arrow(folder / "meanings.arrow").select(["caption_id", "spans"]).to_pylist()
    spans = {row["caption_id"]: row["spans"] for row in meanings}
    owners = [captions.image_ids[at] for at in captions.owner]
    return {
        caption_id: [
            _phrase(span, objects[image_id]) for span in spans[caption_id] if span["objects"]
        ]
        for caption_id, image_id in zip(captions.caption_ids, owners, strict=True)
    }


def _phrase(span: dict, objects: list[dict]) -> Phrase:
    said = [objects[k] for k in span["objects"]]
    kinds = {thing["kind"] for thing in said}
    boxes = np.array(
        [[thing[side] for side in ("x0", "y0", "x1", "y1")] for thing in said], np.float32
    )
    return Phrase(span["start"], span["end"], kinds.pop() if len(kinds) == 1 else _SEVERAL, boxes)


def _inside(regions: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """bool [R, n]: the region's centre is in the box."""
    centre = (regions[:, None, :2] + regions[:, None, 2:]) / 2
    return ((centre >= boxes[:, :2]) & (centre <= boxes[:, 2:])).all(2)


def _mean(results: list[Pointed]) -> Pointed:
    names = [field.name for field in fields(Pointed)][1:]
    means = (
        float(np.mean([getattr(one, name) for one in results])) if results else float("nan")
        for name in names
    )
    return Pointed(len(results), *means)

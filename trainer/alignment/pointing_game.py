"""Which region each word points at, and whether that is right: the pointing game on scenes.

A phrase that names objects (a span of meanings.arrow) points at the region most similar to it. Its
similarity is the mean over the words that take part, and a word's the mean over its word pieces.
By the first rule the phrase is right if the centre of the region lies in the true box of one of its
objects (Zhang et al. 2018 test a point against all objects of the kind). The second, stricter rule
demands an IoU of 0.5 with one of the boxes. Chance is the share of the image's regions that would
be right.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch

from capgrade.boxes import iou
from capgrade.schemas.arrow import read_arrow
from capgrade.schemas.captions import Captions
from capgrade.trainer.models.alignment import alignment_matrix
from capgrade.trainer.models.base import Encoded
from capgrade.trainer.models.text_encoder import Pieces

IOU = 0.5
_SEVERAL = "several kinds"
_TRUTH = ("scenes.arrow", "meanings.arrow")  # beside the captions of scenes


@dataclass(frozen=True)
class WordAlignment:
    """The similarities of a caption's words and an image's regions."""

    words: list[str]
    boxes: np.ndarray  # float32 [R, 4]: x1, y1, x2, y2 in pixels
    similarity: np.ndarray  # float32 [R, words], NaN for words that do not take part

    def region(self, word: int) -> int | None:
        """The most similar region; None for words that do not take part."""
        column = self.similarity[:, word]
        return None if np.isnan(column).all() else int(np.nanargmax(column))


@dataclass(frozen=True)
class Phrase:
    """Words `start` to `end` (exclusive) of a caption, which name the objects in these boxes."""

    start: int
    end: int
    kind: str  # of the objects
    boxes: np.ndarray  # float32 [objects, 4] pixels


@dataclass(frozen=True)
class PointingScore:
    """Means over phrases, in 0..1; of one phrase, its own scores."""

    phrases: int
    centre: float  # the centre of the region is in a box
    centre_chance: float
    iou: float  # the region and a box have an IoU of 0.5
    iou_chance: float


def align_words(
    images: Encoded, captions: Encoded, boxes: np.ndarray, text: str, pieces: Pieces
) -> WordAlignment:
    """The alignment of the first image and the first caption of two encodings. boxes: of the
    image's regions in pixels, float [R, 4]."""
    A = alignment_matrix(images, captions)[: len(boxes)].detach().cpu()  # [R, W]
    words = text.split()
    columns = np.full((len(boxes), len(words)), np.nan, np.float32)
    word_of_piece = np.array(pieces.words)
    takes_part = (~A.isnan()).any(0)[: len(word_of_piece)].numpy()
    for k in range(len(words)):
        if len(pieces_of_word := np.flatnonzero((word_of_piece == k) & takes_part)):
            columns[:, k] = A.numpy()[:, pieces_of_word].mean(1)
    return WordAlignment(words, np.asarray(boxes, np.float32), columns)


def score_phrase(alignment: WordAlignment, phrase: Phrase) -> PointingScore | None:
    """The scores of a phrase, the mean over its best regions if several are tied; None where no
    word of the phrase takes part, or the image has no region."""
    columns = alignment.similarity[:, phrase.start : phrase.end]
    columns = columns[:, ~np.isnan(columns).any(0)]
    if not columns.size:
        return None
    mean = columns.mean(1)
    best = mean == mean.max()
    inside = _inside(alignment.boxes, phrase.boxes).max(1)
    overlap = iou(torch.tensor(alignment.boxes), torch.tensor(phrase.boxes), caffe=False).numpy()
    near = (overlap >= IOU).max(1)  # The IoU of two boxes without area is NaN, which is not near.
    return PointingScore(
        1, *(float(x) for x in (inside[best].mean(), inside.mean(), near[best].mean(), near.mean()))
    )


def play_pointing_game(
    pairs: Iterable[tuple[WordAlignment, Sequence[Phrase]]],
) -> dict[str, PointingScore]:
    """Pointing-game accuracy and chance: "all", then each kind of object, the most frequent first.
    Phrases without a word that takes part are left out, also from `phrases`."""
    results: dict[str, list[PointingScore]] = {"all": []}
    for alignment, phrases in pairs:
        for phrase in phrases:
            if (result := score_phrase(alignment, phrase)) is not None:
                results["all"].append(result)
                results.setdefault(phrase.kind, []).append(result)
    order = sorted(results, key=lambda kind: (kind != "all", -len(results[kind]), kind))
    return {kind: _mean_of(results[kind]) for kind in order}


def read_phrases(folder: Path, captions: Captions) -> dict[str, list[Phrase]] | None:
    """caption id -> phrases; None for captions without true boxes, which only scenes have."""
    if not all((folder / name).is_file() for name in _TRUTH):
        return None
    scenes = read_arrow(folder / "scenes.arrow").select(["image_id", "objects"]).to_pylist()
    objects = {row["image_id"]: row["objects"] for row in scenes}
    meanings = read_arrow(folder / "meanings.arrow").select(["caption_id", "spans"]).to_pylist()
    spans = {row["caption_id"]: row["spans"] for row in meanings}
    owners = [captions.image_ids[image] for image in captions.owner]
    return {
        caption_id: [
            _phrase(span, objects[image_id]) for span in spans[caption_id] if span["objects"]
        ]
        for caption_id, image_id in zip(captions.caption_ids, owners, strict=True)
    }


def _phrase(span: dict, objects: list[dict]) -> Phrase:
    named = [objects[k] for k in span["objects"]]
    kinds = {scene_object["kind"] for scene_object in named}
    boxes = np.array(
        [[scene_object[side] for side in ("x0", "y0", "x1", "y1")] for scene_object in named],
        np.float32,
    )
    return Phrase(span["start"], span["end"], kinds.pop() if len(kinds) == 1 else _SEVERAL, boxes)


def _inside(regions: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """bool [R, n]: the region's centre is in the box."""
    centre = (regions[:, None, :2] + regions[:, None, 2:]) / 2
    return ((centre >= boxes[:, :2]) & (centre <= boxes[:, 2:])).all(2)


def _mean_of(results: list[PointingScore]) -> PointingScore:
    names = [field.name for field in fields(PointingScore)][1:]
    means = (
        float(np.mean([getattr(result, name) for result in results])) if results else float("nan")
        for name in names
    )
    return PointingScore(len(results), *means)

"""Where voices disagree: measures among themselves, labels and people, a model and the labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from capgrade.explorer.pairs import LabelledPairs, disagreement, ranked
from capgrade.explorer.voices import MeasureVoice
from capgrade.pipelines.agree import Judgements
from capgrade.schemas.captions import Captions

if TYPE_CHECKING:
    from capgrade.explorer.models import ModelVoice  # which loads torch

DEPTH = 10  # a model's first so many images of a caption are what it retrieves
BLOCK = 1024  # captions ranked at a time
PEOPLE, RANK = "people", "rank"


@dataclass(frozen=True)
class Finding:
    """One pair worth a look, and what each voice says of it."""

    image: int
    caption: int
    original: bool
    values: dict[str, float]


def findings(pairs: LabelledPairs, rows: np.ndarray) -> list[Finding]:
    """These rows int64 of the pairs, in their order, with all their values."""
    return [
        Finding(int(pairs.image[r]), int(pairs.caption[r]), bool(pairs.original[r]), _values(pairs, r))
        for r in rows.tolist()
    ]


def _values(pairs: LabelledPairs, row: int) -> dict[str, float]:
    return {name: float(column[row]) for name, column in pairs.values.items()}


def between(pairs: LabelledPairs, high: str, low: str, top: int) -> list[Finding]:
    """The pairs that `high` ranks highest above `low`, among those where both say something."""
    both = np.flatnonzero(np.isfinite(pairs.values[high]) & np.isfinite(pairs.values[low]))
    some = pairs.take(both)
    return findings(some, ranked(some, disagreement(some, high, low), top))


def judged(people: Judgements, voices: Sequence[MeasureVoice | ModelVoice], captions: Captions) -> LabelledPairs:
    """The judged pairs with every voice's value and people's score, named PEOPLE."""
    values = {voice.name: voice.of_pairs(people.image, people.caption) for voice in voices}
    values[PEOPLE] = people.score.astype(np.float32)
    return LabelledPairs(people.image, people.caption, values, captions.owner[people.caption] == people.image)


def first_images(model: ModelVoice, captions: Captions) -> tuple[np.ndarray, np.ndarray]:
    """The captions that the model knows together with their own image, int64 [n], and the first DEPTH images of each,
    best first, int64 [n, DEPTH] or fewer. Equal scores rank in order."""
    similarity, images = model.similarity(), np.flatnonzero(model.image >= 0)
    rows = np.flatnonzero((model.caption >= 0) & (model.image[captions.owner] >= 0))
    first = np.empty((len(rows), min(DEPTH, len(images))), np.int64)
    for at in range(0, len(rows), BLOCK):
        scores = np.asarray(similarity[:, model.caption[rows[at : at + BLOCK]]], np.float32)[model.image[images]]
        first[at : at + BLOCK] = images[np.argsort(-scores, axis=0, kind="stable")[:DEPTH].T]
    return rows, first


def retrieved(model: ModelVoice, label: MeasureVoice, captions: Captions) -> LabelledPairs:
    """The pairs of a caption with the images that a model ranks among its first DEPTH and above the caption's own
    image, with `label`'s value, the model's score, and minus the model's rank, named RANK.

    A benchmark counts each as an error; where the label is high it is a good answer.
    """
    rows, first = first_images(model, captions)
    above = np.cumsum(first == captions.owner[rows][:, None], axis=1) == 0
    query, rank = np.nonzero(above)
    image, caption = first[query, rank], rows[query]
    labels, scores = label.of_pairs(image, caption), model.of_pairs(image, caption)
    values = {label.name: labels, model.name: scores, RANK: -(rank + 1).astype(np.float32)}
    return LabelledPairs(image, caption, values, captions.owner[caption] == image)


def wrong_errors(pairs: LabelledPairs, label: str, top: int) -> list[Finding]:
    """What `retrieved` found, the pairs of highest label first."""
    return findings(pairs, ranked(pairs, pairs.values[label].astype(np.float64), top))

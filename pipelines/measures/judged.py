"""Judgements as a measure: a CSV of image_id, caption_id, score, of `capgrade judge` or `explore --export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from capgrade.pipelines.measures.base import ArrayState
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import number, read_table

COLUMNS = ("image_id", "caption_id", "score")


@dataclass(frozen=True)
class FittedJudged(ArrayState):
    """Mean scores of the judged pairs: codes int64, image * n_captions + caption, rising; values float32."""

    path: str
    n_captions: int
    image_ids: np.ndarray
    caption_ids: np.ndarray
    codes: np.ndarray
    values: np.ndarray

    @property
    def columns(self) -> int:
        """As `Fitted.columns`."""
        return self.n_captions

    def pairs(self, image: np.ndarray, caption: np.ndarray) -> np.ndarray:
        """As `Fitted.pairs`. InputError for a pair that nobody judged."""
        wanted = image * self.n_captions + caption
        at = np.searchsorted(self.codes, wanted).clip(max=len(self.codes) - 1)
        missing = np.flatnonzero(self.codes[at] != wanted)
        if len(missing):
            first = f"image '{self.image_ids[image[missing[0]]]}', caption '{self.caption_ids[caption[missing[0]]]}'"
            problem = f"{len(missing):,} of {len(wanted):,} pairs were not judged, {first} the first"
            raise InputError(problem, file=self.path, remedy="judge these pairs too: capgrade judge --pairs")
        return self.values[at]


def fit_judged(path: Path, captions: Captions) -> FittedJudged:
    """The mean of each pair's scores. InputError for another table, ids that the captions lack, and no number."""
    images = {key: k for k, key in enumerate(captions.image_ids)}
    texts = {key: k for k, key in enumerate(captions.caption_ids)}
    found: dict[int, list[float]] = {}
    for line, row in read_table(path, COLUMNS):
        found.setdefault(_code(row, images, texts, path, line), []).append(number(row["score"], path, line))
    if not found:
        raise InputError("no judgements", file=path)
    codes = np.array(sorted(found), np.int64)
    values = np.array([np.mean(found[code]) for code in codes.tolist()], np.float32)
    ids = np.array(captions.image_ids), np.array(captions.caption_ids)
    return FittedJudged(str(path), captions.n_captions, *ids, codes, values)


def _code(row: dict[str, str], images: dict[str, int], texts: dict[str, int], path: Path, line: int) -> int:
    image, caption = images.get(row["image_id"]), texts.get(row["caption_id"])
    if image is None or caption is None:
        problem = f"image '{row['image_id']}', caption '{row['caption_id']}' are not both among the captions"
        raise InputError(problem, file=path, row=line, remedy="give judgements of these captions")
    return image * len(texts) + caption

"""What is explored: the captions of a split and the pairs whose labels were kept, from either form they come in; and
the pictures, where they were given."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from capgrade.explorer.pairs import LabelledPairs, joined
from capgrade.labels import Labels
from capgrade.labels.published import params_of
from capgrade.labels.stored import Sampled
from capgrade.measures import choose
from capgrade.pipelines.pictures.lookup import PictureLookup, encoded, find
from capgrade.pipelines.sampling.plan import Plan, id_keys
from capgrade.pipelines.sampling.sampler import keep
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams
from capgrade.schemas.progress import progress
from capgrade.schemas.relevance import read_relevance

TOP, UNIFORM = 16, 16  # captions per image, where pairs are sampled here
SIDE, QUALITY = 480, 85  # of a picture: pixels of the longer side
Scores = Callable[[np.ndarray], np.ndarray]  # of some images, float32 [images, captions]


@dataclass(frozen=True)
class LabelledCorpus:
    """Captions, kept pairs with their labels, and the parameters that the labels were made with."""

    captions: Captions
    pairs: LabelledPairs
    params: MeasuresParams
    folder: Path

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over ids and texts: what a review was made on, whichever form it was read from."""
        parts = (self.captions.table[name].to_pylist() for name in ("image_id", "caption_id", "caption"))
        return hashlib.sha256("\0".join(text for column in parts for text in column).encode()).hexdigest()


def read_labels(folder: Path, split: str | None = None, captions_dir: Path | None = None) -> LabelledCorpus:
    """A split of a folder that `capgrade publish` wrote, or of its copy from the hub; or sampled shards with their
    captions folder.

    Raises InputError for an unfinished or damaged folder, an unknown split, a choice that is not made, and shards of
    other captions.
    """
    labels = Labels.load(folder.resolve(), split=split, captions=captions_dir)  # a path, no name of the hub
    if not isinstance(labels.stored, Sampled) or labels.made_with is None:
        raise InputError("no sampled labels", file=folder, remedy="give shards, or what capgrade publish wrote")
    names, parts, first = [name for name in labels.measures if name not in labels.calibrated], [], 0
    for part in labels.stored.parts:
        image = np.repeat(np.arange(first, first + len(part.start) - 1, dtype=np.int32), np.diff(part.start))
        parts.append(_labelled(labels.table, image, part.captions, {name: part.values[name] for name in names}))
        first += len(part.start) - 1
    params = params_of(labels.made_with, folder)
    return LabelledCorpus(labels.table, joined(parts), params, captions_dir or folder)


def _labelled(
    captions: Captions, image: np.ndarray, caption: np.ndarray, values: Mapping[str, np.ndarray]
) -> LabelledPairs:
    return LabelledPairs(image, caption, values, captions.owner[caption] == image)


def read_captions_only(
    captions_dir: Path, params: MeasuresParams, names: Sequence[str], relevance: Path | None, split: str | None = None
) -> LabelledCorpus:
    """A captions folder without shards: pairs are sampled here, from a folder of dense relevance where it is given,
    else from the named measures, computed now."""
    captions = read_captions(captions_dir, split)
    scores: dict[str, Scores]
    if relevance is None:
        scores = {name: measure.fit(captions).score for name, measure in choose(names, params).items()}
    else:
        stored = {path.stem: read_relevance(path) for path in sorted(relevance.glob("*.arrow"))}
        for file in stored.values():
            file.require(captions)
        scores = {name: file.rows for name, file in stored.items()}
    if not scores:
        raise InputError("no relevance file", file=relevance, remedy="make them: capgrade relevance")
    return LabelledCorpus(captions, sampled(captions, scores), params, captions_dir)


def sampled(captions: Captions, scores: Mapping[str, Scores], block: int = 64) -> LabelledPairs:
    """Of each image: its own captions, the TOP of each measure and UNIFORM others, drawn by a hash of their ids."""
    keys, caption_keys = id_keys(captions.image_ids), id_keys(captions.caption_ids)
    bounds = (0.0,) * len(scores), (1.0,) * len(scores)
    plan = Plan(*bounds, top=TOP, width=1.0, stride=1.0, per_window=0, uniform=UNIFORM, seed=0)
    parts = []
    with progress("sampling pairs", captions.n_images) as advance:
        for at in range(0, captions.n_images, block):
            images = np.arange(at, min(at + block, captions.n_images))
            own = [captions.refs[captions.ref_ptr[i] : captions.ref_ptr[i + 1]] for i in images]
            values = np.stack([of_images(images) for of_images in scores.values()])
            kept = keep(plan, keys[images], caption_keys, own, values)
            image, labels = np.repeat(images, np.diff(kept.ptr)), dict(zip(scores, kept.values, strict=True))
            parts.append(_labelled(captions, image, kept.caption, labels))
            advance(len(images))
    return joined(parts)


class Thumbnails:
    """JPEG bytes of an image by its number, from a folder, a zip, a list or a URL template (`lookup.py`)."""

    def __init__(self, captions: Captions, source: str | Path | None) -> None:
        self.ids = captions.image_ids
        self.pictures = PictureLookup("", {}) if source is None else find(captions, source)
        self.jpeg = lru_cache(maxsize=1024)(self._jpeg)
        if source is not None:  # one warning for all that have none
            for image_id in self.ids:
                if image_id not in self.pictures:
                    self.pictures.read(image_id)
            self.pictures.asked.update(self.ids)
            self.pictures.tell()

    def __contains__(self, image: int) -> bool:
        return 0 <= image < len(self.ids) and self.ids[image] in self.pictures

    def _jpeg(self, image: int) -> bytes:
        """InputError for a picture that is not there or damaged, or whose address does not answer."""
        picture = self.pictures.image(self.ids[image]) if image in self else None
        if picture is None:
            raise InputError(f"no picture of image {image}")
        return encoded(picture, SIDE, "JPEG", QUALITY)

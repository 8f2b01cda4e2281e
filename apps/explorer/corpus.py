"""What is explored: the captions of a split and their labelled pairs, from sampled labels or from
dense relevance."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from capgrade.kernels import id_keys
from capgrade.labels import Labels
from capgrade.labels.stored import Sampled
from capgrade.measures import MeasuresParams
from capgrade.measures.refit import params_of
from capgrade.pipelines.sampling.sampler import Plan, keep
from capgrade.schemas.captions import Captions
from capgrade.schemas.pairs import Pairs
from capgrade.schemas.progress import progress

_TOP, _UNIFORM = 16, 16  # captions per image that `sample_pairs` keeps
Scores = Callable[[np.ndarray], np.ndarray]  # of some images, float32 [images, captions]


@dataclass(frozen=True)
class LabelledCorpus:
    """Captions, kept pairs with their labels, and the parameters that the labels were made with."""

    captions: Captions
    pairs: Pairs
    params: MeasuresParams
    folder: Path
    inputs: Mapping[str, str] = field(default_factory=dict)  # digests of files that measures read

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over ids and texts, by which a review knows its captions in any form."""
        parts = (
            self.captions.table[name].to_pylist() for name in ("image_id", "caption_id", "caption")
        )
        return hashlib.sha256(
            "\0".join(text for column in parts for text in column).encode()
        ).hexdigest()


def read_labels(
    folder: Path, params: MeasuresParams, split: str | None = None, captions_dir: Path | None = None
) -> LabelledCorpus:
    """A split of a folder that `capgrade publish` wrote, or of a dataset USER/NAME; or, with
    `captions_dir`, of shards or dense relevance. Of dense relevance, pairs are sampled. Of a
    dataset that has ids alone, `captions_dir` has the texts.

    Raises InputError for an unfinished or damaged folder, for an unknown split or none of several,
    for captions that the labels were not made for, and for captions without texts.
    """
    labels = Labels.load(folder, split=split, captions=captions_dir)
    captions, made_with, stored = labels.table, labels.made_with or {}, labels.stored
    captions.require_texts(folder)
    if not isinstance(stored, Sampled):
        rows = {name: partial(stored.rows, measure=name) for name in labels.measures}
        return LabelledCorpus(
            captions, sample_pairs(captions, rows), params, captions_dir or folder
        )
    pairs = Pairs.concatenate(stored.tables(*made_with))
    return LabelledCorpus(
        captions,
        pairs,
        params_of(made_with, Path(labels.file)),
        captions_dir or Path(labels.file),
        labels.inputs,
    )


def sample_pairs(captions: Captions, scores: Mapping[str, Scores], block: int = 64) -> Pairs:
    """Pairs of each image with its own captions, the _TOP of each measure, and _UNIFORM others that
    are drawn by a hash of their ids. `scores` have each measure's rows of some images."""
    keys, caption_keys = id_keys(captions.image_ids), id_keys(captions.caption_ids)
    bounds = (0.0,) * len(scores), (1.0,) * len(scores)
    plan = Plan(*bounds, top=_TOP, width=1.0, stride=1.0, per_window=0, uniform=_UNIFORM, seed=0)
    parts = []
    with progress("sampling pairs", captions.n_images) as advance:
        for start in range(0, captions.n_images, block):
            images = np.arange(start, min(start + block, captions.n_images))
            own = [captions.refs[captions.ref_ptr[i] : captions.ref_ptr[i + 1]] for i in images]
            values = {name: of_images(images) for name, of_images in scores.items()}
            kept = keep(plan, keys[images], caption_keys, own, values)
            parts.append(kept.pairs(start, list(scores)))
            advance(len(images))
    return Pairs.concatenate(parts)

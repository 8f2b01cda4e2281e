"""ECCV Caption's human-verified positives of COCO's 5K test split as judgements: yes, beside pairs that none listed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from capgrade.pipelines.agreement.ratings import Judgements
from capgrade.schemas.captions import Captions
from capgrade.schemas.eccv_lists import lists_folder, read_lists
from capgrade.schemas.errors import InputError
from capgrade.schemas.inputs import folder_digest
from capgrade.schemas.judges import SHARES

NAME = "eccv"
OTHERS = 100  # pairs drawn beside each annotated image or caption
SAMPLED = f"ECCV Caption lists positives alone; a `no` is one of {OTHERS} random pairs per query"


def eccv_judgements(captions: Captions, seed: int = 0) -> Judgements:
    """1 for each pair that ECCV Caption lists for an annotated image or caption (Chun et al. 2022, the package's
    `eccv_*.json`), 0 for the rest of OTHERS pairs of each, drawn uniformly by `seed`: what neither of its lists has.

    Given pairs are among the positives; two listed captions are not in the split, and are left out. InputError without
    the package, and for captions that are not COCO's 5K.
    """
    images, texts, n = captions.image_ids, captions.caption_ids, captions.n_captions
    image, of_image, caption_of = _pairs("image_to_caption", images, texts)
    caption, of_caption, image_of = _pairs("caption_to_image", texts, images)
    random = np.random.default_rng(seed)
    other = [image * n + random.choice(n, min(OTHERS, n), replace=False) for image in image]
    other += [random.choice(len(images), min(OTHERS, len(images)), replace=False) * n + c for c in caption]
    yes = np.unique(np.concatenate([of_image * n + caption_of, image_of * n + of_caption]))
    no = np.setdiff1d(np.concatenate(other), yes)  # each pair once
    score = np.repeat([1.0, 0.0], [len(yes), len(no)])
    return Judgements(*np.divmod(np.concatenate([yes, no]), n), score, uncalibrated=SAMPLED, scale=SHARES)


def lists_digest() -> str:
    """SHA-256 of the two lists."""
    return folder_digest(lists_folder(), lists_folder().glob(f"{NAME}_*.json"))


def _pairs(way: str, queries: Sequence[str], items: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The annotated queries, and query and item of each listed pair: their numbers, int64."""
    query_at, item_at = ({key: k for k, key in enumerate(keys)} for keys in (queries, items))
    lists = read_lists(f"{NAME}_{way}.json")
    missing = lists.keys() - query_at.keys()
    if missing:
        remedy = "use the MS-COCO 5K test split with COCO's ids"
        raise InputError(f"id {min(missing)} of ECCV Caption is not in the captions table", remedy=remedy)
    pairs = [(query_at[q], item_at[str(x)]) for q, found in lists.items() for x in found if str(x) in item_at]
    query, item = np.array(pairs, np.int64).T
    return np.array([query_at[q] for q in lists]), query, item

"""Which pairs people are to rate: where a rating tells most, or SemanticMap's protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from capgrade.explorer.pairs import LabelledPairs, ranked
from capgrade.explorer.voices import DEPTH
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_json, write_text
from capgrade.schemas.output import refuse_foreign
from capgrade.schemas.reviews import INFORMATION, PLAN, SEMANTIC_MAP, Item, Plan, read_plan

if TYPE_CHECKING:
    from capgrade.explorer.models import ModelVoice  # which loads torch


def information(pairs: LabelledPairs) -> np.ndarray:
    """Bits that a rating gives on which voice is right: Jensen-Shannon divergence, float64 [n] in [0, 1].

    Each voice's rank share is its forecast p that the pair is relevant; H(mean p) - mean H(p), the disagreement of a
    committee (Houlsby et al. 2011, "Bayesian active learning for classification", eq. 2). It is 0 where all agree, also
    where all are unsure. InputError for a single voice, because it cannot disagree.
    """
    if len(pairs.values) < 2:
        raise InputError(f"{len(pairs.values)} measure to compare", remedy="give labels of two measures or more")
    forecasts = np.stack([pairs.shares(name) for name in pairs.values])
    return _entropy(forecasts.mean(axis=0)) - _entropy(forecasts).mean(axis=0)


def _entropy(p: np.ndarray) -> np.ndarray:
    return -(p * np.log2(p) + (1 - p) * np.log2(1 - p))


def most_informative(pairs: LabelledPairs, captions: Captions, corpus: str, count: int, seed: int) -> Plan:
    """The pairs of most information that are not original, each caption and each image once."""
    others = pairs.take(np.flatnonzero(~pairs.original))
    mixed = others.take(np.random.default_rng(seed).permutation(len(others)))  # equal ones by chance
    chosen = mixed.take(ranked(mixed, information(mixed), count, per_item=1))
    items = tuple(
        Item(captions.image_ids[i], captions.caption_ids[c])
        for i, c in zip(chosen.image.tolist(), chosen.caption.tolist(), strict=True)
    )
    return Plan(INFORMATION, corpus, seed, items, {"measures": list(pairs.values)})


def misses_again(model: ModelVoice, captions: Captions, corpus: str, count: int, seed: int) -> Plan:
    """SemanticMap: people look again at the first ten images of captions whose own image is not among them, `count`
    such captions drawn by the seed. `facts` hold all captions searched and the hits."""
    rows, first = model.first_images(captions)
    missed = np.flatnonzero((first != captions.owner[rows][:, None]).all(axis=1))
    if not len(missed):
        raise InputError(f"'{model.name}' misses no caption at {DEPTH}", remedy="nothing is left to judge again")
    drawn = sorted(np.random.default_rng(seed).permutation(missed)[:count].tolist())
    items = tuple(
        Item(captions.image_ids[i], captions.caption_ids[rows[k]], captions.caption_ids[rows[k]])
        for k in drawn
        for i in first[k].tolist()
    )
    facts = {"model": model.name, "k": DEPTH, "queries": len(rows), "hits": len(rows) - len(missed)}
    return Plan(SEMANTIC_MAP, corpus, seed, items, facts)


def write_plan(folder: Path, plan: Plan) -> None:
    """InputError when the folder holds another plan, whose ratings are of other pairs, or anything else."""
    if not (folder / PLAN).exists():
        refuse_foreign(folder, "review")
    elif read_plan(folder).key != plan.key:
        raise InputError("holds another review", file=folder, remedy="give another folder")
    write_json(folder / PLAN, {**plan.json(), "kind": "review"})


FILE = "pairs.jsonl"


def write_lines(folder: Path, plan: Plan, captions: Captions) -> None:
    """image_id, image_file, caption_id, caption, captions (the image's, without this one), and of a pooled pair its
    stratum and the probability with which it was chosen."""
    image_at = {key: k for k, key in enumerate(captions.image_ids)}
    caption_at = {key: k for k, key in enumerate(captions.caption_ids)}
    files = captions.table["image_file"]
    lines = []
    for item in plan.items:
        image, caption = image_at[item.image_id], caption_at[item.caption_id]
        own = captions.refs[captions.ref_ptr[image] : captions.ref_ptr[image + 1]].tolist()
        line = {
            "image_id": item.image_id,
            "image_file": files[own[0]].as_py(),
            "caption_id": item.caption_id,
            "caption": captions.texts[caption],
            "captions": [captions.texts[c] for c in own if c != caption],
        }
        if item.stratum is not None:
            line |= {"stratum": item.stratum, "probability": plan.probability(item)}
        lines.append(json.dumps(line, ensure_ascii=False))
    write_text(folder / FILE, "".join(f"{line}\n" for line in lines))

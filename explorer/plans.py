"""Which pairs people are to rate: where a rating tells most, SemanticMap's protocol, or a pool of
known probabilities.

Of a pool all pairs but the given ones fall into three strata. `pool`: among the best few of a label
for an image, or of a model for an image or a caption (the pooling of TREC; Sparck Jones and van
Rijsbergen 1975). `uncertain`: of the other pairs that have labels, those on which labels and models
disagree most; all of them are chosen. `random`: every other pair. Within a stratum each pair is as
likely to be chosen as any other, and what is rated of them tells of all pairs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import binomtest

from capgrade.explorer.pairs import LabelledPairs, ranked
from capgrade.explorer.voices import DEPTH
from capgrade.metrics.pools import best_cells
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_json, write_text
from capgrade.schemas.output import refuse_foreign
from capgrade.schemas.reviews import (
    INFORMATION,
    LINES,
    PLAN,
    POOL,
    SEMANTIC_MAP,
    Item,
    ReviewPlan,
    read_plan,
)

if TYPE_CHECKING:
    from capgrade.explorer.voices import MatrixVoice

STRATA = ("pool", "uncertain", "random")


def information(pairs: LabelledPairs) -> np.ndarray:
    """Bits that a rating gives on which voice is right: Jensen-Shannon divergence, float64 [n] in
    [0, 1].

    Each voice's rank share is its forecast p that the pair is relevant; H(mean p) - mean H(p), the
    disagreement of a committee (Houlsby et al. 2011, "Bayesian active learning for classification",
    eq. 2). It is 0 where all agree, also where all are unsure. InputError for a single voice,
    because it cannot disagree.
    """
    if len(pairs.values) < 2:
        raise InputError(
            f"{len(pairs.values)} measure to compare", remedy="give labels of two measures or more"
        )
    forecasts = np.stack([pairs.shares(name) for name in pairs.values])
    return _entropy(forecasts.mean(axis=0)) - _entropy(forecasts).mean(axis=0)


def _entropy(p: np.ndarray) -> np.ndarray:
    return -(p * np.log2(p) + (1 - p) * np.log2(1 - p))


def most_informative(
    pairs: LabelledPairs, captions: Captions, corpus: str, count: int, seed: int
) -> ReviewPlan:
    """The pairs of most information that are not original, each caption and each image once."""
    others = pairs.take(np.flatnonzero(~pairs.original))
    chosen = others.take(_unsure(others, count, np.random.default_rng(seed)))
    items = tuple(
        Item(captions.image_ids[i], captions.caption_ids[c])
        for i, c in zip(chosen.image.tolist(), chosen.caption.tolist(), strict=True)
    )
    return ReviewPlan(INFORMATION, corpus, seed, items, {"measures": list(pairs.values)})


def misses_again(
    model: MatrixVoice,
    captions: Captions,
    corpus: str,
    count: int,
    seed: int,
    way: str = "i2t",
    gallery: int | None = None,
) -> ReviewPlan:
    """SemanticMap (section 6): people look again at what a query that misses found, `count` such
    queries drawn by the seed. i2t: the first ten captions of images none of whose captions is among
    them; t2i: the first ten images of captions whose image is not. `gallery`: the first so many
    images and their captions alone. `facts` hold all queries and the hits."""
    firsts = {"i2t": model.first_captions, "t2i": model.first_images}[way]
    rows, first = firsts(captions, gallery)
    images = captions.owner[first] if way == "i2t" else first  # of what was found
    own = rows if way == "i2t" else captions.owner[rows]
    missed = np.flatnonzero((images != own[:, None]).all(axis=1))
    if not len(missed):
        what = "image" if way == "i2t" else "caption"
        raise InputError(
            f"'{model.name}' misses no {what} at {DEPTH}", remedy="nothing is left to judge again"
        )
    drawn = sorted(np.random.default_rng(seed).permutation(missed)[:count].tolist())
    ids = captions.image_ids if way == "i2t" else captions.caption_ids
    items = []
    for k in drawn:
        for found in first[k].tolist():
            image, caption = (rows[k], found) if way == "i2t" else (found, rows[k])
            items.append(
                Item(captions.image_ids[image], captions.caption_ids[caption], ids[rows[k]])
            )
    facts = {"model": model.name, "k": DEPTH, "queries": len(rows), "hits": len(rows) - len(missed)}
    searched = len(rows) if way == "i2t" else len(np.unique(own))
    return ReviewPlan(
        SEMANTIC_MAP, corpus, seed, tuple(items), {**facts, "direction": way, "images": searched}
    )


def write_plan(folder: Path, plan: ReviewPlan) -> None:
    """InputError for a plan of no pair, and when the folder holds another plan, whose ratings are
    of other pairs, or anything else."""
    if not plan.items:
        problem = "no caption of another image is there to rate"
        raise InputError(problem, remedy="give captions of two images or more")
    if not (folder / PLAN).exists():
        refuse_foreign(folder, "review")
    elif read_plan(folder).key != plan.key:
        raise InputError("holds another review", file=folder, remedy="give another folder")
    write_json(folder / PLAN, {**plan.json(), "kind": "review"})


def write_lines(folder: Path, plan: ReviewPlan, captions: Captions) -> None:
    """image_id, image_file, caption_id, caption, captions (the image's, of which this is none), and
    of a pooled pair its stratum and the probability with which it was chosen."""
    files = captions.table["image_file"]
    lines = []
    for item in plan.items:
        image, caption = (
            captions.image_numbers[item.image_id],
            captions.caption_numbers[item.caption_id],
        )
        own = captions.rows_of(image)
        line = {
            "image_id": item.image_id,
            "image_file": files[own[0]].as_py(),
            "caption_id": item.caption_id,
            "caption": captions.texts[caption],
            "captions": [captions.texts[c] for c in own],
        }
        if item.stratum is not None:
            line |= {"stratum": item.stratum, "probability": plan.probability(item)}
        lines.append(json.dumps(line, ensure_ascii=False))
    write_text(folder / LINES, "".join(f"{line}\n" for line in lines))


def pooled(
    pairs: LabelledPairs,
    models: Mapping[str, np.ndarray],
    captions: Captions,
    corpus: str,
    depth: int,
    count: int,
    seed: int,
) -> ReviewPlan:
    """A plan of `count` pairs, a third of each stratum where it has as many. `models` are
    similarities, images x captions; with one label and no model nothing can disagree, and there are
    no uncertain pairs."""
    random, width = np.random.default_rng(seed), captions.n_captions
    given = captions.owner * width + np.arange(width)
    others = pairs.take(np.flatnonzero(~pairs.original))
    codes = others.image.astype(np.int64) * width + others.caption
    best = []
    for values in others.values.values():  # the highest of each image
        known = np.flatnonzero(np.isfinite(values))
        order = known[np.lexsort((-values[known], others.image[known]))]
        # where the image's rows begin
        first = np.searchsorted(others.image[order], others.image[order])
        best.append(codes[order[np.arange(len(order)) - first < depth]])
    own = captions.owner, np.arange(width)
    best += [part for S in models.values() for part in best_cells(S, depth, own)]
    pool = np.unique(np.concatenate(best))
    rest = np.flatnonzero(~np.isin(codes, pool))
    voices = others.take(rest)
    scores = {
        f"by {name}": np.asarray(S[voices.image, voices.caption], np.float32)
        for name, S in models.items()
    }
    voices = replace(voices, values={**voices.values, **scores})
    several = len(voices.values) > 1
    unsure = codes[rest][_unsure(voices, count // 3, random)] if several else np.empty(0, np.int64)
    taken = np.unique(np.concatenate([given, pool, unsure]))
    from_pool = random.permutation(pool)[: count - 2 * (count // 3)]
    left = captions.n_images * width - len(taken)
    drawn = _drawn(
        captions.n_images * width, taken, min(left, count - len(from_pool) - len(unsure)), random
    )
    chosen = dict(zip(STRATA, (from_pool, unsure, drawn), strict=True))
    sizes = dict(zip(STRATA, (len(pool), len(unsure), left), strict=True))
    facts = {
        "measures": list(pairs.values),
        "models": list(models),
        "depth": depth,
        "images": captions.n_images,
        "strata": {name: {"pairs": sizes[name], "chosen": len(chosen[name])} for name in STRATA},
    }
    stratum = {int(code): name for name, some in chosen.items() for code in some}
    items = tuple(
        Item(
            captions.image_ids[code // width],
            captions.caption_ids[code % width],
            stratum=stratum[code],
        )
        for code in sorted(stratum)  # in an order that tells nothing
    )
    return ReviewPlan(POOL, corpus, seed, items, facts)


def _unsure(pairs: LabelledPairs, count: int, random: np.random.Generator) -> np.ndarray:
    """Rows of the pairs of most information, each caption and each image once; of a pair that not
    every voice knows there is no telling."""
    known = np.all([np.isfinite(values) for values in pairs.values.values()], axis=0)
    mixed = random.permutation(np.flatnonzero(known))  # equal ones by chance
    shuffled = pairs.take(mixed)
    return mixed[ranked(shuffled, information(shuffled), count, per_item=1)]


def _drawn(size: int, taken: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """`count` of the numbers below `size` that are not among `taken`, which rise, each as
    likely."""
    place = random.choice(size - len(taken), count, replace=False)  # among those that are left
    return place + np.searchsorted(taken - np.arange(len(taken)), place, side="right")


def accepted_per_image(
    plan: ReviewPlan, table: Mapping[int, float], accept: float
) -> dict[str, float] | None:
    """accepted, low and high (Wilson: 95 % of each stratum), from a rater's item -> score; None
    while a stratum has no rating."""
    total = below = above = 0.0
    for name, facts in plan.facts["strata"].items():
        size = facts["pairs"]
        given = [
            table[k] >= accept
            for k, item in enumerate(plan.items)
            if item.stratum == name and k in table
        ]
        if not size:
            continue
        if not given:
            return None
        share = sum(given) / len(given)
        interval = binomtest(sum(given), len(given)).proportion_ci(0.95, "wilson")
        low, high = (share, share) if len(given) == size else (interval.low, interval.high)
        total += size * share
        below += (size * (share - low)) ** 2
        above += (size * (high - share)) ** 2
    images = plan.facts["images"]
    low, high = max(0.0, total - math.sqrt(below)), total + math.sqrt(above)
    return {"accepted": total / images, "low": low / images, "high": high / images}

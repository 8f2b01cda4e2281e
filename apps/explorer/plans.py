"""Which pairs people are to rate: those where a rating is most informative, those of SemanticMap's
protocol, or a sample with known probabilities.

That sample is of all pairs but an image with its own captions, in three strata. `pool`: the best
few pairs of each image by a label, and of each image and caption by a model (pooling as in TREC;
Sparck Jones and van Rijsbergen 1975). `uncertain`: those of the other labelled pairs on which
labels and models disagree most; all of them are chosen. `random`: every other pair. Within a
stratum each pair is equally likely to be chosen, so that ratings estimate counts over all pairs.
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

from capgrade.apps.explorer.pairs import rank_pairs, rank_shares
from capgrade.apps.explorer.voices import DEPTH
from capgrade.metrics.pools import best_cells
from capgrade.pipelines.sources.rows import kind_of, open_rows
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_json, write_text
from capgrade.schemas.output import refuse_foreign
from capgrade.schemas.pairs import Pairs
from capgrade.schemas.reviews import (
    INFORMATION,
    LINES,
    LISTED,
    PLAN,
    POOL,
    SEMANTIC_MAP,
    Item,
    ReviewPlan,
    read_plan,
)

if TYPE_CHECKING:
    from capgrade.apps.explorer.voices import MatrixVoice

STRATA = ("pool", "uncertain", "random")
_IDS = ("image_id", "caption_id")  # columns of a list of pairs


def information_of(pairs: Pairs) -> np.ndarray:
    """Bits that a rating gives on which voice is right: Jensen-Shannon divergence, float64 [n] in
    [0, 1]. Each voice's rank share is its forecast p that the pair is relevant, and the information
    is H(mean p) - mean H(p) (Houlsby et al. 2011, "Bayesian active learning for classification",
    eq. 2). It is 0 where all voices agree, even on p = 1/2. InputError for a single voice."""
    if len(pairs.values) < 2:
        raise InputError(
            f"{len(pairs.values)} measure to compare", remedy="give labels of two measures or more"
        )
    forecasts = np.stack([rank_shares(values) for values in pairs.values.values()])
    return _entropy(forecasts.mean(axis=0)) - _entropy(forecasts).mean(axis=0)


def _entropy(p: np.ndarray) -> np.ndarray:
    return -(p * np.log2(p) + (1 - p) * np.log2(1 - p))


def plan_most_informative(
    pairs: Pairs, captions: Captions, corpus: str, count: int, seed: int
) -> ReviewPlan:
    """A plan of the most informative pairs that are not original, each caption and each image
    once."""
    others = pairs.take(np.flatnonzero(~pairs.is_own(captions.owner)))
    chosen = others.take(_most_informative_rows(others, count, np.random.default_rng(seed)))
    items = tuple(
        Item(captions.image_ids[i], captions.caption_ids[c])
        for i, c in zip(chosen.image.tolist(), chosen.caption.tolist(), strict=True)
    )
    return ReviewPlan(INFORMATION, corpus, seed, items, {"measures": list(pairs.values)})


def plan_listed(file: Path, captions: Captions, corpus: str, seed: int) -> ReviewPlan:
    """A plan of the pairs that a table lists by image_id and caption_id, as `audit` and `regrade`
    write it. InputError for an id that the captions do not have, and for a pair that comes twice.
    """
    rows = open_rows(file, kind_of(file))
    items: dict[Item, int | str] = {}
    for row, pair in [] if rows is None else rows.read(_IDS):
        item = Item(*(str(pair[name]) for name in _IDS))
        for name, known in zip(
            _IDS, (captions.image_numbers, captions.caption_numbers), strict=True
        ):
            if getattr(item, name) not in known:
                problem = f"{name} '{getattr(item, name)}' is not in the captions"
                raise InputError(problem, file=file, row=row, remedy="name their --split")
        if item in items:
            problem = f"the pair of row {items[item]} again"
            raise InputError(problem, file=file, row=row, remedy="list each pair once")
        items[item] = row
    return ReviewPlan(LISTED, corpus, seed, tuple(items), {"file": file.name})


def plan_misses(
    model: MatrixVoice,
    captions: Captions,
    corpus: str,
    count: int,
    seed: int,
    direction: str = "i2t",
    gallery: int | None = None,
) -> ReviewPlan:
    """SemanticMap (section 6): people rate the first ten results of queries without an own item
    among them; `count` such queries are drawn by the seed. Queries are images for i2t, captions for
    t2i. `gallery`: search only the first so many images and their captions. `facts` hold the
    numbers of all queries and of hits. InputError where no query misses."""
    retrieve = {"i2t": model.retrieve_captions, "t2i": model.retrieve_images}[direction]
    rows, ranked = retrieve(captions, gallery)
    images_of_results = captions.owner[ranked] if direction == "i2t" else ranked
    own = rows if direction == "i2t" else captions.owner[rows]
    missed = np.flatnonzero((images_of_results != own[:, None]).all(axis=1))
    if not len(missed):
        what = "image" if direction == "i2t" else "caption"
        raise InputError(
            f"'{model.name}' misses no {what} at {DEPTH}", remedy="nothing is left to judge again"
        )
    drawn = sorted(np.random.default_rng(seed).permutation(missed)[:count].tolist())
    ids = captions.image_ids if direction == "i2t" else captions.caption_ids
    items = []
    for k in drawn:
        for retrieved in ranked[k].tolist():
            image, caption = (rows[k], retrieved) if direction == "i2t" else (retrieved, rows[k])
            items.append(
                Item(captions.image_ids[image], captions.caption_ids[caption], ids[rows[k]])
            )
    facts = {"model": model.name, "k": DEPTH, "queries": len(rows), "hits": len(rows) - len(missed)}
    n_images = len(rows) if direction == "i2t" else len(np.unique(own))
    facts |= {"direction": direction, "images": n_images}
    return ReviewPlan(SEMANTIC_MAP, corpus, seed, tuple(items), facts)


def write_plan(folder: Path, plan: ReviewPlan) -> None:
    """Write a plan to a review's folder. InputError for a plan without pairs, and when the folder
    holds another plan, whose ratings are of other pairs, or anything else."""
    if not plan.items:
        problem = "no pair is there to rate"
        raise InputError(problem, remedy="give captions of two images or more, or a list of pairs")
    if not (folder / PLAN).exists():
        refuse_foreign(folder, "review")
    elif read_plan(folder).key != plan.key:
        raise InputError("holds another review", file=folder, remedy="give another folder")
    write_json(folder / PLAN, {**plan.json(), "kind": "review"})


def write_lines(folder: Path, plan: ReviewPlan, captions: Captions) -> None:
    """Write the plan's pairs as JSON lines: image_id, image_file, caption_id, caption, captions
    (the image's own), and of a pooled pair its stratum and the probability of being chosen."""
    files = captions.table["image_file"]
    lines = []
    for item in plan.items:
        image = captions.image_numbers[item.image_id]
        caption = captions.caption_numbers[item.caption_id]
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


def plan_pool(
    pairs: Pairs,
    models: Mapping[str, np.ndarray],
    captions: Captions,
    corpus: str,
    depth: int,
    count: int,
    seed: int,
) -> ReviewPlan:
    """A plan of `count` pairs, a third from each stratum if it has as many. `models` are
    similarities, images x captions; with one label and no model no pair is uncertain, because there
    is nothing to disagree."""
    random, width = np.random.default_rng(seed), captions.n_captions
    own_codes = captions.owner * width + np.arange(width)
    others = pairs.take(np.flatnonzero(~pairs.is_own(captions.owner)))
    codes = others.image.astype(np.int64) * width + others.caption
    pool_parts = []
    for values in others.values.values():
        known = np.flatnonzero(np.isfinite(values))
        # The highest values of each image come first among its rows, which begin at `first`.
        order = known[np.lexsort((-values[known], others.image[known]))]
        first = np.searchsorted(others.image[order], others.image[order])
        pool_parts.append(codes[order[np.arange(len(order)) - first < depth]])
    own = captions.owner, np.arange(width)
    pool_parts += [part for S in models.values() for part in best_cells(S, depth, own)]
    pool = np.unique(np.concatenate(pool_parts))
    rest = np.flatnonzero(~np.isin(codes, pool))
    rest_pairs = others.take(rest)
    scores = {
        f"by {name}": np.asarray(S[rest_pairs.image, rest_pairs.caption], np.float32)
        for name, S in models.items()
    }
    rest_pairs = replace(rest_pairs, values={**rest_pairs.values, **scores})
    unsure = np.empty(0, np.int64)
    if len(rest_pairs.values) > 1:
        unsure = codes[rest][_most_informative_rows(rest_pairs, count // 3, random)]
    known_codes = np.unique(np.concatenate([own_codes, pool, unsure]))
    from_pool = random.permutation(pool)[: count - 2 * (count // 3)]
    all_pairs = captions.n_images * width
    left = all_pairs - len(known_codes)
    n_random = min(left, count - len(from_pool) - len(unsure))
    from_rest = _draw_others(all_pairs, known_codes, n_random, random)
    chosen = dict(zip(STRATA, (from_pool, unsure, from_rest), strict=True))
    sizes = dict(zip(STRATA, (len(pool), len(unsure), left), strict=True))
    facts = {
        "measures": list(pairs.values),
        "models": list(models),
        "depth": depth,
        "images": captions.n_images,
        "strata": {name: {"pairs": sizes[name], "chosen": len(chosen[name])} for name in STRATA},
    }
    stratum = {int(code): name for name, its_codes in chosen.items() for code in its_codes}
    # Items are in the order of their codes: an order by stratum would tell raters what to expect.
    items = tuple(
        Item(
            captions.image_ids[code // width],
            captions.caption_ids[code % width],
            stratum=stratum[code],
        )
        for code in sorted(stratum)
    )
    return ReviewPlan(POOL, corpus, seed, items, facts)


def _most_informative_rows(pairs: Pairs, count: int, random: np.random.Generator) -> np.ndarray:
    """Rows of the most informative pairs, each caption and each image once. Pairs that not every
    voice knows are left out: their information cannot be told."""
    known = np.all([np.isfinite(values) for values in pairs.values.values()], axis=0)
    # Pairs of equal information are chosen by chance, not in their order.
    order = random.permutation(np.flatnonzero(known))
    shuffled = pairs.take(order)
    return order[rank_pairs(shuffled, information_of(shuffled), count, per_item=1)]


def _draw_others(
    size: int, excluded: np.ndarray, count: int, random: np.random.Generator
) -> np.ndarray:
    """`count` random numbers below `size` that are not among `excluded`, which is sorted."""
    positions = random.choice(
        size - len(excluded), count, replace=False
    )  # among those that are left
    return positions + np.searchsorted(excluded - np.arange(len(excluded)), positions, side="right")


def estimate_accepted(
    plan: ReviewPlan, table: Mapping[int, float], accept: float
) -> dict[str, float] | None:
    """Captions per image that a rater accepts, from item -> score: accepted, low and high, by the
    95 % Wilson intervals of the strata; None while a stratum has no rating."""
    total = below = above = 0.0
    for name, facts in plan.facts["strata"].items():
        size = facts["pairs"]
        accepted = [
            table[k] >= accept
            for k, item in enumerate(plan.items)
            if item.stratum == name and k in table
        ]
        if not size:
            continue
        if not accepted:
            return None
        share = sum(accepted) / len(accepted)
        interval = binomtest(sum(accepted), len(accepted)).proportion_ci(0.95, "wilson")
        low, high = (share, share) if len(accepted) == size else (interval.low, interval.high)
        total += size * share
        below += (size * (share - low)) ** 2
        above += (size * (high - share)) ** 2
    images = plan.facts["images"]
    low, high = max(0.0, total - math.sqrt(below)), total + math.sqrt(above)
    return {"accepted": total / images, "low": low / images, "high": high / images}

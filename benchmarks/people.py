"""`people_shared` beside `people` on judgements: agreement, and intervals of the gain by paired draws of images.

What captions share may be learnt from other captions (`--learn`), or from some of the images (`--images`).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import stats

from capgrade.pipelines.agreement.coefficients import coefficients, image_draws
from capgrade.pipelines.agreement.kendall import Ranked
from capgrade.pipelines.agreement.ratings import Judgements
from capgrade.pipelines.agreement.read import read_judgements
from capgrade.pipelines.measures import choose
from capgrade.pipelines.measures.embeddings import EMBEDDED, embed
from capgrade.pipelines.measures.mixture import FittedMixture
from capgrade.pipelines.measures.sbert_shared import shared, shared_map
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams

NAMES, DRAWS = ("people", "people_shared"), 200


def compare(captions: Captions, people: Judgements, learn: Captions | None = None) -> dict[str, Any]:
    """measure -> coefficient -> scope -> value, and "gain" of r and tau-b on non-original pairs: [low, high]."""
    values = {}
    for name, measure in choose(NAMES, MeasuresParams()).items():
        fitted = measure.fit(captions)
        if name == "people_shared" and learn is not None:
            fitted = _learnt(fitted, captions, learn)  # type: ignore[arg-type]
        values[name] = fitted.pairs(people.image, people.caption)
    original = captions.owner[people.caption] == people.image
    found: dict[str, Any] = {name: coefficients(one, people, original) for name, one in values.items()}
    return {**found, "gain": _gain(values, people, ~original)}


def some_images(captions: Captions, images: int) -> Captions:
    """A few images drawn at random, with all their captions."""
    drawn = np.random.default_rng(0).choice(captions.n_images, min(images, captions.n_images), replace=False)
    return dataclasses.replace(captions, table=captions.table.filter(pa.array(np.isin(captions.owner, drawn))))


def _learnt(fitted: FittedMixture, captions: Captions, learn: Captions) -> FittedMixture:
    """The same with the map of other captions."""
    root = shared_map(embed(learn.texts, EMBEDDED), learn)
    mapped = shared(embed(captions.texts, EMBEDDED), *root)
    parts = {
        name: dataclasses.replace(part, embeddings=mapped) if name.startswith("sbert_shared") else part  # type: ignore[type-var]
        for name, part in fitted.parts.items()
    }
    return FittedMixture(parts, fitted.weights)


def _gain(values: dict[str, np.ndarray], people: Judgements, scope: np.ndarray) -> dict[str, list[float]]:
    row, draws = image_draws(people.image, DRAWS, 0)
    (before, after), score, row = (values[name][scope] for name in NAMES), people.score[scope], row[scope]
    ranked = [Ranked(one, score) for one in (before, after)]
    apart: dict[str, list[float]] = {"pearson": [], "kendall": []}
    for draw in draws:
        times = draw[row]
        again = np.repeat(np.arange(len(row)), times.astype(int))
        r, r_after = (stats.pearsonr(one[again], score[again]).statistic for one in (before, after))
        apart["pearson"].append(r_after - r)
        apart["kendall"].append(ranked[1].taus(times).b - ranked[0].taus(times).b)
    return {name: np.quantile(drawn, (0.025, 0.975)).tolist() for name, drawn in apart.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--captions", type=Path, required=True)
    parser.add_argument("--judgements", type=Path, required=True, help="as capgrade agree takes them")
    parser.add_argument("--learn", type=Path, help="captions to learn from what captions share, instead of these")
    parser.add_argument("--images", type=int, help="learn from so many images, drawn at random")
    args = parser.parse_args()
    try:
        captions = read_captions(args.captions, None)
        learn = read_captions(args.learn, None) if args.learn else captions
        learn = some_images(learn, args.images) if args.images else learn
        found = compare(captions, read_judgements(args.judgements, captions), None if learn is captions else learn)
    except InputError as error:
        sys.exit(str(error))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

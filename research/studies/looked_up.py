"""Training from sampled labels beside training from exact ones, on scenes, whose true relevance is
known.

    python -m research.studies.looked_up --captions DIR --regions DIR --runs DIR --out looked_up.md

It writes shards of several shares of the pairs, and trains a model on each, `--seeds` times. With
the same `--runs` a stopped command goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from capgrade.params import load_params
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.shards import shards
from capgrade.pipelines.stages.relevance import RelevanceParams
from capgrade.schemas.captions import read_captions
from capgrade.schemas.relevance import read_relevance
from capgrade.trainer.fit.setup import Data
from research.studies import arguments, write_rows
from research.studies.results import PRESETS, RUNS, open_runs, table
from research.studies.results import result as train_and_score

HEAD = "| loss | labels | kept | "  # the beginning of the table
COLUMNS = ("rsum", "ndcg@25", "asp", "kendall_tau_b")
# About how many captions an image keeps by the plan of shards with 16 at the top, 16 uniform ones,
# and one for each window.
BETWEEN = 50


@dataclass(frozen=True)
class Origin:
    """The origin of a run's labels: exact, permuted, or shards with a share of the pairs."""

    unknown: str  # exact, permuted, mask, estimate, bound
    share: float = 1.0


EXACT, ESTIMATE = Origin("exact"), Origin("estimate", 0.04)
ORIGINS = {
    "looked_up_soft": (
        EXACT,
        ESTIMATE,
        Origin("mask", 0.04),
        Origin("bound", 0.04),
        Origin("estimate", 0.01),
    ),
    "looked_up_sam": (EXACT, ESTIMATE, Origin("permuted")),
    "looked_up_daa": (EXACT, ESTIMATE),
    "looked_up_teran": (EXACT, ESTIMATE),
}


def write_shards(captions: Path, folder: Path, labels: Origin, measure: str) -> Path:
    """Write shards of about a share of the pairs of `train`, unless they exist."""
    scale = labels.share * read_captions(captions, "train").n_captions / BETWEEN
    plan = {"top": 16 * scale, "uniform": 16 * scale, "windows.per_window": max(1.0, scale)}
    sets = [
        f"shards.measures=[{measure}]",
        "shards.split=train",
        *(f"shards.{key}={round(value)}" for key, value in plan.items()),
    ]
    params = load_params(None, sets)
    out = folder / f"shards-{measure}-{labels.share:g}"
    shards(captions, out, params.shards, params.measures)
    return out


def write_permuted(captions: Path, folder: Path, measure: str) -> Path:
    """Write dense labels `<measure>_permuted`: those of an image's own captions are exact, and
    those of all others are permuted."""
    name, params = f"{measure}_permuted", load_params(None, [])
    exact, file, out = folder / f"exact-{measure}", folder / f"{name}.npy", folder / name
    relevance(captions, exact, RelevanceParams(split="train", measures=(measure,)), params.measures)
    values = read_relevance(exact / f"{measure}.arrow").matrix().copy()
    rng, owner = np.random.default_rng(0), read_captions(captions, "train").owner
    for image, row in enumerate(values):
        row[owner != image] = rng.permutation(row[owner != image])
    np.save(file, values)
    measures = params.measures.model_copy(update={"imported": {name: str(file)}})
    relevance(captions, out, RelevanceParams(split="train", measures=(name,)), measures)
    return out


def result(
    data: Data, loss: str, labels: Origin, sets: Sequence[str], runs: Path, seed: int
) -> dict[str, float]:
    """Train and score one run, a folder of `runs`: see `results.result`."""
    overrides = [f"train.{text}" for text in (f"preset={loss}", *sets)]
    measure = load_params(PRESETS, overrides).train.measure
    of_labels, folder = [f"measure={measure}"], None
    if labels.unknown == "permuted":
        folder = write_permuted(data.captions, runs, measure)
        of_labels = [f"measure={measure}_permuted", "relevance=shards"]
    elif labels.unknown != "exact":
        folder = write_shards(data.captions, runs, labels, measure)
        of_labels += [f"unknown={labels.unknown}", "relevance=shards"]
    data, runs = replace(data, shards=folder), runs / f"{labels.share:g}"
    return train_and_score(data, runs, loss, [*sets, *of_labels], seed)


def main() -> None:
    option = {"action": "append", "default": [], "help": "of all runs, such as epochs=2"}
    args = arguments(__doc__, "captions", "regions", **RUNS, set=option)
    data, seeds = Data(args.captions, args.regions), range(args.seeds)
    with open_runs(args.runs) as runs:
        rows = (
            (
                f"| {loss} | {labels.unknown} | {labels.share:.0%} | ",
                [result(data, loss, labels, args.set, Path(runs), seed) for seed in seeds],
            )
            for loss, origins in ORIGINS.items()
            for labels in origins
            if f"{loss} {labels.unknown} {labels.share:g}".startswith(args.only)
        )
        write_rows(table(HEAD, COLUMNS, rows), args.out)


if __name__ == "__main__":
    main()

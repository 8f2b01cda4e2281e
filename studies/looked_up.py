"""What training from sampled labels costs against exact ones, on scenes, where the true relevance
is known.

    python -m studies.looked_up --captions DIR --regions DIR --runs DIR --out looked_up.md

Shards of several shares of the pairs are made with the runs, and a model is trained on each,
`--seeds` times. With the same `--runs` a stopped command goes on where it was.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from capgrade.params import load_params
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.shards import shards
from capgrade.schemas.captions import read_captions
from capgrade.schemas.params import RelevanceParams
from capgrade.schemas.relevance import read_relevance
from capgrade.trainer.fit.setup import Data
from studies import arguments, write_rows
from studies.results import PRESETS, RUNS, kept, table
from studies.results import result as trained

HEAD = "| loss | labels | kept | "  # how the table begins
COLUMNS = ("rsum", "ndcg@25", "asp", "kendall_tau_b")
# captions that the plan of shards keeps of 5,000: 16 at the top, 16 uniformly, one for each window
BETWEEN = 50


@dataclass(frozen=True)
class Origin:
    """Where a run's labels come from: exact, permuted, or shards that hold a share of the pairs."""

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


def made(captions: Path, folder: Path, labels: Origin, measure: str) -> Path:
    """Shards of about a share of the pairs of `train`, made once."""
    scale = labels.share * read_captions(captions, "train").n_captions / BETWEEN
    kept = {"top": 16 * scale, "uniform": 16 * scale, "windows.per_window": max(1.0, scale)}
    sets = [
        f"shards.measures=[{measure}]",
        "shards.split=train",
        *(f"shards.{k}={round(v)}" for k, v in kept.items()),
    ]
    params = load_params(None, sets)
    out = folder / f"shards-{measure}-{labels.share:g}"
    shards(captions, out, params.shards, params.measures)
    return out


def permuted(captions: Path, folder: Path, measure: str) -> Path:
    """Dense labels called `<measure>_permuted`: those of an image's own captions are exact, and
    those of all others are in random order."""
    name, params = f"{measure}_permuted", load_params(None, [])
    exact, file, out = folder / f"exact-{measure}", folder / f"{name}.npy", folder / name
    relevance(captions, exact, RelevanceParams(split="train", measures=(measure,)), params.measures)
    values = read_relevance(exact / f"{measure}.arrow").matrix().copy()
    rng, owner = np.random.default_rng(0), read_captions(captions, "train").owner
    for image, row in enumerate(values):
        row[owner != image] = rng.permutation(row[owner != image])
    np.save(file, values)
    given = params.measures.model_copy(update={"imported": {name: str(file)}})
    relevance(captions, out, RelevanceParams(split="train", measures=(name,)), given)
    return out


def result(
    data: Data, loss: str, labels: Origin, sets: Sequence[str], runs: Path, seed: int
) -> dict[str, float]:
    """Train and score one run, a folder of `runs`: see `results.result`."""
    measure = load_params(
        PRESETS, [f"train.{each}" for each in (f"preset={loss}", *sets)]
    ).train.measure
    told, folder = [f"measure={measure}"], None
    if labels.unknown == "permuted":
        folder, told = (
            permuted(data.captions, runs, measure),
            [f"measure={measure}_permuted", "relevance=shards"],
        )
    elif labels.unknown != "exact":
        folder = made(data.captions, runs, labels, measure)
        told += [f"unknown={labels.unknown}", "relevance=shards"]
    return trained(
        replace(data, shards=folder), runs / f"{labels.share:g}", loss, [*sets, *told], seed
    )


def main() -> None:
    more = {"action": "append", "default": [], "help": "of all runs, such as epochs=2"}
    given = arguments(__doc__, HEAD, "captions", "regions", **RUNS, set=more)
    data = Data(given.captions, given.regions)
    with kept(given.runs) as runs:
        found = (
            (
                f"| {loss} | {labels.unknown} | {labels.share:.0%} | ",
                [
                    result(data, loss, labels, given.set, Path(runs), seed)
                    for seed in range(given.seeds)
                ],
            )
            for loss, origins in ORIGINS.items()
            for labels in origins
            if f"{loss} {labels.unknown} {labels.share:g}".startswith(given.only)
        )
        write_rows(table(HEAD, COLUMNS, found), given.out)


if __name__ == "__main__":
    main()

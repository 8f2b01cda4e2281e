"""What graded losses and models gain over their baselines on scenes, where true relevance is known: mean and spread.

    python -m studies.results --captions DIR --regions DIR --out results.md

Each comparison trains a baseline and its challengers on the same data, `--seeds` times, and scores the test split by
the truth of the scenes. With `--runs` the runs are kept, and a stopped command goes on where it was.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_text
from capgrade.schemas.output import refuse_file, starting
from capgrade.schemas.params import load_params
from capgrade.schemas.relevance import read_relevance
from capgrade.trainer.alignment.align import alignments, play
from capgrade.trainer.data.images import open_images
from capgrade.trainer.data.pairs import Pairs
from capgrade.trainer.evaluation.evaluate import Settings, score
from capgrade.trainer.evaluation.tables import SUMS
from capgrade.trainer.evaluation.task import Task
from capgrade.trainer.fit.checkpoint import load_run
from capgrade.trainer.fit.setup import Data
from capgrade.trainer.fit.train import train
from capgrade.trainer.models import kind_of
from capgrade.trainer.models.base import RetrievalModel
from capgrade.trainer.search.encode import similarity

METRICS = ("recall@1", "recall@5", "recall@10", "ncs@1", "ncs@5", "ncs@10", "ndcg@25", "asp", "kendall_tau_b")
PRESETS = Path(__file__).with_suffix(".yaml")
HEAD = "| | run | "  # how a table of results begins
COLUMNS = ("rsum", "nsum", "recall@1", "ndcg@25", "asp", "kendall_tau_b", "pointing", "chance")


@dataclass(frozen=True)
class Comparison:
    """Presets of results.yaml, the baseline first, and what of `train` is set for all."""

    title: str
    presets: tuple[str, ...]
    sets: tuple[str, ...] = ()


SHORT = ("epochs=12", "decay_after=[8]")
COMPARISONS = (
    Comparison("SAM, 10 % of the images", ("small_vse", "small_vse_sam"), ("images=0.1",)),
    Comparison("BCLS, the hardest negative", ("small_saf_hard", "small_saf_bcls")),
    Comparison("BCLS, all negatives", ("small_saf", "small_saf_bcls")),
    Comparison("DAA, the hardest negative", ("small_saf_hard", "small_saf_hard_daa")),
    Comparison("DAA, all negatives", ("small_saf", "small_saf_daa")),
    Comparison("TERAN", ("small_tern", "small_teran")),
    Comparison("CLIP", ("small_clip", "small_clip_graded")),
    Comparison("on VSE++", ("small_vse", "small_vse_sam", "small_vse_bcls", "small_vse_sum", "small_vse_soft"), SHORT),
    Comparison("on CVSE", ("small_cvse", "small_cvse_sam", "small_cvse_sum", "small_cvse_soft"), SHORT),
    Comparison("on VSRN", ("small_vsrn", "small_vsrn_sam", "small_vsrn_sum", "small_vsrn_sum_sam", "small_vsrn_soft")),
    Comparison("on VSE-infinity", ("small_vse_infinity", "small_vse_infinity_sum", "small_vse_infinity_soft"), SHORT),
    Comparison("on SAF", ("small_saf_hard", "small_saf_bcls", "small_saf_hard_daa", "small_saf", "small_saf_soft")),
    Comparison(
        "on SGR",
        (
            "small_sgr_hard",
            "small_sgr_sam",
            "small_sgr_bcls",
            "small_sgr_daa",
            "small_sgr",
            "small_sgr_sum_sam",
            "small_sgr_soft",
        ),
    ),
    Comparison("on SCAN", ("small_scan_hard", "small_scan", "small_scan_soft")),
)


def result(data: Data, params_file: Path, runs: Path, preset: str, sets: Sequence[str], seed: int) -> dict[str, float]:
    """Train and score one run, a folder of `runs`: rsum, nsum of 0 to 600, others as means of both directions."""
    overrides = [f"train.{each}" for each in (f"preset={preset}", f"seed={seed}", *sets)]
    params = load_params(params_file, overrides)
    if kind_of(params.train.model.name).model.reads == "pictures":  # scenes carry their pictures
        data = Data(data.captions, images=data.captions)
    run = runs / "-".join([preset, *sets, f"seed={seed}"])
    train(data, run, params.train, params.measures)
    return scored(data, run)


def scored(data: Data, run: Path) -> dict[str, float]:
    """The numbers of `result`, of a finished run."""
    captions = read_captions(data.captions, "test")
    model, tokens, config = load_run(run)
    name = config["params"]["model"]["name"]
    store = open_images(name, config["model"], data.regions, data.images)
    pairs = Pairs(captions, store, tokens.encode(captions))
    truth = read_relevance(data.captions / "truth-test.arrow").matrix()
    task = Task(similarity(model, pairs), captions.owner, {"truth": truth})
    found = score(task, Settings(samples=0, metrics=METRICS))
    ways = [scored.mean for scored in found.scored.values()]
    means = {name: float(np.mean([way[name] for way in ways])) for name in METRICS}
    return {**found.sums, **means, **(pointed(data, pairs, model) if name == "teran" else {})}


def pointed(data: Data, pairs: Pairs, model: RetrievalModel) -> dict[str, float]:
    """Share of phrases whose best region has its centre in a true box, and what chance gives."""
    found = play(list(alignments(model, pairs)), pairs.captions, data.captions)["all"]
    return {"pointing": found.centre, "chance": found.centre_chance}


def table(comparisons: Sequence[Comparison], data: Data, params_file: Path, runs: Path, seeds: int) -> str:
    """Markdown: a row per run, mean ± standard deviation over seeds, sums of percent and percent."""
    done: dict[tuple[str, tuple[str, ...]], list[dict[str, float]]] = {}  # a baseline serves several challengers
    lines = [HEAD + " | ".join(COLUMNS) + " |", "|---|---|" + "---:|" * len(COLUMNS)]
    for comparison in comparisons:
        for preset in comparison.presets:
            key = preset, comparison.sets
            if key not in done:
                done[key] = [result(data, params_file, runs, *key, seed) for seed in range(seeds)]
            cells = [cell(name, [run[name] for run in done[key]]) if name in done[key][0] else "" for name in COLUMNS]
            lines.append(f"| {comparison.title} | {preset} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def cell(name: str, values: Sequence[float]) -> str:
    percent = np.array(values) * (1 if name in SUMS else 100)
    return f"{percent.mean():.1f} ± {percent.std():.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--captions", type=Path, required=True)
    parser.add_argument("--regions", type=Path, required=True)
    parser.add_argument("--params", type=Path, default=PRESETS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="comparisons whose title begins so")
    parser.add_argument("--runs", type=Path, help="keep the trained runs here, and go on with what is here")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.out:
        refuse_file(given.out, "table of results", starting(HEAD.encode()))
    chosen = [c for c in COMPARISONS if c.title.startswith(given.only)]
    if not chosen:
        remedy = f"the start of one of: {', '.join(c.title for c in COMPARISONS)}"
        raise InputError(f"no comparison begins with '{given.only}'", remedy=remedy)
    with tempfile.TemporaryDirectory() as scratch:
        text = table(
            chosen, Data(given.captions, given.regions), given.params, given.runs or Path(scratch), given.seeds
        )
    if given.out:
        write_text(given.out, text)


if __name__ == "__main__":
    main()

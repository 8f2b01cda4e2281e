r"""Hosts and losses on the pictures of Flickr8K, with people as the referee.

    python -m studies.flickr8k --project flickr8k --judgements CrowdFlowerAnnotations.txt \
        --runs runs --out flickr8k.md

`--project` is what `make flickr8k` made: captions, regions, and labels of the test split. Each of
`runs` in flickr8k.yaml is trained `--seeds` times. What is done is kept in `--runs`, so that a
stopped command goes on, and several may run at once, each with an `--only` of its own.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.agreement.coefficients import pair_draws, taus
from capgrade.agreement.judgement_files import read_judgements
from capgrade.agreement.judgements import Judgements
from capgrade.params import load_params
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_json
from capgrade.schemas.params import EvaluateParams
from capgrade.schemas.relevance import read_relevance
from capgrade.trainer.evaluation.evaluate import score
from capgrade.trainer.evaluation.task import Task
from capgrade.trainer.fit.setup import Data
from capgrade.trainer.fit.train import train
from studies import arguments, write_rows
from studies.results import cell, scores_of

PLAN = Path(__file__).with_suffix(".yaml")
HEAD = "| run | "
METRICS = ("recall@1", "recall@5", "recall@10", "ncs@10", "ndcg@25", "kendall_tau_b")
DRAWS = 200  # of images, for intervals of agreement


@dataclass(frozen=True)
class Project:
    """What the runs are trained on and scored by."""

    folder: Path
    captions: dict[str, Captions]  # by split
    labels: dict[str, dict[str, np.ndarray]]  # split -> measure -> [images, captions]
    people: Judgements  # of other captions of the test split

    @property
    def data(self) -> Data:
        return Data(self.folder / "data/captions", self.folder / "data/regions")

    @property
    def owner(self) -> np.ndarray:
        """The image of each judged pair's caption, int64 [n]."""
        return self.captions["test"].owner[self.people.caption]


def open_project(folder: Path, judgements: Path, measures: Sequence[str]) -> Project:
    """The captions, labels and judgements of a project. Labels of the test split are those of its
    stage `relevance`."""
    captions = {split: read_captions(folder / "data/captions", split) for split in ("val", "test")}
    labels = {
        "test": {
            name: read_relevance(folder / f"data/relevance/{name}.arrow").matrix()
            for name in measures
        },
        "val": {},
    }
    people = read_judgements(judgements, captions["test"])
    other = captions["test"].owner[people.caption] != people.image
    people = Judgements(people.image[other], people.caption[other], people.score[other])
    return Project(folder, captions, labels, people)


def result(project: Project, runs: Path, preset: str, seed: int) -> dict[str, Any]:
    """Train and score one run, or read what is kept of it: metrics of both splits as means over
    both directions, and the scores of the judged pairs."""
    kept, values = runs / f"{preset}-{seed}.json", runs / f"{preset}-{seed}.npy"
    if not kept.is_file():
        params = load_params(PLAN, [f"train.preset={preset}", f"train.seed={seed}"])
        run = runs / f"{preset}-{seed}"
        train(project.data, run, params.train, params.measures)
        found: dict[str, Any] = {}
        for split, captions in project.captions.items():
            similarity = scores_of(run, project.data, captions)
            found[split] = metrics_of(similarity, captions, project.labels[split])
            if split == "test":
                np.save(values, similarity[project.people.image, project.people.caption])
        epochs = json.loads((run / "summary.json").read_text(encoding="utf-8"))
        write_json(kept, {**found, "epochs": epochs["epochs"], "best": epochs.get("best")})
    return {**json.loads(kept.read_text(encoding="utf-8")), "values": np.load(values)}


def metrics_of(
    similarity: np.ndarray, captions: Captions, labels: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """Recall of both directions, their sum, and graded metrics by each label as means of both."""
    task = Task(similarity, captions.owner, labels)
    names = METRICS if labels else METRICS[:3]
    evaluation = score(task, EvaluateParams(samples=0, metric=names))
    to_text, to_image = (scored.mean for scored in evaluation.scored.values())
    recall = {
        f"{name} {side}": mean[name]
        for side, mean in (("to text", to_text), ("to image", to_image))
        for name in METRICS[:3]
    }
    graded = {name: (to_text[name] + to_image[name]) / 2 for name in to_text if "[" in name}
    return {**recall, "rsum": evaluation.sums["rsum"], **graded}


def agreement(project: Project, seeds: Sequence[np.ndarray]) -> np.ndarray:
    """Kendall's tau-b of each seed's scores with people, float64 [1 + DRAWS, seeds]: of all judged
    pairs, then of draws of images."""
    people = project.people
    rows = [np.arange(len(people.score))]
    for draw in pair_draws(people.image, project.owner, DRAWS, seed=0):
        rows.append(np.repeat(rows[0], draw.astype(np.int64)))
    return np.array([[taus(values[row], people.score[row])[0] for values in seeds] for row in rows])


def baseline_of(run: str, runs: Sequence[str]) -> str:
    """The run that has another loss on the same host: the one that is named after the host."""
    host = run.partition("_")[0]
    return host if host in runs else run


def rows(project: Project, runs: Path, names: Sequence[str], seeds: int) -> Iterator[str]:
    """The lines of a Markdown table: mean ± standard deviation over seeds in percent, and for what
    differs from the host's first run 95 % intervals over images."""
    columns = ("recall@1 to text", "recall@1 to image", "rsum")
    graded: list[str] = []
    taus_of: dict[str, np.ndarray] = {}
    for k, name in enumerate(names):
        found = [result(project, runs, name, seed) for seed in range(seeds)]
        if k == 0:
            graded = [n for n in found[0]["test"] if n.startswith(("ndcg", "ncs"))]
            head = ["rsum of val", *columns, *graded, "tau-b of people", "beside its host's first"]
            yield HEAD + " | ".join(head) + " |"
            yield "|---|" + "---:|" * len(head)
        taus_of[name] = agreement(project, [one["values"] for one in found])
        cells = [cell("rsum", [one["val"]["rsum"] for one in found])]
        cells += [cell(n, [one["test"][n] for one in found]) for n in (*columns, *graded)]
        cells.append(with_interval(taus_of[name].mean(1), taus_of[name][0].std()))
        base = baseline_of(name, names)
        difference = (taus_of[name] - taus_of[base]).mean(1) if base in taus_of else None
        cells.append("" if difference is None or base == name else with_interval(difference))
        yield f"| {name} | " + " | ".join(cells) + " |"


def with_interval(values: np.ndarray, seeds: float | None = None) -> str:
    """The first value, and the interval of the others."""
    low, high = np.quantile(values[1:], (0.025, 0.975))
    over = "" if seeds is None else f" ± {100 * seeds:.1f}"
    return f"{100 * values[0]:.1f}{over} [{100 * low:.1f}, {100 * high:.1f}]"


def main() -> None:
    plan = load_params(PLAN)
    args = arguments(
        __doc__,
        HEAD,
        "project",
        "runs",
        judgements={"type": Path, "required": True, "help": "people's scores of test pairs"},
        measures={"default": "sbert,cider,people_shared", "help": "labels of the test split"},
        seeds={"type": int, "default": 3},
        only={"default": "", "help": "runs whose names begin so"},
    )
    names = [name for name in plan.runs if name.startswith(args.only)]
    if not names:
        remedy = f"the start of one of: {', '.join(plan.runs)}"
        raise InputError(f"no run begins with '{args.only}'", remedy=remedy)
    args.runs.mkdir(parents=True, exist_ok=True)
    project = open_project(args.project, args.judgements, args.measures.split(","))
    write_rows(rows(project, args.runs, names, args.seeds), args.out)


if __name__ == "__main__":
    main()

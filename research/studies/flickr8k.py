r"""Hosts and losses on the pictures of Flickr8K, with people as the referee.

    python -m research.studies.flickr8k --out flickr8k.md --plot flickr8k.png
    python -m research.studies.flickr8k --project flickr8k --judgements FILE --runs runs

The first command prints the table of what is in `flickr8k_results`, a file a run and seed. The
second trains and scores what is missing there. `--project` is what `make flickr8k` made: captions,
regions, and labels of the test split. FILE is CrowdFlowerAnnotations.txt. A stopped command goes
on, and several may run at once, each with an `--only` of its own.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.stats import spearmanr
from scipy.stats import t as student_t

from capgrade.agreement.coefficients import taus
from capgrade.agreement.judgement_files import read_judgements
from capgrade.agreement.judgements import Judgements
from capgrade.metrics.uncertainty import pair_draws
from capgrade.params import Params, load_params
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_json
from capgrade.schemas.natures import recorded
from capgrade.schemas.out_files import refuse_file
from capgrade.schemas.relevance import read_relevance
from capgrade.trainer.evaluation.evaluate import score
from capgrade.trainer.evaluation.task import Task
from capgrade.trainer.fit.setup import Data
from capgrade.trainer.fit.train import train
from capgrade.trainer.stages.evaluate import EvaluateParams
from capgrade.trainer.stages.train import TrainParams
from research.studies import arguments, write_rows
from research.studies.results import scores_of, spread

PLAN = Path(__file__).with_suffix(".yaml")
RESULTS = Path(__file__).with_name("flickr8k_results")
HEAD = "| run | "
RECALL = ("recall@1", "recall@5", "recall@10")
GRADED = ("ncs@10", "ndcg@25", "kendall_tau_b")
LABELS = ("cider", "sbert", "people_shared")  # of the test split
TITLES = {  # of the runs that the picture has
    "plain": "InfoNCE",
    "plain_soft": "Sentence-BERT",
    "plain_soft_deep": "softer, Sentence-BERT",
    "plain_people": "people_shared",
    "plain_people_deep": "softer, people_shared",
    "plain_cider": "CIDEr-D",
    "plain_hard": "triplet, hardest negative",
    "plain_sum": "triplet, all negatives",
    "plain_sam": "SAM, the paper's form",
    "plain_sam_authors": "SAM, the authors' code",
    "plain_bcls": "BCLS",
    "plain_daa": "DAA",
    "plain_people_mixed": "half each",
    "frozen": "tuned, InfoNCE",
    "frozen_people": "tuned, people_shared",
    "frozen_people_mixed": "tuned, half each",
    "vse": "VSE++, hardest negative",
    "vse_nce": "VSE++, InfoNCE",
    "vse_people": "VSE++, people_shared",
    "infinity": "VSE-infinity, hardest negative",
    "infinity_nce": "VSE-infinity, InfoNCE",
    "infinity_people": "VSE-infinity, people_shared",
    "scan_256": "SCAN",
    "teran_256": "TERAN",
}
SOFT, OTHER = ("#2e7d32", "soft targets"), ("#546e7a", "other losses")  # colour and legend
# Titles that stand left of their points, and that are raised by so many points.
LEFT = {
    "plain_soft_deep",
    "plain_sum",
    "plain_bcls",
    "plain_soft",
    "infinity_nce",
    "infinity_people",
}
RAISED = {
    "plain": -3,
    "plain_soft": -1,
    "plain_people": 3,
    "infinity_people": 6,
    "plain_people_mixed": 5,
    "plain_bcls": -5,
    "plain_cider": -4,
    "plain_sam_authors": -5,
}
# Runs, and the run that each is told beside.
BESIDE = (
    ("plain_people", "plain"),
    ("plain_people_deep", "plain_people"),
    ("plain_soft", "plain"),
    ("plain_soft_deep", "plain_soft"),
    ("plain_people", "plain_soft_deep"),
    ("plain_cider", "plain"),
    ("plain_people_mixed", "plain"),
    ("plain_people_mixed", "plain_soft"),
    ("frozen_people", "frozen"),
    ("frozen_people_mixed", "frozen"),
    ("frozen", "plain"),
    ("vse_people", "vse_nce"),
    ("infinity_people", "infinity_nce"),
    ("vse_nce", "vse"),
    ("infinity_nce", "infinity"),
    ("teran_256", "scan_256"),
    ("plain_people_shards", "plain"),
    ("plain_people_shards", "plain_people"),
    ("plain_people_seeded", "plain_people_shards"),
    ("plain_people_sampled", "plain_people"),
    ("plain_masked", "plain"),
    ("plain_masked_more", "plain"),
    ("plain_hard", "plain"),
    ("plain_sum", "plain"),
    ("plain_bcls", "plain"),
    ("plain_daa", "plain_hard"),
    ("plain_sam", "plain_hard"),
    ("plain_sam_authors", "plain_hard"),
    ("plain_sam_sum", "plain_sum"),
    ("plain_sam_warm", "plain_hard_warm"),
    ("plain_sam_hard", "plain_hard"),
    ("plain_sam_nce", "plain"),
)
YES = 0.5  # the share of yes from which people accept a pair
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

    def data_of(self, params: TrainParams) -> Data:
        """What a run is trained on: with shards of the training split, where its labels are looked
        up."""
        looked_up = params.relevance == "shards"
        return replace(self.data, shards=self.folder / "data/shards" if looked_up else None)

    @property
    def owner(self) -> np.ndarray:
        """The image of each judged pair's caption, int64 [n]."""
        return self.captions["test"].owner[self.people.caption]


def open_project(folder: Path, judgements: Path) -> Project:
    """The captions, labels and judgements of a project. Labels of the test split are those of its
    stage `relevance`."""
    captions = {split: read_captions(folder / "data/captions", split) for split in ("val", "test")}
    labels = {
        "test": {
            name: read_relevance(folder / f"data/relevance/{name}.arrow").matrix()
            for name in LABELS
        },
        "val": {},
    }
    people = read_judgements(judgements, captions["test"])
    other = captions["test"].owner[people.caption] != people.image
    people = Judgements(people.image[other], people.caption[other], people.score[other])
    return Project(folder, captions, labels, people)


def params_of(preset: str, seed: int) -> Params:
    """The parameters of a run, by flickr8k.yaml."""
    return load_params(PLAN, [f"train.preset={preset}", f"train.seed={seed}"])


def read_result(preset: str, seed: int) -> dict[str, Any] | None:
    """What is known of a run: metrics of both splits, and `tau_b` with people, of all judged pairs
    and of draws of images. None if it was not trained yet. InputError if it was trained with other
    settings than those of flickr8k.yaml."""
    file = RESULTS / f"{preset}-{seed}.json"
    if not file.is_file():
        return None
    result = json.loads(file.read_text(encoding="utf-8"))
    if result["train"] != settings_of(params_of(preset, seed)):
        problem = "the run was trained with other settings than flickr8k.yaml has"
        raise InputError(problem, file=file, remedy="delete this file, and train the run again")
    return result


def settings_of(params: Params) -> dict[str, Any]:
    """The settings that a run's result depends on, as they stand in JSON."""
    return json.loads(json.dumps(recorded(params.train)))


def _make_result(project: Project, runs: Path, preset: str, seed: int) -> dict[str, Any]:
    """Train and score a run, and write its result. The scores of the judged pairs are kept beside
    the run, a float32 [n] file."""
    params, run = params_of(preset, seed), runs / f"{preset}-{seed}"
    data = project.data_of(params.train)
    train(
        data.captions,
        run,
        params.train,
        params.measures,
        regions=data.regions,
        shards=data.shards,
    )
    found: dict[str, Any] = {"train": settings_of(params)}
    for split, captions in project.captions.items():
        similarity = scores_of(run, project.data, captions)
        found[split] = metrics_of(similarity, captions, project.labels[split])
    judged = similarity[project.people.image, project.people.caption]  # The last split is `test`.
    np.save(run.with_suffix(".npy"), judged)
    found["first"] = judged_first(similarity, project.captions["test"].owner, project.people)
    found["tau_b"] = agreement(project, judged)
    RESULTS.mkdir(exist_ok=True)
    write_json(RESULTS / f"{preset}-{seed}.json", found)
    return found


def metrics_of(
    similarity: np.ndarray, captions: Captions, labels: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """Recall of both directions, their sum, and graded metrics by each label as means of both."""
    task = Task(similarity, captions.owner, labels)
    names = (*RECALL, *GRADED) if labels else RECALL
    evaluation = score(task, EvaluateParams(samples=0, metric=names))
    to_text, to_image = (scored.mean for scored in evaluation.scored.values())
    values = {
        f"{name} {side}": mean[name]
        for side, mean in (("to text", to_text), ("to image", to_image))
        for name in RECALL
    }
    values["rsum"] = evaluation.sums["rsum"]
    for label in labels:
        for name in GRADED:
            # Metrics of the first label have no label in their names.
            key = name if label == next(iter(labels)) else f"{name}[{label}]"
            values[f"{name}[{label}]"] = (to_text[key] + to_image[key]) / 2
    return values


def agreement(project: Project, values: np.ndarray) -> list[float]:
    """Kendall's tau-b of scores with people [1 + DRAWS]: of all judged pairs, then of draws of
    images, the same for every run."""
    people = project.people
    rows = [np.arange(len(people.score))]
    for draw in pair_draws(people.image, project.owner, DRAWS, seed=0):
        rows.append(np.repeat(rows[0], draw.astype(np.int64)))
    return [round(float(taus(values[row], people.score[row])[0]), 6) for row in rows]


def judged_first(
    similarity: np.ndarray, owner: np.ndarray, people: Judgements
) -> dict[str, dict[str, float]]:
    """Of each direction, what people say of the items that a run ranks first: shares of all queries
    whose first item is their own (`own`), is another's and was judged (`judged`), and was accepted
    by half of the judges or more (`accepted`). `recall` counts the accepted ones as right; it is a
    lower bound, as most first items were not judged."""
    score = np.full(similarity.shape, np.nan)
    score[people.image, people.caption] = people.score
    images, captions = np.arange(len(similarity)), np.arange(len(owner))
    first = {
        "to text": (images, similarity.argmax(1)),
        "to image": (similarity.argmax(0), captions),
    }
    found = {}
    for direction, (image, caption) in first.items():
        own = owner[caption] == image
        judged = ~own & ~np.isnan(score[image, caption])
        accepted = judged & (score[image, caption] >= YES)
        found[direction] = {
            "own": float(own.mean()),
            "judged": float(judged.mean()),
            "accepted": float(accepted.mean()),
            "recall": float((own | accepted).mean()),
        }
    return found


def rows(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """The lines of a Markdown table of runs, each with the results of its seeds: mean ± standard
    deviation over seeds in percent, rsum of 0 to 600. Agreement with people has a 95 % interval
    over images."""
    of_test = ("recall@1 to text", "recall@1 to image", "rsum")
    graded = tuple(f"ndcg@25[{label}]" for label in LABELS)
    head = ["seeds", "rsum, val", "R@1 to text", "R@1 to image", "rsum"]
    head += [f"NDCG@25, {name}" for name in ("CIDEr-D", "Sentence-BERT", "`people_shared`")]
    head += ["people", *(f"R@1 {side}, accepted too" for side in ("to text", "to image"))]
    yield HEAD + " | ".join(head) + " |"
    yield "|---|" + "---:|" * len(head)
    for name, found in results.items():
        cells = [str(len(found)), spread(np.array([one["val"]["rsum"] for one in found]))]
        for metric in (*of_test, *graded):
            scale = 1 if metric == "rsum" else 100
            cells.append(spread(np.array([scale * one["test"][metric] for one in found])))
        of_seeds = spread(np.array([100 * one["tau_b"][0] for one in found]))
        cells.append(f"{of_seeds} {interval(_mean_taus(found))}")
        for side in ("to text", "to image"):
            cells.append(spread(np.array([100 * one["first"][side]["recall"] for one in found])))
        yield f"| `{name}` | " + " | ".join(cells) + " |"


def differences(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """The lines of a Markdown table of the runs of BESIDE, each beside another run, by the seeds
    that both have: agreement with people in percent, its 95 % interval over images, and rsum of
    both splits, theirs over seeds."""
    yield "| run | beside | seeds | people | rsum, val | rsum |"
    yield "|---|---|---:|---:|---:|---:|"
    for name, base in BESIDE:
        if name in results and base in results:
            pairs = same_seeds(results[name], results[base])
            found, before = zip(*pairs, strict=True)
            more = _mean_taus(found) - _mean_taus(before)
            cells = [f"{len(pairs)}", f"{100 * more[0]:+.1f} {interval(more)}"]
            cells += [rsum_beside(pairs, split) for split in ("val", "test")]
            yield f"| `{name}` | `{base}` | " + " | ".join(cells) + " |"


def same_seeds(
    found: Sequence[Mapping[str, Any]], base: Sequence[Mapping[str, Any]]
) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The results of two runs by the seeds that both have."""
    of_base = {one["train"]["seed"]: one for one in base}
    return [(one, of_base[seed]) for one in found if (seed := one["train"]["seed"]) in of_base]


def rsum_beside(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], split: str) -> str:
    """How much more rsum the first of each pair of results has, as a mean; of two seeds or more
    with its 95 % interval by Student's t."""
    more = np.array([one[split]["rsum"] - other[split]["rsum"] for one, other in pairs])
    mean, n = more.mean(), len(more)
    if n == 1:
        return f"{mean:+.1f}"
    half = student_t.ppf(0.975, n - 1) * more.std(ddof=1) / n**0.5
    return f"{mean:+.1f} [{mean - half:.1f}, {mean + half:.1f}]"


def _first_items(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Lines that say, as means over runs, how many of the other images' items that are ranked first
    people judged, and how many of these they accepted."""
    for side in ("to text", "to image"):
        found = [one["first"][side] for seeds in results.values() for one in seeds]
        own, judged, accepted = (
            np.mean([one[key] for one in found]) for key in ("own", "judged", "accepted")
        )
        yield f"{side}: {judged / (1 - own):.1%} judged, {accepted / judged:.1%} of these accepted"


def alike(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Lines that say whether metrics rank the runs as agreement with people does: Spearman's rank
    correlation over all runs, and over those of the host `plain`."""
    groups = [results, {name: results[name] for name in results if name.startswith("plain")}]
    for metric in ("rsum", *(f"ndcg@25[{label}]" for label in LABELS)):
        rhos = []
        for group in groups:
            people = [_mean_taus(found)[0] for found in group.values()]
            values = [np.mean([one["test"][metric] for one in found]) for found in group.values()]
            rhos.append(f"{spearmanr(values, people).statistic:+.2f}")
        yield f"{metric} {' and '.join(rhos)}"


def _mean_taus(found: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Agreement as the mean over seeds, float64 [1 + DRAWS]."""
    return np.mean([one["tau_b"] for one in found], axis=0)


def interval(values: np.ndarray) -> str:
    """The 95 % interval of all but the first value, in percent."""
    low, high = np.quantile(values[1:], (0.025, 0.975))
    return f"[{100 * low:.1f}, {100 * high:.1f}]"


def plot(results: Mapping[str, Sequence[Mapping[str, Any]]], file: Path) -> None:
    """Recall against agreement with people, a point for each run of TITLES, with standard
    deviations over seeds."""
    figure = Figure(figsize=(7.6, 5.4), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for color, of in (SOFT, OTHER):
        axes.scatter([], [], color=color, label=of)
    for name, found in results.items():
        if name not in TITLES:
            continue
        rsum = np.array([one["test"]["rsum"] for one in found])
        people = 100 * np.array([one["tau_b"][0] for one in found])
        graded = "relevance" in str(params_of(name, 0).train.loss)
        several = int(len(found) > 1)  # one seed alone has no deviation
        errors = {"xerr": rsum.std(ddof=several), "yerr": people.std(ddof=several)}
        at = (rsum.mean(), people.mean())
        axes.errorbar(*at, **errors, elinewidth=1, fmt="o", color=(SOFT if graded else OTHER)[0])
        side, align = (-1, "right") if name in LEFT else (1, "left")
        end = (rsum.mean() + side * errors["xerr"], people.mean())  # of the bar
        offset = (5 * side, RAISED.get(name, 0))
        text: dict[str, Any] = {"ha": align, "va": "center", "fontsize": 8}
        axes.annotate(TITLES[name], end, xytext=offset, textcoords="offset points", **text)
    axes.margins(x=0.22)
    axes.legend(loc="lower right", frameon=False)
    axes.set_xlabel("recall on Flickr8K's test split (rsum, 0 to 600)")
    axes.set_ylabel("agreement with people (Kendall's τ-b, %)")
    axes.spines[["top", "right"]].set_visible(False)
    # Without matplotlib's version, bytes stay the same.
    figure.savefig(file, metadata={"Software": None})


def main() -> None:
    plan = load_params(PLAN)
    args = arguments(
        __doc__,
        project={"type": Path, "help": "train what is missing, on the data of this project"},
        judgements={"type": Path, "help": "people's scores of test pairs"},
        runs={"type": Path, "default": Path("runs"), "help": "where trained runs are kept"},
        seeds={"type": int, "default": 3},
        only={"default": "", "help": "runs whose names begin so"},
        plot={"type": Path, "help": "write a picture of recall and agreement, a PNG"},
    )
    names = [name for name in plan.runs if name.startswith(args.only)]
    if not names:
        remedy = f"the start of one of: {', '.join(plan.runs)}"
        raise InputError(f"no run begins with '{args.only}'", remedy=remedy)
    project = None
    if args.project is not None:
        if args.judgements is None:
            raise InputError("people's judgements are missing", remedy="--judgements FILE")
        args.runs.mkdir(parents=True, exist_ok=True)
        project = open_project(args.project, args.judgements)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for seed in range(args.seeds):  # Every run has one seed before any has two.
        for name in names:
            result = read_result(name, seed)
            if result is None and project is not None:
                result = _make_result(project, args.runs, name, seed)
            if result is not None:
                results[name].append(result)
    results = {name: found for name, found in results.items() if found}
    if args.plot:
        refuse_file(args.plot, args.force)
    write_rows([*rows(results), "", *differences(results)], args.out)
    print("ranks all runs, and those of plain, as people do (Spearman):", ", ".join(alike(results)))
    print("first items that are not their query's own,", "; ".join(_first_items(results)))
    if args.plot:
        plot(results, args.plot)


if __name__ == "__main__":
    main()

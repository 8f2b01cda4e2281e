"""Tables of evaluations: one run on the terminal, several runs side by side in Markdown and
LaTeX."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.markup import escape

from capgrade.agreement.correlation import judged_values
from capgrade.comparison import Comparison
from capgrade.evaluation import Evaluation
from capgrade.metrics.catalogue import Metric, family_of, with_measure
from capgrade.metrics.formats import DIRECTION_WORDS, DIRECTIONS, SUM_NAMES, format_value
from capgrade.result_tables import Result, table_of
from capgrade.schemas.console import console, print_table
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    found_digests,
    read_manifest,
    write_manifest,
    write_text,
)
from capgrade.schemas.lines import read_json
from capgrade.schemas.output import output_folder
from capgrade.schemas.tables import ENDINGS, Style
from capgrade.trainer.evaluation.stored import METRICS_FILE, count_averaged, read_evaluation
from capgrade.trainer.stages.evaluate import EVALUATE

_HEADER = (
    "percent; tau, cosine (lambda) and rank as they are; rsum, nsum 0 to 600; [low, high]: interval"
    " over images"
)
_SHORT = {
    "recall",
    "medr",
    "accepted_recall",
    "map@r",
    "r_precision",
    "pmrp",
    "ndcg",
    "relevant_recall",
    "relevant_r",
    "relevant_map@r",
    "asp",
    "kendall_tau_b",
}
# In the short table these are at cut-off 1 alone, and ncs at its largest cut-off alone.
AT_ONE = {"eccv_recall", "cxc_recall"}


def _cell(name: str, value: float, interval: tuple[float, float] | None) -> str:
    between = (
        ""
        if interval is None
        else f" [{format_value(name, interval[0])}, {format_value(name, interval[1])}]"
    )
    return format_value(name, value) + between


def choose_short(metrics: Sequence[Metric]) -> list[Metric]:
    """The metrics that matter most, in their order: recall, median rank, people's positives, NDCG,
    NCS at the largest cut-off, ASP and tau-b of each measure."""
    last = max((item.k for item in metrics if family_of(item.name) == "ncs"), default=0)
    kept = _SHORT | {"ncs"} | AT_ONE
    chosen = [item for item in metrics if family_of(item.name) in kept]
    cuts = {"ncs": last, **dict.fromkeys(AT_ONE, 1)}
    return [item for item in chosen if item.k == cuts.get(family_of(item.name) or "", item.k)]


def _rows(evaluation: Evaluation, metrics: Sequence[Metric]) -> Iterator[list[str]]:
    """A row per metric, a column per direction, then the sums."""
    directions = [evaluation.scored[direction] for direction in DIRECTIONS]
    for item in metrics:
        cells = (
            _cell(item.name, scored.mean[item.name], scored.intervals.get(item.name))
            for scored in directions
        )
        yield [with_measure(item.name, item.relevance), *cells]
    for name, value in evaluation.sums.items():
        label = with_measure(name, evaluation.basis.measure)
        yield [label, _cell(name, value, evaluation.sum_intervals.get(name)), ""]
    for name, value in evaluation.judged.items():
        yield [name, _cell(name, value, evaluation.judged_intervals.get(name)), ""]


def table_text(evaluations: Sequence[Evaluation], *, every: bool = True) -> str:
    """Each protocol's table (without `every` the short one) for the terminal, the collapse check
    beside lambda@K, and what was left out and why."""
    on = console()
    with on.capture() as captured:
        _print(evaluations, on, every)
    return captured.get().rstrip("\n")


def _print(evaluations: Sequence[Evaluation], on: Console, every: bool) -> None:
    for evaluation in evaluations:
        metrics, counts = evaluation.scored["i2t"].metrics, evaluation.counts
        chosen = metrics if every else choose_short(metrics)
        title = (
            f"{counts['images']} images, {counts['captions']} captions,"
            f" {evaluation.protocol}\n{_HEADER}"
        )
        columns = ("metric", *DIRECTION_WORDS.values())
        print_table(
            title, columns, _rows(evaluation, chosen), on=on, texts=(0, 1, 2), title_justify="left"
        )
        if len(chosen) < len(metrics):
            left = f"{len(chosen)} of {len(metrics)} metrics; --all prints every one, --json too"
            on.print(left, highlight=False, soft_wrap=True)
        if any(item.name.startswith("lambda") for item in chosen):
            for direction, state in evaluation.collapse.items():
                style = "bold red" if state.collapsed else "dim"
                on.print(
                    f"SemanticMap {direction}: {state}",
                    style=style,
                    highlight=False,
                    soft_wrap=True,
                )
        for relevance, empty in counts["zero_ideal"].items():
            if any(empty.values()):
                counted = ", ".join(f"{count} {direction}" for direction, count in empty.items())
                empties = (
                    f"{relevance}: {counted} queries without any relevance score 0 in ncs, ndcg"
                    " and sr"
                )
                on.print(empties, soft_wrap=True)
        for note in evaluation.notes:
            on.print(f"note: {escape(note)}", highlight=False, soft_wrap=True)


class _StoredAgreement(BaseModel):
    """What tables read of a run's agreement with judgements."""

    pairs: int
    own: int
    kendall: dict[str, float]


class _StoredMetrics(BaseModel):
    """What tables read of metrics.json; null where no query has a value."""

    i2t: dict[str, float | None]
    t2i: dict[str, float | None]
    rsum: float | None = None
    nsum: float | None = None
    counts: dict[str, Any] = {}
    judgements: dict[str, _StoredAgreement] = {}


def _read_run(path: Path) -> Result:
    """The numbers of an evaluation folder, or of a metrics.json."""
    if path.is_dir():
        return Result.of(read_evaluation(path))
    if not path.is_file():
        raise InputError(
            "no metrics.json", file=path, remedy="write it with capgrade evaluate --out"
        )
    run = read_json(path)
    try:
        stored = _StoredMetrics.model_validate(run)
    except ValidationError as error:
        remedy = "write them with capgrade evaluate --out"
        raise InputError("not the metrics of an evaluation", file=path, remedy=remedy) from error
    measure = first_measure(run) or ""
    judgements = {name: row.model_dump() for name, row in stored.judgements.items()}
    columns = {
        **{("i2t", name): value for name, value in stored.i2t.items()},
        **{("t2i", name): value for name, value in stored.t2i.items()},
        **{("", name): value for name in SUM_NAMES if (value := getattr(stored, name)) is not None},
        **{("", name): value for name, value in judged_values(judgements).items()},
    }
    values = {
        (direction, with_measure(name, measure)): math.nan if value is None else value
        for (direction, name), value in columns.items()
    }
    return Result(values, measure)


def table_of_runs(
    runs: Mapping[str, Path], metrics: Sequence[str], style: Style = "markdown"
) -> str:
    """`table_of` several runs (label -> evaluation folder or metrics.json). InputError as it has,
    and for a folder that is not finished."""
    read = {}
    for label, path in runs.items():
        inputs = read_manifest(path, EVALUATE.name)["inputs"] if path.is_dir() else {}
        models = count_averaged(inputs)
        read[f"{label} (mean of {models})" if models > 1 else label] = _read_run(path)
    try:
        return table_of(read, metrics, style)
    except InputError as error:
        file = dict(zip(read, runs.values(), strict=True)).get(str(error.file))
        raise error.of(file) from error


def first_measure(run: Mapping[str, Any]) -> str | None:
    """Of metrics.json: the measure of graded metrics without a name in brackets; None without
    relevance."""
    named_ones = {name[:-1].rsplit("[", 1)[1] for name in run.get("i2t", {}) if name.endswith("]")}
    counts = run.get("counts", {})
    return next(
        (
            name
            for name in (*counts.get("zero_ideal", {}), *counts.get("known", {}))
            if name not in named_ones
        ),
        None,
    )


def label_folders(texts: Sequence[str]) -> dict[str, Path]:
    """Evaluation folders by label, from texts LABEL=DIR or DIR. One folder that holds evaluations
    gives all of them. InputError for a label that comes twice."""
    folders: dict[str, Path] = {}
    for text in texts:
        label, equals, path = text.partition("=")
        folder = Path(path if equals else text)
        if not equals and len(texts) == 1 and not (folder / METRICS_FILE).is_file():
            inside = sorted(path.parent for path in folder.glob(f"*/{METRICS_FILE}"))
            evaluations = {path.name: path for path in inside}
            if not evaluations:
                raise InputError(
                    "no evaluations here",
                    file=folder,
                    remedy="write them with capgrade evaluate --out",
                )
            return evaluations
        label = label if equals else folder.resolve().name
        if label in folders:
            raise InputError(
                f"'{label}' is the label of two evaluations", file=folder, remedy="give LABEL=DIR"
            )
        folders[label] = folder
    return folders


def write_tables(
    runs: Mapping[str, Path],
    metrics: Sequence[str],
    out: Path,
    comparison: Comparison | None = None,
) -> str:
    """Write runs.md and runs.tex to `out`, and return the former. With a `comparison` of the runs,
    tests.md and tests.tex too. InputError for an `out` that another stage wrote."""
    tables = {f"runs{end}": table_of_runs(runs, metrics, style) for end, style in ENDINGS.items()}
    if comparison is not None:
        tables |= {"tests.md": comparison.to_markdown(), "tests.tex": comparison.to_latex()}
    with output_folder(out, "compare") as folder:
        for name, text in tables.items():
            write_text(folder / name, text)
        files = {k: path / METRICS_FILE if path.is_dir() else path for k, path in runs.items()}
        inputs, rows = found_digests(**files), dict.fromkeys(tables, 0)
        write_manifest(
            folder, "compare", params={"metrics": list(metrics)}, inputs=inputs, rows=rows
        )
    return tables["runs.md"]

"""Tables of evaluations: one run on the terminal, several runs side by side in Markdown and
LaTeX."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import BaseModel, ValidationError
from rich.markup import escape

from capgrade.evaluation import DIRECTION_WORDS, DIRECTIONS, SUM_OF, Evaluation
from capgrade.metrics.base import check_choice
from capgrade.metrics.catalogue import CATALOGUE, Metric
from capgrade.metrics.uncertainty import PairedTest
from capgrade.schemas.console import console, print_table
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.files import (
    found_digests,
    read_manifest,
    unfinished_work,
    write_manifest,
    write_text,
)
from capgrade.schemas.lines import read_json
from capgrade.schemas.output import output_folder
from capgrade.trainer.evaluation.evaluate import METRICS_FILE, count_averaged

if TYPE_CHECKING:
    from capgrade.trainer.evaluation.compare import Comparison

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
Style = Literal["markdown", "latex"]
_STYLES: dict[str, Style] = {"md": "markdown", "tex": "latex"}  # By the ending of a file.
SUM_NAMES = tuple(SUM_OF)  # stored as they are printed, 0 to 600


def _base(name: str) -> str:
    base = name.split("[")[0].split("(")[0]
    return base if base in CATALOGUE else base.rsplit("@", 1)[0]


def _unit(name: str) -> str:
    base = _base(name)
    return CATALOGUE[base].unit if base in CATALOGUE else "fraction"


def sort_key_of(name: str) -> tuple[int, list[str | int]]:
    """The key that sorts metrics in the order of the catalogue, and recall@5 before recall@10."""
    numbers: list[str | int] = [
        int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)
    ]
    base = _base(name)
    return (list(CATALOGUE).index(base) if base in CATALOGUE else len(CATALOGUE)), numbers


def best_of(name: str) -> Callable[..., float] | None:
    """`min` of ranks, `max` of most metrics; None of lambda, which says nothing of how good a model
    is."""
    return {"rank": min, "cosine": None}.get(_unit(name), max)


def is_graded(name: str) -> bool:
    """Whether a metric, or a sum, reads relevance."""
    base = _base(name)
    return base == "nsum" or (
        base in CATALOGUE and CATALOGUE[base].needs in ("relevance", "relevant", "extension")
    )


def scale(name: str) -> int:
    """What a value is multiplied by where it is shown: 100 for a fraction, shown in percent."""
    return 1 if _base(name) in SUM_NAMES or _unit(name) in ("rank", "tau", "cosine") else 100


def format_value(name: str, value: float) -> str:
    """A number as the field prints it: percent of a fraction and sums to one decimal, tau and
    cosine to three."""
    if value != value:
        return "-"
    digits = 3 if _unit(name) in ("tau", "cosine") else 1
    return f"{scale(name) * value:.{digits}f}"


def _cell(name: str, value: float, interval: tuple[float, float] | None) -> str:
    between = (
        ""
        if interval is None
        else f" [{format_value(name, interval[0])}, {format_value(name, interval[1])}]"
    )
    return format_value(name, value) + between


def name_with_measure(item: Metric) -> str:
    """A metric's name with the measure whose relevance it reads, of the first one too:
    ndcg@25[cider]."""
    return (
        f"{item.name}[{item.relevance}]" if item.relevance and "[" not in item.name else item.name
    )


def choose_short(metrics: Sequence[Metric]) -> list[Metric]:
    """The metrics that matter most, in their order: recall, median rank, people's positives, NDCG,
    NCS at the largest cut-off, ASP and tau-b of each measure."""
    last = max((item.k for item in metrics if _base(item.name) == "ncs"), default=0)
    kept = _SHORT | {"ncs"} | AT_ONE
    chosen = [item for item in metrics if _base(item.name) in kept and item.name != "asp_a"]
    cuts = {"ncs": last, **dict.fromkeys(AT_ONE, 1)}
    return [item for item in chosen if item.k == cuts.get(_base(item.name), item.k)]


def _rows(evaluation: Evaluation, metrics: Sequence[Metric]) -> Iterator[list[str]]:
    """A row per metric, a column per direction, then the sums."""
    directions = [evaluation.scored[direction] for direction in DIRECTIONS]
    for item in metrics:
        cells = (
            _cell(item.name, scored.mean[item.name], scored.intervals.get(item.name))
            for scored in directions
        )
        yield [name_with_measure(item), *cells]
    first = next((item.relevance for item in directions[0].metrics if item.relevance), "")
    for name, value in evaluation.sums.items():
        label = f"{name}[{first}]" if name == "nsum" else name
        yield [label, _cell(name, value, evaluation.sum_intervals.get(name)), ""]


def show(evaluations: Sequence[Evaluation], *, every: bool = True) -> None:
    """Print each protocol's table (without `every` the short one), the collapse check beside
    lambda@K, and what was left out and why."""
    on = console()
    for evaluation in evaluations:
        metrics, counts = evaluation.scored["i2t"].metrics, evaluation.counts
        chosen = metrics if every else choose_short(metrics)
        title = (
            f"{counts['images']} images, {counts['captions']} captions,"
            f" {evaluation.protocol}\n{_HEADER}"
        )
        columns = ("metric", *DIRECTION_WORDS.values())
        print_table(
            title, columns, _rows(evaluation, chosen), texts=(0, 1, 2), title_justify="left"
        )
        if len(chosen) < len(metrics):
            left = f"{len(chosen)} of {len(metrics)} metrics; --all prints every one, --json too"
            on.print(left, highlight=False, soft_wrap=True)
        if any(_base(item.name).startswith("lambda") for item in chosen):
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


class StoredMetrics(BaseModel):
    """What tables read of metrics.json; null where no query has a value."""

    i2t: dict[str, float | None]
    t2i: dict[str, float | None]
    rsum: float | None = None
    nsum: float | None = None
    counts: dict[str, Any] = {}


def _read_run(path: Path) -> dict[str, Any]:
    file, models = path, 1
    if path.is_dir():
        # Its manifest is read first: a stopped evaluation may hold numbers of the one before.
        file, models = (
            path / METRICS_FILE,
            count_averaged(read_manifest(path, "evaluation")["inputs"]),
        )
    if not file.is_file():
        raise InputError(
            "no metrics.json", file=path, remedy="write it with capgrade evaluate --out"
        )
    run = read_json(file)
    try:
        StoredMetrics.model_validate(run)
    except ValidationError as error:
        remedy = "write them with capgrade evaluate --out"
        raise InputError("not the metrics of an evaluation", file=file, remedy=remedy) from error
    return {**run, "models": models}


def table_of_runs(
    runs: Mapping[str, Path], metrics: Sequence[str], style: Style = "markdown"
) -> str:
    """A table of several runs (label -> evaluation folder or metrics.json), one row per run, the
    best in bold.

    `metrics` such as recall@1 or ndcg@25 give one column per direction; rsum and nsum give one
    column. Heads name the measure of graded ones: ndcg@25 is of the first measure of an evaluation,
    ndcg@25[sbert] of another. InputError for another style, for a metric that was not evaluated,
    and where the first measures of the runs differ.
    """
    check_choice("style", style, get_args(Style))
    read = {label: _read_run(path) for label, path in runs.items()}
    names = [_name_of_one_measure(name, read, runs) for name in metrics]
    columns = [
        (direction, name)
        for name in names
        for direction in (("",) if _base(name) in SUM_NAMES else DIRECTIONS)
    ]
    values = {
        label: [_value(read[label], path, *column) for column in columns]
        for label, path in runs.items()
    }
    rows = []
    for label, models in ((label, run["models"]) for label, run in read.items()):
        cells = (format_value(name, v) for (_, name), v in zip(columns, values[label], strict=True))
        rows.append([f"{label} (mean of {models})" if models > 1 else label, *cells])
    for place, (_, name) in enumerate(columns):
        pick = best_of(name)
        known = [cells[place] for cells in values.values() if not math.isnan(cells[place])]
        best = format_value(name, pick(known)) if known and pick else None
        for row in rows:  # Values that print the same are equally good.
            if row[place + 1] == best:
                row[place + 1] = rf"\textbf{{{best}}}" if style == "latex" else f"**{best}**"
    header = ["run", *(f"{direction} {name}".strip() for direction, name in columns)]
    return latex(header, rows) if style == "latex" else markdown(header, rows)


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


def _name_of_one_measure(
    name: str, read: Mapping[str, Mapping[str, Any]], runs: Mapping[str, Path]
) -> str:
    """A graded metric with the measure in brackets, of the first one too."""
    if not is_graded(name) or name.endswith("]"):
        return name
    first = {label: first_measure(run) for label, run in read.items()}
    measures = list(dict.fromkeys(first.values()))
    if len(measures) > 1:
        label, other = (
            next(label for label, measure in first.items() if measure == wanted)
            for wanted in measures[:2]
        )
        problem = f"{name} is of {first[other]} here, and of {first[label]} in {label}"
        remedy = (
            f"name the measure: --metric '{name}[{measures[0]}]', or evaluate all runs with the"
            " same --relevance"
        )
        raise InputError(problem, file=runs[other], remedy=remedy)
    return f"{name}[{measures[0]}]" if measures and measures[0] else name


def _value(run: Mapping[str, Any], path: Path, direction: str, name: str) -> float:
    values = run.get(direction, {}) if direction else run
    key = name.removesuffix(f"[{first_measure(run)}]")
    if key not in values:
        raise InputError(
            f"no {name} was evaluated", file=path, remedy=choose_from(name, run.get("i2t", {}))
        )
    return math.nan if values[key] is None else float(values[key])


def compared_rows(
    labels: Sequence[str], comparisons: Sequence["Comparison"]
) -> tuple[list[str], list[list[str]]]:
    """Heads and cells of what `compare` found: a row per metric, tests of the first run against
    each other one."""
    words = {**DIRECTION_WORDS, "": "both"}
    heads, rows = tested_rows(
        labels,
        [
            (
                [format_value(row.metric, value) for value in row.values],
                row.tests,
                partial(_format_gap, row.metric),
            )
            for row in comparisons
        ],
    )
    names = [[row.metric, words[row.direction]] for row in comparisons]
    return ["metric", "direction", *heads], [
        [*name, *row] for name, row in zip(names, rows, strict=True)
    ]


def _format_gap(name: str, value: float) -> str:
    """A difference, one digit finer than the values."""
    return f"{scale(name) * value:+.{4 if _unit(name) in ('tau', 'cosine') else 2}f}"


def tested_rows(
    labels: Sequence[str],
    rows: Sequence[tuple[Sequence[str], Sequence[PairedTest | None], Callable[[float], str]]],
    level: float = 0.95,
    of: str = "queries",
) -> tuple[list[str], list[list[str]]]:
    """Heads and cells of systems' values, and of tests of the first against each other one; a row
    has the values, the tests, and how a difference is written. Of two systems the difference has an
    interval, of more each cell a p."""
    if len(labels) != 2:
        cells = [
            [first, *(_with_p(value, test) for value, test in zip(others, tests, strict=True))]
            for (first, *others), tests, _ in rows
        ]
        return [*labels], cells
    heads = [*labels, f"{labels[0]} less {labels[1]}", f"{level:.0%} interval", "p", of]
    return heads, [[*values, *_gap_cells(tests[0], write)] for values, tests, write in rows]


def _with_p(value: str, test: PairedTest | None) -> str:
    return value if test is None else f"{value} (p {test.p_value:.4f})"


def _gap_cells(test: PairedTest | None, write: Callable[[float], str]) -> list[str]:
    if test is None:
        return ["-"] * 4
    between = f"{write(test.low)} .. {write(test.high)}"
    return [write(test.difference), between, f"{test.p_value:.4f}", f"{test.queries:,}"]


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table, its first columns at the left."""
    lines = [header, ["---"] * left + ["---:"] * (len(header) - left), *rows]
    escaped = ((cell.replace("|", r"\|") for cell in line) for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)


def latex(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """The same as a tabular with rules of booktabs."""

    def escaped(cells: Sequence[str]) -> str:
        return " & ".join(re.sub(r"[_%&#]", r"\\\g<0>", cell) for cell in cells) + r" \\"

    kinds = "l" * left + "r" * (len(header) - left)
    top = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", escaped(header), r"\midrule"]
    return "\n".join([*top, *map(escaped, rows), r"\bottomrule", r"\end{tabular}"]) + "\n"


def label_folders(texts: Sequence[str]) -> dict[str, Path]:
    """Evaluation folders by label, from texts LABEL=DIR or DIR. One folder that holds evaluations
    gives all of them. InputError for a label that comes twice."""
    folders: dict[str, Path] = {}
    for text in texts:
        label, equals, path = text.partition("=")
        folder = Path(path if equals else text)
        if not equals and len(texts) == 1 and not (folder / METRICS_FILE).is_file():
            inside = sorted(path.parent for path in folder.glob(f"*/{METRICS_FILE}"))
            evaluations = {path.name: path for path in inside if not unfinished_work(path)}
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
    comparisons: Sequence["Comparison"] = (),
) -> str:
    """Write runs.md and runs.tex to `out`, and return the former. With `comparisons` of the runs,
    tests.md and tests.tex too. InputError for an `out` that another stage wrote."""
    tables = {f"runs.{end}": table_of_runs(runs, metrics, style) for end, style in _STYLES.items()}
    if comparisons:
        cells = compared_rows(list(runs), comparisons)
        tables |= {"tests.md": markdown(*cells, left=2), "tests.tex": latex(*cells, left=2)}
    with output_folder(out, "tables") as folder:
        for name, text in tables.items():
            write_text(folder / name, text)
        files = {k: path / METRICS_FILE if path.is_dir() else path for k, path in runs.items()}
        inputs, rows = found_digests(**files), dict.fromkeys(tables, 0)
        write_manifest(
            folder, "tables", params={"metrics": list(metrics)}, inputs=inputs, rows=rows
        )
    return tables["runs.md"]

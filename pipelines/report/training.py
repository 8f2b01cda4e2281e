"""Section: how training went, the loss of the steps and the validation of the epochs."""

from __future__ import annotations

import altair as alt
import numpy as np

from capgrade.pipelines.report.charts import by_run, choice, made, rows
from capgrade.pipelines.report.data import RUNS, ReportData, columns
from capgrade.pipelines.report.metric_names import axis, said
from capgrade.pipelines.report.parts import Chart, Missing, PageSection
from capgrade.trainer.evaluation.tables import scale
from capgrade.trainer.fit import EPOCHS, STEPS

ACTIVE = "active_"  # shares of hinges in training
POINTS = 100  # of a run's loss: each the mean of so many steps
NO_VALIDATION = ("epoch", "loss", "pairs_per_s")
INTRO = (
    "Losses of different kinds have different sizes, so each is drawn as a share of its first value, averaged over "
    "neighbouring steps. Validation is measured after every epoch."
)


def training(data: ReportData) -> PageSection:
    """A chart of losses and one of any validated metric."""
    found, others = data.folders(RUNS, EPOCHS), data.left_out(RUNS, EPOCHS, "trained")
    if not found:
        options = "--preset bcls --captions {captions} --regions {regions} --out {runs/bcls}"
        missing = others or [Missing("trained runs", data.command("train", options))]
        return PageSection("training", "Training", INTRO, missing)
    losses = {name: columns(folder / STEPS)["loss"] for name, folder in found.items()}
    epochs = {name: columns(folder / EPOCHS) for name, folder in found.items()}
    charts = [_losses(losses, data.runs), _validation(epochs, data.runs)]
    return PageSection("training", "Training", INTRO, [*charts, *others])


def means(values: np.ndarray, points: int) -> list[tuple[float, float]]:
    """Share of the steps done, and the mean of the values around it, of at most `points` parts of equal length."""
    parts = np.array_split(values, min(points, len(values)))
    ends = np.cumsum([len(part) for part in parts]) / len(values)
    return [(float(end), float(part.mean())) for end, part in zip(ends, parts, strict=True)]


def _validated(name: str) -> bool:
    return name not in NO_VALIDATION and not name.startswith(ACTIVE)


def _losses(losses: dict[str, np.ndarray], runs: list[str]) -> Chart:
    smooth = {name: means(values, POINTS) for name, values in losses.items() if len(values)}
    values = [
        {"run": name, "done": done, "loss": loss / line[0][1]} for name, line in smooth.items() for done, loss in line
    ]
    chart, colour = by_run(alt.Chart(rows(values)), runs)
    chart = chart.mark_line().encode(
        alt.X("done:Q", title="share of the steps", axis=alt.Axis(format="%")),
        alt.Y("loss:Q", title="loss, of its first value"),
        colour,
        tooltip=["run:N", alt.Tooltip("done:Q", format=".1%"), alt.Tooltip("loss:Q", format=".3f")],
    )
    ends = ", ".join(f"{name} {line[-1][1] / line[0][1]:.2f}" for name, line in smooth.items())
    return made("training-loss", "Training loss", f"Loss over training, of its first value; at the end: {ends}.", chart)


def _validation(epochs: dict[str, dict[str, np.ndarray]], runs: list[str]) -> Chart:
    names = list(dict.fromkeys(name for table in epochs.values() for name in table if _validated(name)))
    values = [
        {"run": run, "epoch": int(epoch), "metric": name, "value": scale(name) * value, "said": said(name, value)}
        for run, table in epochs.items()
        for name in names
        if name in table
        for epoch, value in zip(table["epoch"], table[name].tolist(), strict=True)
    ]
    chart, colour = by_run(alt.Chart(rows(values)), runs)
    metric = choice("validated", "metric", names or ["-"])
    chart = chart.add_params(metric).transform_filter("datum.metric === validated")
    chart = chart.mark_line(point=True).encode(
        alt.X("epoch:Q", axis=alt.Axis(values=_ticks(epochs), format="d")),
        alt.Y("value:Q", title="validation", scale=alt.Scale(zero=False), axis=axis("validated", names)),
        colour,
        tooltip=["run:N", "epoch:Q", "metric:N", alt.Tooltip("said:N", title="value")],
    )
    last = {run: table[names[0]][-1] for run, table in epochs.items() if names and names[0] in table}
    ends = ", ".join(f"{run} {said(names[0], value)}" for run, value in last.items())
    told = f"Validation after each epoch; {names[0] if names else 'nothing'} at the end: {ends}."
    return made("training-validation", "Validation", told, chart)


def _ticks(epochs: dict[str, dict[str, np.ndarray]]) -> list[int]:
    """Whole epochs, ten of them or fewer."""
    last = max((int(table["epoch"].max(initial=1)) for table in epochs.values()), default=1)
    return list(range(1, last + 1, -(-last // 10)))

"""Section: what each stage wrote, and what it took."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import altair as alt

from capgrade.pipelines.report.charts import made, rows
from capgrade.pipelines.report.data import ReportData
from capgrade.pipelines.report.parts import Cell, Chart, Missing, PageSection, PageTable, Part, count, number, text
from capgrade.schemas.files import MANIFEST, read_json
from capgrade.schemas.times import TIMES, Time, read_time

MARKS = (MANIFEST, "config.json", "metrics.json", "alignment.png")  # of a finished folder
MEGA = 1e6
INTRO = (
    "What the outputs take on disk, and what the last run of each command took: time on the clock, processor time of "
    "all its processes, and the memory of the largest. Times are kept beside the outputs, outside their checksums."
)


def cost(data: ReportData) -> PageSection:
    """A row an output; times where they were recorded."""
    outputs = list(_outputs(data.folder))
    times = {path: read_time(path) for path in outputs}
    lines = [_row(data.folder, path, times[path]) for path in outputs]
    heads = ("output", "rows", "files", "MB", "seconds", "processor seconds", "peak memory, MB")
    parts: list[Part] = [PageTable("Outputs", heads, lines)]
    known = {str(path.relative_to(data.folder)): time for path, time in times.items() if time is not None}
    if known:
        parts.insert(0, _chart(known))
    if len(known) < len(times):
        missing = f"times of {len(times) - len(known)} of {len(times)} outputs: none were kept when they were made"
        parts.append(Missing(missing, f"mkdir {data.folder / TIMES}, and run the commands again"))
    return PageSection("cost", "Cost and time", INTRO, parts)


def _outputs(folder: Path) -> Iterator[Path]:
    """Finished folders of stages in `folder` and one level below, in order."""
    for path in sorted(path for path in folder.iterdir() if path.is_dir() and path.name != TIMES):
        if any((path / mark).is_file() for mark in MARKS) and not any((path / "x").parent.glob("*/metrics.json")):
            yield path
        else:
            yield from sorted(one for one in path.iterdir() if any((one / mark).is_file() for mark in MARKS))
    yield from (path for path in sorted(folder.glob("*.json")))


def _row(folder: Path, path: Path, time: Time | None) -> list[Cell]:
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    size = sum(one.stat().st_size for one in files) / MEGA
    rows_of = _rows(path)
    spent = (
        [number(float("nan"))] * 3
        if time is None
        else [number(x, 1) for x in (time.seconds, time.processor_seconds, time.peak_mb)]
    )
    return [text(str(path.relative_to(folder))), rows_of, count(len(files)), number(size, 2), *spent]


def _rows(path: Path) -> Cell:
    manifest = path / MANIFEST
    if not manifest.is_file():
        return number(float("nan"))
    files = read_json(manifest)["files"].items()
    rows_of = sum(entry["rows"] for name, entry in files if not name.endswith(".csv"))
    return count(rows_of) if rows_of else number(float("nan"))


def _chart(times: dict[str, Time]) -> Chart:
    values = [{"output": name, "command": time.command, **time.json()} for name, time in times.items()]
    chart = alt.Chart(rows(values)).mark_bar().encode(
        alt.X("seconds:Q"),
        alt.Y("output:N", title=None, sort="-x", axis=alt.Axis(labelLimit=200)),
        tooltip=["output:N", "command:N", "seconds:Q", "processor_seconds:Q", "peak_mb:Q"],
    )  # fmt: skip
    longest = max(times, key=lambda name: times[name].seconds)
    told = f"Seconds of each output's last command; the longest is {longest} with {times[longest].seconds:.0f}."
    made_chart = made("times", "Seconds of each command", told, chart, wide=True)
    made_chart.spec["height"] = {"step": 22}
    return made_chart

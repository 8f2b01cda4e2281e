"""Section: what each stage wrote, and what it took."""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from capgrade.apps.page.charts import channel, make_chart, make_layer
from capgrade.apps.page.parts import Chart, Note, PageSection, PageTable, Part, Value, as_cell
from capgrade.apps.report.data import AGREEMENT, METRICS, ReportData
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, parse_manifest, unfinished_work
from capgrade.schemas.times import TIMES, Time, read_time

MARKS = (MANIFEST, "config.json", METRICS, "alignment.png")  # A finished folder has one of these.
MEGA = 1e6
_HEADS = ("output", "rows", "files", "MB", "seconds", "processor seconds", "peak memory, MB")
_INTRO = (
    "What the outputs take on disk, and what the last run of each command took: time on the clock,"
    " processor time of all its processes, and the memory of the largest. Times are kept beside the"
    " outputs, outside their checksums."
)


def cost_section(data: ReportData) -> PageSection:
    """A table of one row per output; without columns of times where none was recorded."""
    times = {path: read_time(_out_of(path)) for path in _outputs(data.folder)}
    recorded = {
        str(path.relative_to(data.folder)): time for path, time in times.items() if time is not None
    }
    lines = [_row(data.folder, path, time) for path, time in times.items()]
    n_columns = len(_HEADS) if recorded else _HEADS.index("seconds")
    table = PageTable("Outputs", _HEADS[:n_columns], [line[:n_columns] for line in lines])
    parts: list[Part] = [*([_chart(recorded)] if recorded else []), table]
    if len(recorded) < len(times):
        missing = (
            f"times of {len(times) - len(recorded)} of {len(times)} outputs: none were kept when"
            " they were made"
        )
        data.missing[missing] = Note(
            missing, f"mkdir {data.folder / TIMES}, and run the commands again"
        )
    return PageSection("cost", "Cost and time", _INTRO, parts)


def _outputs(folder: Path) -> Iterator[Path]:
    """Finished folders of stages in `folder` and one level below, in order, then the agreement."""
    for path in sorted(path for path in folder.iterdir() if path.is_dir() and path.name != TIMES):
        if _is_finished(path) and not any(path.glob(f"*/{METRICS}")):
            yield path
        elif not unfinished_work(path):
            yield from sorted(child for child in path.iterdir() if _is_finished(child))
    if (folder / AGREEMENT).is_file():
        yield folder / AGREEMENT


def _out_of(path: Path) -> Path:
    """The command's --out, under which its time is kept: for the lists of `audit` the page."""
    page = path.with_name(f"{path.name.removesuffix('-lists')}.html")
    return page if page.is_file() else path


def _is_finished(folder: Path) -> bool:
    return any((folder / mark).is_file() for mark in MARKS) and not unfinished_work(folder)


def _row(folder: Path, path: Path, time: Time | None) -> list[Value]:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files) / MEGA
    costs = [math.nan] * 3 if time is None else [time.seconds, time.processor_seconds, time.peak_mb]
    rows = math.nan
    # Folders that another mark than a manifest makes finished have no count of rows.
    with suppress(InputError, OSError):
        entries = parse_manifest(path / MANIFEST)["files"].items()
        rows = (
            sum(entry.get("rows", 0) for name, entry in entries if not name.endswith(".csv"))
            or math.nan
        )
    return [
        str(path.relative_to(folder)),
        rows,
        len(files),
        as_cell(size, 2),
        *(as_cell(number, 1) for number in costs),
    ]


def _chart(times: dict[str, Time]) -> Chart:
    values = [
        {"output": name, "command": time.command, **asdict(time)} for name, time in times.items()
    ]
    bars = make_layer(
        "bar",
        channel("seconds:Q"),
        channel("output:N", title=None, sort="-x", axis={"labelLimit": 200}),
        tip=["output:N", "command:N", "seconds:Q", "processor_seconds:Q", "peak_mb:Q"],
    )
    longest = max(times, key=lambda name: times[name].seconds)
    alt = (
        f"Seconds of each output's last command; the longest is {longest} with"
        f" {times[longest].seconds:.0f}."
    )
    return make_chart(
        "times", "Seconds of each command", alt, values, bars, wide=True, height=22 * len(values)
    )

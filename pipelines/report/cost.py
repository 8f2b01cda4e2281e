"""Section: what each stage wrote, and what it took."""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from capgrade.pipelines.page.charts import chart, layer, of
from capgrade.pipelines.page.parts import Chart, Note, PageSection, PageTable, Part, Value, cell
from capgrade.pipelines.report.data import AGREEMENT, METRICS, ReportData
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, parse_manifest, unfinished_work
from capgrade.schemas.times import TIMES, Time, read_time

MARKS = (MANIFEST, "config.json", METRICS, "alignment.png")  # of a finished folder
MEGA = 1e6
_HEADS = ("output", "rows", "files", "MB", "seconds", "processor seconds", "peak memory, MB")
_INTRO = (
    "What the outputs take on disk, and what the last run of each command took: time on the clock,"
    " processor time of all its processes, and the memory of the largest. Times are kept beside the"
    " outputs, outside their checksums."
)


def cost(data: ReportData) -> PageSection:
    """A row an output; times where they were recorded, and no columns of them where none was."""
    times = {path: read_time(_named(path)) for path in _outputs(data.folder)}
    known = {
        str(path.relative_to(data.folder)): time for path, time in times.items() if time is not None
    }
    lines = [_row(data.folder, path, time) for path, time in times.items()]
    shown = len(_HEADS) if known else _HEADS.index("seconds")
    table = PageTable("Outputs", _HEADS[:shown], [line[:shown] for line in lines])
    parts: list[Part] = [*([_chart(known)] if known else []), table]
    if len(known) < len(times):
        what = (
            f"times of {len(times) - len(known)} of {len(times)} outputs: none were kept when they"
            " were made"
        )
        data.lacking[what] = Note(what, f"mkdir {data.folder / TIMES}, and run the commands again")
    return PageSection("cost", "Cost and time", _INTRO, parts)


def _outputs(folder: Path) -> Iterator[Path]:
    """Finished folders of stages in `folder` and one level below, in order."""
    for path in sorted(path for path in folder.iterdir() if path.is_dir() and path.name != TIMES):
        if _finished(path) and not any(path.glob(f"*/{METRICS}")):
            yield path
        elif not unfinished_work(path):
            yield from sorted(one for one in path.iterdir() if _finished(one))
    if (folder / AGREEMENT).is_file():  # a JSON of another name is no output
        yield folder / AGREEMENT


def _named(path: Path) -> Path:
    """What the command was told to write: of `audit` the page, whose lists are beside it."""
    page = path.with_name(f"{path.name.removesuffix('-lists')}.html")
    return page if page.is_file() else path


def _finished(folder: Path) -> bool:
    return any((folder / mark).is_file() for mark in MARKS) and not unfinished_work(folder)


def _row(folder: Path, path: Path, time: Time | None) -> list[Value]:
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    size = sum(one.stat().st_size for one in files) / MEGA
    spent = [math.nan] * 3 if time is None else [time.seconds, time.processor_seconds, time.peak_mb]
    rows = math.nan
    with suppress(InputError, OSError):  # a folder of something else
        listed = parse_manifest(path / MANIFEST)["files"].items()
        rows = (
            sum(entry.get("rows", 0) for name, entry in listed if not name.endswith(".csv"))
            or math.nan
        )
    return [
        str(path.relative_to(folder)),
        rows,
        len(files),
        cell(size, 2),
        *(cell(x, 1) for x in spent),
    ]


def _chart(times: dict[str, Time]) -> Chart:
    values = [
        {"output": name, "command": time.command, **asdict(time)} for name, time in times.items()
    ]
    bars = layer(
        "bar",
        of("seconds:Q"),
        of("output:N", title=None, sort="-x", axis={"labelLimit": 200}),
        tip=["output:N", "command:N", "seconds:Q", "processor_seconds:Q", "peak_mb:Q"],
    )
    longest = max(times, key=lambda name: times[name].seconds)
    told = (
        f"Seconds of each output's last command; the longest is {longest} with"
        f" {times[longest].seconds:.0f}."
    )
    return chart(
        "times", "Seconds of each command", told, values, bars, wide=True, height=22 * len(values)
    )

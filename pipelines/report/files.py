"""The page's pictures as files: every chart as PNG and SVG, every other picture as it is."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import vl_convert

from capgrade.pipelines.report.page import VEGA_LITE
from capgrade.pipelines.report.parts import Chart, Picture, Section
from capgrade.pipelines.report.theme import THEMES
from capgrade.schemas.files import atomic, write_manifest
from capgrade.schemas.output import output_folder

WIDTH, WIDE = 440, 820
SCALE = 2  # pixels of a PNG for one of the page


def write_pictures(sections: Iterable[Section], folder: Path) -> list[Path]:
    """NAME.png and NAME.svg of each chart, on white, and the other pictures; returns the files. InputError for a folder
    that something else wrote."""
    with output_folder(folder, "pictures"):
        written = _write_all(sections, folder)
        if written:
            rows = {path.name: 0 for path in written}
            write_manifest(folder, "pictures", params={}, inputs={}, rows=rows)
        return written


def _write_all(sections: Iterable[Section], folder: Path) -> list[Path]:
    written = []
    for part in (part for section in sections for part in section.parts):
        if isinstance(part, Chart):
            spec = fixed(part)
            options: dict[str, Any] = {"vl_version": VEGA_LITE, "config": THEMES["light"]}
            written.append(_write(folder / f"{part.name}.svg", vl_convert.vegalite_to_svg(spec, **options).encode()))
            png = vl_convert.vegalite_to_png(spec, scale=SCALE, **options)
            written.append(_write(folder / f"{part.name}.png", png))
        elif isinstance(part, Picture):
            written.append(_write(folder / f"{part.name}.{part.suffix}", part.data))
    return written


def fixed(chart: Chart) -> dict[str, Any]:
    """The chart's specification with a width of its own, its title, and what its lists of choices show at first."""
    spec = copy.deepcopy(chart.spec)
    spec["width"] = WIDE if chart.wide else WIDTH
    spec["title"] = chart.title
    return spec


def _write(path: Path, data: bytes) -> Path:
    with atomic(path) as temporary:
        temporary.write_bytes(data)
    return path

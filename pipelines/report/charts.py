"""Charts as Vega-Lite: rows of values in, what the page and the files draw out, with one look on light and dark pages.

Colours have a contrast of 3 to 1 with either ground, or more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from capgrade.pipelines.report.parts import Chart

LIGHT_SERIES = ["#0063b1", "#c4500a", "#0b7a55", "#a8328a", "#6e5a00", "#57606a", "#b3261e", "#3d4f9f"]
DARK_SERIES = ["#6cb6ff", "#f69d50", "#4ac596", "#e085c8", "#d8b83a", "#aab4bf", "#ff8a80", "#a5b4fc"]
MEAN = "mean"  # the style of means over dots: the colour of text, which no series has
SANS = "system-ui, 'Liberation Sans', 'DejaVu Sans', sans-serif"


def config(series: list[str], ink: str, soft: str, grid: str, ground: str) -> dict[str, Any]:
    """Vega-Lite's `config`."""
    axis = {"labelColor": ink, "titleColor": ink, "gridColor": grid, "domainColor": soft, "tickColor": soft}
    apart = {
        "labelOverlap": "greedy",
        "labelSeparation": 6,
        "labelFlush": False,
    }  # a label pushed inwards meets the next
    font = {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"}
    legend = {"orient": "bottom", "columns": 2, "labelLimit": 220, "layout": {"bottom": {"direction": "vertical"}}}
    return {
        "background": ground,
        "font": SANS,
        "view": {"stroke": None},
        "range": {"category": series},
        "axis": {**axis, **font, "titlePadding": 8},
        "axisQuantitative": apart,
        "legend": {**legend, **font, "labelColor": ink, "titleColor": ink},
        "title": {"color": ink, "fontSize": 14, "anchor": "start"},
        "mark": {"color": series[0]},
        "rule": {"color": ink},
        "style": {MEAN: {"color": ink}},
        "text": {"color": ink},
    }


THEMES = {
    "light": config(LIGHT_SERIES, "#1f2328", "#6e7781", "#e4e7eb", "#ffffff"),
    "dark": config(DARK_SERIES, "#e6edf3", "#8b949e", "#30363d", "#161b22"),
}


HEIGHT = 260
Row = Mapping[str, Any]
SHORT = 14  # letters of names of which two fit side by side on a phone
HIDDEN = "hidden"  # the parameter that the page's boxes for runs set


def rows(values: Iterable[Row]) -> alt.Data:
    """Rows as the data of a chart."""
    return alt.Data(values=[{key: _short(value) for key, value in row.items()} for row in values])


def _short(value: Any) -> Any:
    """Numbers of five digits: nobody sees more, and the page stays small."""
    return float(f"{value:.5g}") if isinstance(value, float) else value


def made(name: str, title: str, alt_text: str, chart: alt.TopLevelMixin, *, wide: bool = False) -> Chart:
    """A chart as wide as its place."""
    spec = chart.properties(width="container", height=HEIGHT, description=alt_text).to_dict()
    return Chart(name, title, alt_text, spec, wide)


def by_run(chart: alt.Chart, runs: Sequence[str]) -> tuple[alt.Chart, alt.Color]:
    """The chart without the runs that a reader hides, and one colour a run, the same in every chart."""
    shown = alt.param(name=HIDDEN, value=[])
    columns = 1 if any(len(run) > SHORT for run in runs) else 2  # a legend wider than its chart is cut off
    legend = alt.Legend(columns=columns)
    colour = alt.Color("run:N", title=None, scale=alt.Scale(domain=list(runs)), legend=legend)
    return chart.add_params(shown).transform_filter(f"indexof({HIDDEN}, datum.run) < 0"), colour


def choice(name: str, label: str, options: Sequence[str]) -> alt.Parameter:
    """A list to choose from below a chart."""
    return alt.param(name=name, value=options[0], bind=alt.binding_select(options=list(options), name=f"{label} "))

"""One look for charts on light and on dark pages: colours have a contrast of 3 to 1 with either ground, or more."""

from __future__ import annotations

from typing import Any

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

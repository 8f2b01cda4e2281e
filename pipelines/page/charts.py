"""Charts as Vega-Lite: rows of values in, what the page and the files draw out, with one look on
light and dark pages.

Colours are those of style.css; they have a contrast of 3 to 1 with either ground, or more.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from capgrade.pipelines.page.parts import Chart

STYLE = Path(__file__).with_name("style.css")
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
MEAN = "mean"  # the style of means over dots: the colour of text, which no series has
_HEIGHT = 260
_SHORT = 14  # letters of names of which two fit side by side on a phone
HIDDEN = "hidden"  # the parameter that the page's boxes for runs set
Channel = dict[str, Any]


def palette(dark: bool = False) -> dict[str, str]:
    """The colours of style.css: ink, soft, line, card, series-1, ..."""
    pairs = re.findall(
        r"--cg-([\w-]+): light-dark\((#\w+), (#\w+)\)", STYLE.read_text(encoding="utf-8")
    )
    return {name: two[dark] for name, *two in pairs}


def _config(dark: bool) -> dict[str, Any]:
    colours = palette(dark)
    ink, soft, grid = (colours[name] for name in ("ink", "soft", "line"))
    series = [colour for name, colour in colours.items() if name.startswith("series")]
    font = {
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelColor": ink,
        "titleColor": ink,
    }
    legend = {
        "orient": "bottom",
        "columns": 2,
        "labelLimit": 240,
        "layout": {"bottom": {"direction": "vertical"}},
    }
    return {
        "background": colours["card"],
        "padding": {
            "left": 4,
            "top": 6,
            "right": 16,
            "bottom": 4,
        },  # half a label at the end of an axis
        "font": "system-ui, 'Liberation Sans', 'DejaVu Sans', sans-serif",
        "view": {"stroke": None},
        "range": {"category": series},
        "axis": {
            **font,
            "gridColor": grid,
            "domainColor": soft,
            "tickColor": soft,
            "titlePadding": 8,
        },
        # A label that is pushed inwards would meet the next.
        "axisQuantitative": {"labelOverlap": "parity", "labelSeparation": 6, "labelFlush": False},
        "legend": {**font, **legend},
        "title": {"color": ink, "fontSize": 14, "anchor": "start"},
        "mark": {"color": series[0]},
        "rule": {"color": ink},
        "style": {MEAN: {"color": ink}},
        "text": {"color": ink},
    }


def themes() -> dict[str, dict[str, Any]]:
    """What charts look like on either ground."""
    return {"light": _config(False), "dark": _config(True)}


def of(column: str, **more: Any) -> Channel:
    """A channel for a column of the rows: `words:Q` of numbers, `split:N` of names, `share:Q:.1%`
    with a format; `more` as Vega-Lite has it."""
    name, kind, *form = column.split(":", 2)
    return {
        "field": name,
        "type": {"Q": "quantitative", "N": "nominal"}[kind],
        **({"format": form[0]} if form else {}),
        **more,
    }


def layer(
    mark: str,
    x: Channel,
    y: Channel,
    *,
    tip: Sequence[str | Channel] = (),
    of_mark: Any = None,
    **more: Any,
) -> Any:
    """Marks of one kind; `tip` are the columns that hovering shows, `of_mark` what else the mark
    has."""
    tooltip = {"tooltip": [of(one) if isinstance(one, str) else one for one in tip]} if tip else {}
    return {
        "mark": {"type": mark, **(of_mark or {})},
        "encoding": {"x": x, "y": y, **more, **tooltip},
    }


def rows(values: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows as the data of a chart. Numbers have five digits: nobody sees more, and the page stays
    small."""
    short = [
        {k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in row.items()}
        for row in values
    ]
    return {"values": short}


def chart(
    name: str,
    title: str,
    alt: str,
    values: Iterable[Mapping[str, Any]],
    *layers: dict[str, Any],
    wide: bool = False,
    height: int = _HEIGHT,
    by_run: bool = False,
    choose: tuple[str, Sequence[str]] | None = None,
) -> Chart:
    """A chart as wide as its place. `by_run`: without the runs that a reader hides. `choose`: the
    name of a parameter and the values of the column `metric`, of which the reader chooses one."""
    params: list[dict[str, Any]] = [{"name": HIDDEN, "value": []}] if by_run else []
    transform = [{"filter": f"indexof({HIDDEN}, datum.run) < 0"}] if by_run else []
    if choose:
        parameter, options = choose
        bind = {"input": "select", "options": list(options), "name": "metric "}
        params.append({"name": parameter, "value": options[0], "bind": bind})
        transform.append({"filter": f"datum.metric === {parameter}"})
    one = layers[0] if len(layers) == 1 else {"layer": list(layers)}
    extra = {key: value for key, value in (("params", params), ("transform", transform)) if value}
    spec = {
        "$schema": _SCHEMA,
        "width": "container",
        "height": height,
        "description": alt,
        "data": rows(values),
    }
    return Chart(name, title, alt, {**spec, **extra, **one}, wide)


def share_bars(
    name: str,
    title: str,
    told: str,
    y: Channel,
    counted: str,
    counts: Mapping[str, int],
    total: int,
    **more: Any,
) -> Chart:
    """A bar a name of `y`: which share of the `counted` (images, captions) it has; `more` as
    `chart` has it."""
    values = [{y["field"]: key, counted: int(n), "share": n / total} for key, n in counts.items()]
    tip = [f"{y['field']}:N", f"{counted}:Q", "share:Q:.1%"]
    return chart(name, title, told, values, layer("bar", share_of(counted), y, tip=tip), **more)


def share_of(what: str) -> Channel:
    return of("share:Q", title=f"share of the {what}", axis={"format": "%"})


def colour_of(runs: Sequence[str], shown: Iterable[str], **more: Any) -> Channel:
    """One colour a run, the same in every chart; the legend names those that are `shown` in this
    one. Long names stand below each other, or the legend would be cut off."""
    there = set(shown)
    named = [run for run in runs if run in there]
    legend = {"columns": 1 if any(len(run) > _SHORT for run in named) else 2, "values": named}
    return of("run:N", title=None, scale={"domain": list(runs)}, **{"legend": legend, **more})

"""Charts as Vega-Lite specifications, which the page draws on light and dark ground, and
`write_pictures` as files.

Colours are those of style.css; they have a contrast of 3 to 1 with either ground, or more.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from capgrade.apps.page.parts import Chart

STYLE = Path(__file__).with_name("style.css")
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
MEAN = "mean"  # the style of means over dots: the colour of text, which no series has
_HEIGHT = 260
_SHORT = 14  # letters in a name; two names of this length fit side by side on a phone
HIDDEN = "hidden"  # the parameter that the page's boxes for runs set
Channel = dict[str, Any]


def read_palette(dark: bool = False) -> dict[str, str]:
    """The colours of style.css: ink, soft, line, card, series-1, ..."""
    declarations = re.findall(
        r"--cg-([\w-]+): light-dark\((#\w+), (#\w+)\)", STYLE.read_text(encoding="utf-8")
    )
    return {name: colour_pair[dark] for name, *colour_pair in declarations}


def _config(dark: bool) -> dict[str, Any]:
    colours = read_palette(dark)
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
        # The last label of an axis sticks out by half on the right.
        "padding": {"left": 4, "top": 6, "right": 16, "bottom": 4},
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


def make_themes() -> dict[str, dict[str, Any]]:
    """Vega configurations for light and for dark pages."""
    return {"light": _config(False), "dark": _config(True)}


def channel(column: str, **more: Any) -> Channel:
    """The encoding of a column: `words:Q` of numbers, `split:N` of names, `share:Q:.1%` with a
    format; `more` are further properties of Vega-Lite's channel."""
    name, kind, *form = column.split(":", 2)
    return {
        "field": name,
        "type": {"Q": "quantitative", "N": "nominal"}[kind],
        **({"format": form[0]} if form else {}),
        **more,
    }


def make_layer(
    mark: str,
    x: Channel,
    y: Channel,
    *,
    tip: Sequence[str | Channel] = (),
    mark_options: Any = None,
    **more: Any,
) -> Any:
    """Marks of one kind. `tip`: the columns that hovering shows; `mark_options`: further properties
    of the mark; `more`: further channels."""
    encoding = {"x": x, "y": y, **more}
    if tip:
        encoding["tooltip"] = [channel(field) if isinstance(field, str) else field for field in tip]
    return {"mark": {"type": mark, **(mark_options or {})}, "encoding": encoding}


def inline_data(values: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows as the data of a chart. Numbers have five digits: nobody sees more, and the page stays
    small."""
    rounded = [
        {k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in row.items()}
        for row in values
    ]
    return {"values": rounded}


def make_chart(
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
    """A chart as wide as its container. `by_run`: the page's boxes hide runs in it. `choose`: the
    name of a parameter and the values of the column `metric`; the reader chooses one of them."""
    params: list[dict[str, Any]] = [{"name": HIDDEN, "value": []}] if by_run else []
    transform = [{"filter": f"indexof({HIDDEN}, datum.run) < 0"}] if by_run else []
    if choose:
        parameter, options = choose
        bind = {"input": "select", "options": list(options), "name": "metric "}
        params.append({"name": parameter, "value": options[0], "bind": bind})
        transform.append({"filter": f"datum.metric === {parameter}"})
    body = layers[0] if len(layers) == 1 else {"layer": list(layers)}
    extra = {key: value for key, value in (("params", params), ("transform", transform)) if value}
    spec = {
        "$schema": _SCHEMA,
        "width": "container",
        "height": height,
        "description": alt,
        "data": inline_data(values),
    }
    return Chart(name, title, alt, {**spec, **extra, **body}, wide)


def make_share_bars(
    name: str,
    title: str,
    alt: str,
    y: Channel,
    counted: str,
    counts: Mapping[str, int],
    total: int,
    **more: Any,
) -> Chart:
    """A bar for each key of `counts`: its share of all `counted` (images, captions), whose number
    is `total`; `more` goes to `make_chart`."""
    values = [{y["field"]: key, counted: int(n), "share": n / total} for key, n in counts.items()]
    tip = [f"{y['field']}:N", f"{counted}:Q", "share:Q:.1%"]
    return make_chart(
        name, title, alt, values, make_layer("bar", share_channel(counted), y, tip=tip), **more
    )


def share_channel(what: str) -> Channel:
    """The encoding of the column `share`, in percent."""
    return channel("share:Q", title=f"share of the {what}", axis={"format": "%"})


def colour_of(runs: Sequence[str], shown: Iterable[str], **more: Any) -> Channel:
    """One colour a run, the same in every chart; the legend names those that are `shown` in this
    one. Long names stand below each other, or the legend would be cut off."""
    shown_runs = set(shown)
    listed = [run for run in runs if run in shown_runs]
    legend = {"columns": 1 if any(len(run) > _SHORT for run in listed) else 2, "values": listed}
    return channel("run:N", title=None, scale={"domain": list(runs)}, **{"legend": legend, **more})

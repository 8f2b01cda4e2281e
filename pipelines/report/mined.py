"""Section: pairs that a measure calls relevant beyond the own ones: how many of them do people call relevant?"""

from __future__ import annotations

from typing import Any

import altair as alt

from capgrade.pipelines.report.charts import made, rows
from capgrade.pipelines.report.data import EVALUATION, Data
from capgrade.pipelines.report.parts import Chart, Missing, Part, Section
from capgrade.schemas.files import read_json

FILE = "curves_mined.json"
HUMAN = {"eccv": "ECCV Caption", "cxc": "Crisscrossed Captions"}
FEWEST = 30  # mined pairs that people have seen, below which a precision says little
INTRO = (
    "Every pair above a threshold counts as mined; own pairs are left out. Precision is the share of them on people's "
    "lists of positives. People saw few of all pairs, so it is a lower bound: compare the measures with each other."
)
SHARES = ("precision", "recall")


def mined(data: Data) -> Section:
    """A chart for each list of human positives. These lists belong to the COCO 5K test captions."""
    found = [read_json(folder / FILE) for folder in data.folders(EVALUATION, FILE).values()]
    curves: list[dict[str, Any]] = next((one for one in found if one), [])
    parts: list[Part] = [_chart(human, curves) for human in dict.fromkeys(row["human"] for row in curves)]
    if not found:
        options = "--captions {captions} --similarity FILE --relevance {relevance} --out {evaluation/RUN}"
        parts = [Missing("precision of mined positives", data.command("evaluate", options))]
    elif not parts:
        parts = [
            Missing(
                "precision of mined positives: people's lists of positives (ECCV Caption, Crisscrossed Captions) are "
                "of the MS-COCO 5K test captions, and these captions are others"
            )
        ]
    return Section("mined", "Precision of mined positives", INTRO, parts)


def _chart(human: str, curves: list[dict[str, Any]]) -> Chart:
    values = [row for row in curves if row["human"] == human and row["overlap"] >= FEWEST]
    shown = [{key: row[key] for key in ("measure", "threshold", "mined", "precision", "recall")} for row in values]
    chart = alt.Chart(rows(shown)).mark_line(point=alt.OverlayMarkDef(size=22)).encode(
        alt.X("mined:Q", title="pairs mined", scale=alt.Scale(type="log"), axis=alt.Axis(format="~s")),
        alt.Y("precision:Q", axis=alt.Axis(format="%")),
        alt.Color("measure:N", title=None),
        alt.Order("threshold:Q"),
        tooltip=["measure:N", "threshold:Q", "mined:Q", *(alt.Tooltip(f"{k}:Q", format=".1%") for k in SHARES)],
    )  # fmt: skip
    name = HUMAN.get(human, human)
    measures = ", ".join(dict.fromkeys(row["measure"] for row in values))
    told = f"Precision against the number of mined pairs, human positives of {name}, a line a measure: {measures}."
    return made(f"mined-{human}", f"Positives of {name}", told, chart)

"""Section: pairs that a measure calls relevant beyond the own ones: how many of them do people call relevant?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt

from capgrade.pipelines.report.charts import made, rows
from capgrade.pipelines.report.data import EVALUATION, ReportData
from capgrade.pipelines.report.parts import Chart, Missing, PageSection, Part
from capgrade.schemas.files import read_json
from capgrade.trainer.evaluation.task import of_coco

FILE = "curves_mined.json"
HUMAN = {"eccv": "ECCV Caption", "cxc": "Crisscrossed Captions"}
FEWEST = 30  # mined pairs that people have seen, below which a precision says little
INTRO = (
    "Every pair above a threshold counts as mined; own pairs are left out. Precision is the share of them on people's "
    "lists of positives. People saw only few pairs, so it is a lower bound: compare the measures with each other."
)
LEFT_OUT = tuple(f"{name} left out" for name in HUMAN)  # notes of `evaluate`, on captions of MS-COCO's 5K test split
OTHERS = (
    "people's lists of positives (ECCV Caption, Crisscrossed Captions) are of the MS-COCO 5K test captions, and these "
    "captions are others"
)
SHARES = ("precision", "recall")


def mined(data: ReportData) -> PageSection:
    """A chart for each list of human positives. These lists belong to the COCO 5K test captions."""
    folders = list(data.folders(EVALUATION, FILE).values())
    found = [read_json(folder / FILE) for folder in folders]
    curves: list[dict[str, Any]] = next((one for one in found if one), [])
    parts: list[Part] = [_chart(human, curves) for human in dict.fromkeys(row["human"] for row in curves)]
    if not found and not of_coco(data.captions.image_ids):
        parts = [Missing(f"precision of mined positives: {OTHERS}")]
    elif not found:
        options = "--captions {captions} --similarity FILE --relevance {relevance} --out {evaluation/RUN}"
        parts = [Missing("precision of mined positives", data.command("evaluate", options))]
    elif not parts:
        parts = [Missing(f"precision of mined positives: {_why(folders, data.graded)}")]
    return PageSection("mined", "Precision of mined positives", INTRO, parts)


def _why(folders: Sequence[Path], graded: bool) -> str:
    """Why evaluations have no mined positives."""
    notes = dict.fromkeys(note for folder in folders for note in read_json(folder / "metrics.json").get("notes", []))
    left_out = [note for note in notes if note.startswith(LEFT_OUT)]
    if left_out:
        return f"{'; '.join(left_out)}. Afterwards run capgrade evaluate again"
    return OTHERS if graded else "the evaluations were given no relevance"


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
    told = f"Precision against the number of mined pairs, human positives of {name}, one line per measure: {measures}."
    return made(f"mined-{human}", f"Positives of {name}", told, chart)

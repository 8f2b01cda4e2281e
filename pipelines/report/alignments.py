"""Section: which regions the words of a model point at, and how often rightly."""

from __future__ import annotations

from capgrade.pipelines.report.data import ALIGNMENT, ReportData
from capgrade.pipelines.report.parts import (
    Cell,
    Missing,
    PagePicture,
    PageSection,
    PageTable,
    Part,
    count,
    percent,
    text,
)
from capgrade.schemas.files import read_json

SHARES = {
    "centre": "centre in the box", "centre_chance": "chance", "iou": "IoU at least 0.5", "iou_chance": "chance of that",
}  # fmt: skip
OTHERS = ": those that are there are of other captions or another split"
INTRO = (
    "Each word has the colour and number of the region most similar to it, and their cosine; words far weaker than the "
    "surest are grey. In the pointing game a phrase points rightly if the centre of its region lies in a true box."
)


def alignments(data: ReportData) -> PageSection:
    """The picture and the table of `capgrade search --words`."""
    path = data.at(ALIGNMENT, "alignment.png")
    if not path.is_file() or not data.of_these(data.at(ALIGNMENT)):
        options = "--run {runs/teran} --captions {captions} --regions {regions} --images {captions} --words {alignment}"
        missing = Missing(
            f"alignments of words with regions{OTHERS if path.is_file() else ''}", data.command("search", options)
        )
        return PageSection("alignments", "Words and regions", INTRO, [missing])
    told = "Images with boxes around regions; below each its caption, words numbered and coloured as their regions."
    parts: list[Part] = [
        PagePicture("alignment", "Words and the regions they point at", told, path.read_bytes(), "png")
    ]
    if data.has(ALIGNMENT, "pointing.json"):
        found = read_json(data.at(ALIGNMENT, "pointing.json"))
        order = sorted(found, key=lambda kind: (kind != "all", -found[kind]["phrases"], kind))
        lines = [
            [text(kind), count(found[kind]["phrases"]), *(_share(found[kind][k]) for k in SHARES)] for kind in order
        ]
        parts.append(
            PageTable(
                "Pointing game, by kind of object", ("phrases about", "phrases", *SHARES.values()), lines, folded=True
            )
        )
    return PageSection("alignments", "Words and regions", INTRO, parts)


def _share(value: float) -> Cell:
    return Cell(percent(value), value)

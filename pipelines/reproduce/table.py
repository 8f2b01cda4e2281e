"""A reproduced table: our numbers beside the published ones and the difference, as Markdown and
JSON."""

from collections.abc import Sequence
from typing import Any

from capgrade.pipelines.reproduce.recipe import Recipe, Section
from capgrade.trainer.evaluation.tables import markdown as of_rows

_EMPTY = "-"
NOT_ASKED = "not reproduced, as --row asked for others: "


def section_of(
    section: Section, protocol: str, ours: Sequence[Sequence[float | None]]
) -> dict[str, Any]:
    """{"title", "protocol", "columns", "rows": [{"row", "published", "ours", "difference"}]}: a
    row's numbers as the paper prints them, null where there is none."""
    rows: list[dict[str, Any]] = []
    for row, numbers in zip(section.rows, ours, strict=True):
        pairs = zip(numbers, row.published, strict=True)
        differences = [None if a is None or b is None else a - b for a, b in pairs]
        named = (
            {"runs": list(row.runs)}
            if row.runs
            else {"measure": row.measure}
            if row.measure
            else {}
        )
        values = {
            "published": list(row.published),
            "ours": list(numbers),
            "difference": differences,
        }
        rows.append({"row": row.row, **named, **values})
    columns = [column.name for column in section.parsed]
    return {"title": section.title, "protocol": protocol, "columns": columns, "rows": rows}


def as_json(
    name: str, recipe: Recipe, sections: Sequence[dict[str, Any]], notes: Sequence[str], small: bool
) -> dict[str, Any]:
    """{"recipe", "paper", "table", ..., "sections": those of `section_of`, "notes"}."""
    facts = {
        "recipe": name,
        "paper": recipe.paper,
        "table": recipe.table,
        "title": recipe.title,
        "small": small,
    }
    network = {"network": recipe.distance} if recipe.distance else {}
    return {**facts, **network, "sections": list(sections), "notes": list(notes)}


def keep_rows(table: dict[str, Any], before: dict[str, Any], chosen: Sequence[str]) -> None:
    """Put into a table the numbers and notes that `before`, a table of the same recipe or empty,
    has of rows that were not chosen this time; a note says which nobody has chosen yet."""
    left = []
    for section, old in zip(
        table["sections"], before.get("sections") or table["sections"], strict=True
    ):
        for row, kept in zip(section["rows"], old["rows"], strict=True):
            if row["row"] not in chosen and ("runs" in row or "measure" in row):
                row |= kept
                if row["row"] not in left and all(value is None for value in row["ours"]):
                    left.append(row["row"])
    of_chosen = tuple(f"{row}, " for row in chosen)
    other_notes = [
        note for note in before.get("notes", ()) if not note.startswith((NOT_ASKED, *of_chosen))
    ]
    table["notes"] += [note for note in other_notes if note not in table["notes"]]
    table["notes"] += [NOT_ASKED + ", ".join(left)] if left else []


def markdown(found: dict[str, Any]) -> str:
    """The table of `as_json`: three lines a row, the paper's, ours and ours less the paper's."""
    lines = [f"# {found['paper']}, table {found['table']}: {found['title']}", ""]
    if found["small"]:
        lines += [
            (
                "**`--small`: sizes and steps to see that everything runs. These figures mean"
                " nothing.**"
            ),
            "",
        ]
    if "network" in found:
        lines += [f"**The rows of ours are {found['network']}.**", ""]
    for section in found["sections"]:
        lines += [f"## {section['title']} ({section['protocol']})", ""]
        # Behind the point, as the recipe has them. A column has those of its longest number: 0.69
        # there is 0.690.
        columns = zip(*(r["published"] for r in section["rows"]), strict=True)
        digits = [
            max(len(repr(n).partition(".")[2]) if n is not None else 0 for n in column)
            for column in columns
        ]
        rows = []
        for row in section["rows"]:
            rows.append([row["row"], "paper", *map(_shown, row["published"], digits)])
            if "runs" in row or "measure" in row:
                rows.append(["", "ours", *map(_shown, row["ours"], digits)])
                differences = [
                    _shown(value, n, "+")
                    for value, n in zip(row["difference"], digits, strict=True)
                ]
                rows.append(["", "difference", *differences])
        lines.append(of_rows(["", "", *section["columns"]], rows, left=2))
    return "\n".join([*lines, *(f"- {note}" for note in found["notes"])]).rstrip() + "\n"


def _shown(value: float | None, digits: int, sign: str = "") -> str:
    return _EMPTY if value is None else f"{value:{sign}.{digits}f}"

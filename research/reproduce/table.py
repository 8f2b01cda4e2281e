"""A reproduced table as JSON and Markdown: published numbers, ours, and their difference."""

from collections.abc import Sequence
from typing import Any

from capgrade.schemas.tables import markdown as table_of_rows
from research.reproduce.recipe import Recipe, Section

_EMPTY = "-"
NOT_ASKED = "not reproduced, as --row asked for others: "


def section_of(
    section: Section, protocol: str, ours: Sequence[Sequence[float | None]]
) -> dict[str, Any]:
    """{"title", "protocol", "columns", "rows": [{"row", "published", "ours", "difference"}]}, in
    the paper's units; null where there is no number."""
    rows: list[dict[str, Any]] = []
    for row, numbers in zip(section.rows, ours, strict=True):
        values: dict[str, Any] = {"row": row.row}
        if row.runs:
            values["runs"] = list(row.runs)
        elif row.measure:
            values["measure"] = row.measure
        values["published"] = list(row.published)
        values["ours"] = list(numbers)
        pairs = zip(numbers, row.published, strict=True)
        values["difference"] = [None if a is None or b is None else a - b for a, b in pairs]
        rows.append(values)
    columns = [column.name for column in section.parsed_columns]
    return {"title": section.title, "protocol": protocol, "columns": columns, "rows": rows}


def table_json(
    name: str, recipe: Recipe, sections: Sequence[dict[str, Any]], notes: Sequence[str], small: bool
) -> dict[str, Any]:
    """{"recipe", "paper", "table", ..., "sections", "notes"}; sections are of `section_of`."""
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
    """Copy the numbers and notes of rows that were not chosen this time from `before`, a table of
    the same recipe or empty. A note names the rows that have no numbers yet."""
    empty = []
    old_sections = before.get("sections") or table["sections"]
    for section, old_section in zip(table["sections"], old_sections, strict=True):
        for row, old_row in zip(section["rows"], old_section["rows"], strict=True):
            if row["row"] not in chosen and ("runs" in row or "measure" in row):
                row |= old_row
                if row["row"] not in empty and all(value is None for value in row["ours"]):
                    empty.append(row["row"])
    of_chosen = tuple(f"{row}, " for row in chosen)
    for note in before.get("notes", ()):
        if not note.startswith((NOT_ASKED, *of_chosen)) and note not in table["notes"]:
            table["notes"].append(note)
    if empty:
        table["notes"].append(NOT_ASKED + ", ".join(empty))


def table_markdown(table: dict[str, Any]) -> str:
    """The table of `table_json` in Markdown, three lines a row: the paper's, ours, the
    difference."""
    lines = [f"# {table['paper']}, table {table['table']}: {table['title']}", ""]
    if table["small"]:
        note = "sizes and steps to see that everything runs. These figures mean nothing."
        lines += [f"**`--small`: {note}**", ""]
    if "network" in table:
        lines += [f"**The rows of ours are {table['network']}.**", ""]
    for section in table["sections"]:
        lines += [f"## {section['title']} ({section['protocol']})", ""]
        # A column has as many digits after the point as its longest number in the recipe, so that
        # 0.69 may be 0.690.
        columns = zip(*(r["published"] for r in section["rows"]), strict=True)
        digits = [
            max(len(repr(n).partition(".")[2]) if n is not None else 0 for n in column)
            for column in columns
        ]
        rows = []
        for row in section["rows"]:
            rows.append([row["row"], "paper", *map(_format, row["published"], digits)])
            if "runs" in row or "measure" in row:
                rows.append(["", "ours", *map(_format, row["ours"], digits)])
                pairs = zip(row["difference"], digits, strict=True)
                rows.append(["", "difference", *(_format(value, n, "+") for value, n in pairs)])
        lines.append(table_of_rows(["", "", *section["columns"]], rows, left=2))
    return "\n".join([*lines, *(f"- {note}" for note in table["notes"])]).rstrip() + "\n"


def _format(value: float | None, digits: int, sign: str = "") -> str:
    return _EMPTY if value is None else f"{value:{sign}.{digits}f}"

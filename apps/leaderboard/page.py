"""The page of a leaderboard: who is first, a table a direction, and what was evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from capgrade.apps.leaderboard.board import Board, Standing
from capgrade.apps.page import render_page
from capgrade.apps.page.parts import (
    Cell,
    Facts,
    Note,
    PageSection,
    PageTable,
    Part,
    Value,
    format_metric,
)
from capgrade.comparison import Column
from capgrade.metrics.formats import DIRECTION_WORDS
from capgrade.result_tables import LEVEL

_GENERATOR = "capgrade leaderboard"
_INTRO = (
    "Below a value stand its group and its 95% interval over images. Group 1 of a column has the"
    " best entry and those that a paired test does not tell from it at {level:.0%}, corrected for"
    " the entries; group 2 has the same of the others, and so on. Group 1 is bold. A click on a"
    " head sorts by it, and lines part its groups."
)
_KNOWN = {  # docs/metrics.md has the formulas
    "recall": "a query's own item is among the first k. Nothing else counts as right.",
    "rsum": "recall@1, 5 and 10 of both directions added up in percent, 0 to 600.",
    "cxc_recall": "the same where what people rated high in Crisscrossed Captions is right too.",
    "map@r": "mean precision at each right item of ECCV Caption's lists, which people confirmed.",
    "ndcg": "graded relevance among the first k, of the most that k items can have.",
    "accepted_recall": "recall where likely positives of a list are right too.",
    "judged_tau_b": "Kendall's tau-b with people's scores of pairs of other captions; not tested.",
}


def board_page(board: Board, version: str) -> str:
    """The page as HTML."""
    foot = f"capgrade {version}; captions {board.captions.digest[:12]}"
    foot += f", split {board.captions.split}." if board.captions.split else "."
    count = f"{len(board.standings)} entr{'y' if len(board.standings) == 1 else 'ies'}"
    opening = PageSection("opening", "", "", [Note(text) for text in _first_sentences(board)])
    of = f"{board.captions.n_images:,} images, {board.captions.n_captions:,} captions"
    title = f"Leaderboard: {count} on {of}"
    sections = [_tables(board), _evaluated(board)]
    return render_page(title, opening, sections, _GENERATOR, foot=foot, runs=[])


def _columns(board: Board) -> list[Column]:
    return list(next(iter(board.standings.values())).values)


def _first_sentences(board: Board) -> list[str]:
    """Who is first by the sum, or else in the first column, and by the last graded metric."""
    columns = _columns(board)
    sums = [column for column in columns if not column[0] and column in _grouped(board)]
    graded = [column for column in columns if column[1].startswith("ndcg")]
    asked = dict.fromkeys([*(sums or columns)[:1], *graded[:1]])
    return [_first_sentence(board, column) for column in asked if column in _grouped(board)]


def _grouped(board: Board) -> set[Column]:
    return {column for one in board.standings.values() for column in one.groups}


def _first_sentence(board: Board, column: Column) -> str:
    best = [name for name, one in board.standings.items() if one.groups.get(column) == 1]
    best = _by_value(board.standings, column, best)
    value = format_metric(column[1], board.standings[best[0]].values[column])
    sentence = f"By {_said(column)} {best[0]} is first ({value})"
    if len(best) == 1:
        return f"{sentence}." if len(board.standings) == 1 else f"{sentence}, ahead of all others."
    if len(best) == 2:
        return f"{sentence}; {best[1]} is not told from it."
    return f"{sentence}; {', '.join(best[1:-1])} and {best[-1]} are not told from it."


def _said(column: Column) -> str:
    direction, name = column
    return f"{name}, {DIRECTION_WORDS[direction]}," if direction else name


def _by_value(
    standings: Mapping[str, Standing], column: Column, names: Sequence[str] | None = None
) -> list[str]:
    """Names by group, and within one by value: of ranks the lowest is the best."""

    def key(name: str) -> tuple[float, float]:
        one = standings[name]
        value = one.values[column]
        return one.groups.get(column, float("inf")), -value if value == value else float("inf")

    return sorted(standings if names is None else names, key=key)


def _tables(board: Board) -> PageSection:
    columns = _columns(board)
    parts: list[Part] = []
    for direction in ("", *DIRECTION_WORDS):
        of = [column for column in columns if column[0] == direction]
        if of:
            parts.append(_table(board, DIRECTION_WORDS.get(direction, "both directions"), of))
    used = {name.partition("[")[0].partition("@")[0] for _, name in columns}
    used |= {name for _, name in columns}
    meanings = [(name, meaning) for name, meaning in _KNOWN.items() if name in used]
    parts.append(PageTable("What the names mean", ("metric", "meaning"), meanings, folded=True))
    intro = _INTRO.format(level=LEVEL)
    return PageSection("board", "Board", intro, parts, open=True)


def _table(board: Board, title: str, columns: Sequence[Column]) -> PageTable:
    """A row an entry, sorted by the first column."""
    names = _by_value(board.standings, columns[0])
    rows = [
        [_named(board.standings[name]), *(_cell(board.standings[name], one) for one in columns)]
        for name in names
    ]
    heads = ("entry", *(name for _, name in columns))
    return PageTable(title.capitalize(), heads, rows, by=1)


def _named(standing: Standing) -> Cell:
    return Cell(standing.entry.name, standing.entry.name, link=standing.entry.card.link or "")


def _cell(standing: Standing, column: Column) -> Cell:
    value, name = standing.values[column], column[1]
    interval = standing.intervals.get(column)
    note = "–".join(format_metric(name, end).removesuffix("%") for end in interval or ())
    group = standing.groups.get(column, 0)
    sort_key = value if value == value else float("-inf")
    return Cell(format_metric(name, value), sort_key, group == 1, note, group)


def _evaluated(board: Board) -> PageSection:
    """What each entry says of itself, and by which labels all were evaluated."""
    heads = ("entry", "model", "by", "date", "files")
    rows: list[list[Value]] = []
    for one in board.standings.values():
        card, files = one.entry.card, [one.entry.similarity, *(one.entry.embeddings or ())]
        shown = ", ".join(path.name for path in files if path is not None)
        date = card.date.isoformat() if card.date else ""
        rows.append([_named(one), card.model, card.by, date, shown])
    labels = {what: digest[:12] for what, digest in board.inputs.items()}
    split = {"split": board.captions.split} if board.captions.split else {}
    notes = dict[str, list[str]]()
    for name, one in board.standings.items():
        for note in one.notes:
            notes.setdefault(note, []).append(name)
    said = [
        Note(note if len(of) == len(board.standings) else f"{', '.join(of)}: {note}", small=True)
        for note, of in notes.items()
    ]
    intro = "What entries say of themselves. Digests of captions and labels are the first 12 signs."
    parts: list[Part] = [PageTable("Entries", heads, rows), Facts({**labels, **split}), *said]
    return PageSection("evaluated", "Entries and labels", intro, parts)

"""`leaderboard`: models' scores of one set of captions, each evaluated once, on one page with
intervals and groups that a test does not tell apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from capgrade.agreement.correlation import judged_intervals
from capgrade.apps.leaderboard.board import Board, Standing
from capgrade.apps.leaderboard.entries import CARD, Entry, read_board
from capgrade.apps.leaderboard.page import board_page
from capgrade.comparison import Column
from capgrade.lists import list_file, read_list, table_of_ids
from capgrade.metrics import human_lists
from capgrade.metrics.catalogue import with_measure
from capgrade.result_tables import Result, groups_of
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    MANIFEST,
    file_digest,
    package_version,
    write_json,
    write_text,
)
from capgrade.schemas.lines import read_json
from capgrade.schemas.out_files import refuse_file
from capgrade.schemas.say import if_silent, tell
from capgrade.trainer.evaluation.evaluate import evaluate_files, inputs_of, is_current
from capgrade.trainer.evaluation.stored import METRICS_FILE, read_evaluation
from capgrade.trainer.stages.evaluate import EvaluateParams

_GROUPS = "groups.json"
_OF_ONE = ("embeddings", "stand_in", "fold")  # keys of `evaluate` that are not of a whole board


def evaluations_folder(out: Path) -> Path:
    """The folder of the evaluations, `board-evaluations` of `board.html`. InputError for a page
    that is no .html."""
    if out.suffix.lower() != ".html":
        remedy = f"give {out.stem or 'board'}.html"
        raise InputError("the page's name does not end in .html", file=out, remedy=remedy)
    return out.with_name(f"{out.stem}-evaluations")


def leaderboard(
    entries: str | Path,
    out: Path,
    *,
    captions: Path | None = None,
    relevance: Path | None = None,
    params: EvaluateParams | None = None,
    force: bool = False,
) -> Board:
    """Write the page `out` on the entries of a folder, or of a dataset repository USER/NAME of the
    hub, and beside it what `evaluate` writes of each, in the folder `board-evaluations` of
    `board.html`. Entries that were evaluated by these labels before are not evaluated again.

    `captions`, `relevance` and `params` are as `evaluate` takes them, and without metrics it takes
    those that its labels give: recall, of people's lists, NDCG, and with likely positives.
    InputError for entries or labels that are not right, for an entry of other captions, and where a
    file is at `out`, but with `force`."""
    folder = evaluations_folder(out)
    refuse_file(out, force)
    found = read_board(_open(entries))
    table, chosen = _chosen(captions, relevance, params or EvaluateParams())
    for entry in found if captions is not None else ():  # a list has none
        _require_captions(entry, table)
    evaluated = sum(_evaluate(entry, folder, captions, relevance, chosen) for entry in found)
    inputs = {**inputs_of(captions, chosen, relevance=relevance), "captions": table.digest}
    board = Board(_standings(found, folder), table, inputs, evaluated)
    write_text(out, board_page(board, package_version()))
    return board


def _open(entries: str | Path) -> Path:
    if Path(entries).is_dir():
        return Path(entries)
    from capgrade.labels.hub import download
    from capgrade.labels.layout import hub_name

    name, revision = hub_name(str(entries))
    return download(name, revision, files=None)


def _chosen(
    captions: Path | None, relevance: Path | None, params: EvaluateParams
) -> tuple[Captions, EvaluateParams]:
    """The captions that are evaluated, and the parameters with the metrics of the board."""
    for key in _OF_ONE:
        if getattr(params, key) not in (None, ()):
            problem = f"evaluate.{key} with a leaderboard, whose entries bring their scores"
            raise InputError(problem, remedy="leave it out")
    if captions is not None:
        table = read_captions(captions, params.split)
    elif params.lists is not None:
        table = table_of_ids(read_list(list_file(params.lists)), list_file(params.lists))
    else:
        remedy = "give --captions, or --set evaluate.lists=coco-5k"
        raise InputError("nothing to evaluate by", remedy=remedy)
    if params.metric:
        return table, params
    metrics = [f"recall@{k}" for k in params.k]
    for name, of_people in (("cxc", "cxc_recall@1"), ("eccv", "map@r")):
        try:
            human_lists(name, table.image_ids, table.caption_ids)
        except InputError:  # of other images, or without the package: `evaluate` notes it
            continue
        metrics.append(of_people)
    metrics += [] if relevance is None else [f"ndcg@{params.p}"]
    accepted = params.lists is not None or params.positives is not None
    metrics += ["accepted_recall@1"] if accepted else []
    return table, params.model_copy(update={"metric": tuple(metrics)})


def _require_captions(entry: Entry, table: Captions) -> None:
    """InputError for an entry that says it is of other captions."""
    if entry.card.captions and not table.digest.startswith(entry.card.captions):
        problem = f"of captions {entry.card.captions}, not {table.digest[:12]}"
        raise InputError(problem, file=entry.folder / CARD, remedy="score these captions")


def _evaluate(
    entry: Entry,
    folder: Path,
    captions: Path | None,
    relevance: Path | None,
    params: EvaluateParams,
) -> bool:
    """Evaluate an entry, unless that has been done; whether it was."""
    if entry.embeddings is not None:
        if captions is None:
            problem = "embeddings, and a leaderboard without captions takes similarities alone"
            raise InputError(problem, file=entry.folder, remedy="give --captions")
        places = tuple(map(str, entry.embeddings))
        params = params.model_copy(update={"embeddings": places})
    given = [] if entry.similarity is None else [entry.similarity]
    out = folder / entry.folder.name
    inputs = inputs_of(captions, params, similarity=given, relevance=relevance)
    if is_current(out, params, inputs):
        return False
    tell(f"evaluating {entry.name}")
    evaluate_files(captions, out, params, similarity=given, relevance=relevance)
    return True


def _standings(entries: Sequence[Entry], folder: Path) -> dict[str, Standing]:
    """What was evaluated, with the groups. InputError for entries of other images or captions than
    the first."""
    read = {entry.name: read_evaluation(folder / entry.folder.name) for entry in entries}
    first = next(iter(read.values()))
    for entry in entries:
        if unlike := first.basis.unlike(read[entry.name].basis):
            problem, remedy = unlike
            raise InputError(problem, file=entry.folder, remedy=remedy)
    results = {name: Result.of(found) for name, found in read.items()}
    groups = _groups(entries, results, folder)
    standings = {}
    for entry in entries:
        stored = read_json(folder / entry.folder.name / METRICS_FILE)
        standings[entry.name] = Standing(
            entry,
            results[entry.name].values,
            _intervals(stored, read[entry.name].basis.measure),
            groups[entry.name],
            stored["notes"],
        )
    return standings


def _groups(
    entries: Sequence[Entry], results: Mapping[str, Result], folder: Path
) -> dict[str, dict[Column, int]]:
    """The groups by entry and column. Tests take as long as an evaluation, so a file keeps what
    they said of the same evaluations."""
    at = {entry.name: entry.folder.name for entry in entries}
    of = {place: file_digest(folder / place / MANIFEST) for place in at.values()}
    file = folder / _GROUPS
    kept = read_json(file) if file.is_file() else {}
    if kept and not (isinstance(kept, dict) and kept.keys() == {"of", "groups"}):
        remedy = "move it away, or give another --out"
        raise InputError("a file that no leaderboard wrote", file=file, remedy=remedy)
    if kept.get("of") != of:
        columns = list(next(iter(results.values())).values)
        with if_silent("testing entries against each other"):
            tested = groups_of(results, columns)
        found = [
            [*column, at[name], group]
            for column, groups in tested.items()
            for name, group in groups.items()
        ]
        kept = {"of": of, "groups": found}
        write_json(file, kept)
    by_entry: dict[str, dict[Column, int]] = {name: {} for name in at}
    names = {place: name for name, place in at.items()}
    for direction, metric, place, group in kept["groups"]:
        by_entry[names[place]][direction, metric] = group
    return by_entry


def _intervals(stored: Mapping[str, Any], measure: str) -> dict[Column, Sequence[float]]:
    """The intervals of metrics.json by the columns of a result, whose first measure is named."""
    intervals: dict[Column, Sequence[float]] = {
        ("", name): interval
        for name, interval in judged_intervals(stored.get("judgements", {})).items()
    }
    for key, value in stored["intervals"].items():
        of = value if isinstance(value, dict) else {key: value}
        direction = key if isinstance(value, dict) else ""
        intervals |= {
            (direction, with_measure(name, measure)): interval for name, interval in of.items()
        }
    return intervals

"""Reviews as judgements: the folder of `capgrade review sample`, in which people's ratings are."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import canonical, read_json
from capgrade.schemas.lines import read_lines

PLAN = "plan.json"
REMEDY = "give a folder of capgrade review sample, whose pairs were rated: capgrade explore"
Pair = tuple[str, str]  # image id, caption id


def reviewed(folder: Path) -> dict[Pair, tuple[float, ...]]:
    """The ratings of each rated pair, one per reviewer (the mean, where a pair stood in the review twice), in the order
    of the plan. InputError for a folder that is no review, damaged ratings, ratings of another plan, and none at all.
    """
    if not (folder / PLAN).is_file():
        raise InputError(f"no {PLAN}: not a review", file=folder, remedy=REMEDY)
    plan = {key: value for key, value in read_json(folder / PLAN).items() if key != "kind"}
    key = hashlib.sha256(canonical(plan).encode()).hexdigest()
    try:
        pairs = [(str(item["image_id"]), str(item["caption_id"])) for item in plan["items"]]
    except (KeyError, TypeError) as error:
        raise InputError(f"not a review plan ({error})", file=folder / PLAN, remedy=REMEDY) from error
    found: dict[Pair, list[float]] = {pair: [] for pair in pairs}
    for path in sorted(folder.glob("ratings-*.jsonl")):
        given: dict[Pair, list[float]] = {}
        for item, score in _last(path, key, len(pairs)).items():
            given.setdefault(pairs[item], []).append(score)
        for pair, scores in given.items():
            found[pair].append(sum(scores) / len(scores))
    rated = {pair: tuple(scores) for pair, scores in found.items() if scores}
    if not rated:
        raise InputError("nothing has been rated", file=folder, remedy=REMEDY)
    return rated


def _last(path: Path, key: str, items: int) -> dict[int, float]:
    """Item -> score, the last click of each. A last line without its end is a click that was never confirmed."""
    found: dict[int, float] = {}
    for row, text in read_lines(path, keep_ends=True):
        if not text.strip():
            continue
        try:
            line: Any = json.loads(text)
            mine, item, score = line["plan"] == key, int(line["item"]), float(line["score"])
        except (ValueError, KeyError, TypeError) as error:
            if not text.endswith("\n"):
                continue
            raise InputError("not a rating", file=path, row=row, remedy="remove the line") from error
        if not mine or not 0 <= item < items or not 0 <= score <= 5:
            raise InputError("a rating of another review", file=path, row=row, remedy="keep it in its own folder")
        found[item] = score
    return found

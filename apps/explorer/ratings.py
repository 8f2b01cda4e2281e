"""Ratings on disk: one file per reviewer, one line per click, synced before the next pair is shown.
Only who has the key that came with a name may rate under it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from capgrade.apps.explorer.corpus import LabelledCorpus
from capgrade.apps.explorer.plans import plan_listed, plan_most_informative, write_plan
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import writing
from capgrade.schemas.lines import append_line, read_json
from capgrade.schemas.reviews import (
    PLAN,
    SCORES,
    ReviewPlan,
    read_all_ratings,
    read_plan,
    read_ratings,
)

LONGEST_NAME = 64
LARGEST = 4 * 2**20  # bytes of a reviewer's file, some thirty thousand clicks
MOST = 1000  # names in a review: whoever opens the page can take one
PAIRS, SEED = 100, 0  # of the plan that is made where none was written


def _normalise_name(name: str) -> str:
    """A reviewer's name as it is kept: NFC, single spaces. InputError for an empty, long or
    unprintable one."""
    name = unicodedata.normalize("NFC", " ".join(name.split()))
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise InputError(
            "no such name for a reviewer", remedy=f"give 1 to {LONGEST_NAME} visible characters"
        )
    return name


@dataclass(frozen=True)
class ReviewRatings:
    """A review's folder. Any number of reviewers and browser tabs may write at the same time."""

    folder: Path
    plan: ReviewPlan

    @staticmethod
    def open(folder: Path) -> ReviewRatings:
        """The ratings in a folder that `capgrade explore sample` wrote. InputError for another
        folder."""
        return ReviewRatings(folder, read_plan(folder))

    def rate(self, reviewer: str, item: int, score: int) -> None:
        """Save a rating, synced to the disk on return. It replaces an earlier one of the same item.

        InputError for a score outside 0..5, an unknown item, more clicks than a person makes, and a
        full disk.
        """
        if score not in SCORES or not 0 <= item < len(self.plan.items):
            raise InputError(
                f"rating {score} of item {item}",
                remedy=f"rate 0 to 5, one of {len(self.plan.items)}",
            )
        reviewer = _normalise_name(reviewer)
        line = {
            "plan": self.plan.key,
            "reviewer": reviewer,
            "item": item,
            "score": score,
            "time": round(time.time()),
        }
        path = self._file(reviewer)
        if path.exists() and path.stat().st_size > LARGEST:
            raise InputError(
                "too many ratings of one reviewer", file=path, remedy="go on under another name"
            )
        append_line(path, line)

    def ratings_of(self, reviewer: str) -> dict[int, int]:
        """item -> score, the reviewer's last rating of each."""
        path = self._file(_normalise_name(reviewer))
        return read_ratings(path, self.plan)[1] if path.exists() else {}

    def read_all(self) -> dict[str, dict[int, int]]:
        """reviewer -> item -> score, sorted by name."""
        return read_all_ratings(self.folder, self.plan)

    def next_item(self, reviewer: str) -> int | None:
        """The first item in the reviewer's own order that the reviewer has not rated; None where
        all are."""
        done = self.ratings_of(reviewer)
        return next(
            (item for item in self.plan.order(_normalise_name(reviewer)) if item not in done), None
        )

    def previous_item(self, reviewer: str, item: int | None) -> int | None:
        """The item before this one in the reviewer's order: the last item for None, the first for
        the first itself, None for an unknown item."""
        order = self.plan.order(_normalise_name(reviewer))
        if item is None:
            return order[-1]
        return order[max(order.index(item) - 1, 0)] if item in order else None

    def _file(self, reviewer: str) -> Path:
        return self.folder / f"ratings-{_digest(reviewer)[:16]}.jsonl"


def open_review(folder: Path, corpus: LabelledCorpus, listed: Path | None = None) -> ReviewRatings:
    """The ratings in a folder. Where it has no plan, one of the `listed` pairs is written, or of
    the most informative ones. InputError when the folder holds a review of other captions."""
    if not (folder / PLAN).is_file():
        of = corpus.captions, corpus.fingerprint
        if listed is None:
            plan = plan_most_informative(corpus.pairs, *of, PAIRS, SEED)
        else:
            plan = plan_listed(listed, *of, SEED)
        write_plan(folder, plan)
    ratings = ReviewRatings.open(folder)
    if ratings.plan.corpus != corpus.fingerprint:
        remedy = "give another --reviews folder, or these captions"
        raise InputError("holds a review of other captions", file=folder, remedy=remedy)
    return ratings


def admit(folder: Path, name: str, key: str) -> tuple[str, str]:
    """The name as it is kept, and its key: for a new name a new key, saved on return. InputError
    for a taken name with another key, for a name that is not valid, and for too many names."""
    name, key = _normalise_name(name), key.strip()
    path = folder / f"reviewer-{_digest(name)[:16]}.json"
    if not path.exists():
        if sum(1 for _ in folder.glob("reviewer-*.json")) >= MOST:
            raise InputError(
                f"{MOST} names have been taken",
                file=folder,
                remedy="whoever serves this can remove some",
            )
        new_key = secrets.token_hex(6)  # Only its digest is kept.
        line = json.dumps({"reviewer": name, "key": _digest(new_key)}, ensure_ascii=False)
        with suppress(FileExistsError), path.open("x", encoding="utf-8") as file, writing(path):
            file.write(f"{line}\n")
            return name, new_key
    if not hmac.compare_digest(str(read_json(path)["key"]), _digest(key)):
        where_shown = "shown when the name was first given, and kept by that browser"
        remedy = (
            f"give its key ({where_shown}) or another name; whoever serves this can free it: delete"
            f" {path.name}"
        )
        raise InputError(f"the name '{name}' is taken", remedy=remedy)
    return name, key


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

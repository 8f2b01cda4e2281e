"""A review on disk: the plan of what people rate, and the ratings that each reviewer gave."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import canonical
from capgrade.schemas.lines import appended_lines, read_json

PLAN, LINES, RATINGS = "plan.json", "pairs.jsonl", "ratings-*.jsonl"  # in a review's folder
INFORMATION, SEMANTIC_MAP, POOL, LISTED = "information", "semantic_map", "pool", "listed"
SCORES = range(6)
STRICT = ConfigDict(extra="forbid")  # a misspelt key is an error rather than a default


@dataclass(frozen=True)
class Item:
    """A pair to rate; `query` is the image or caption whose search it comes from, in SemanticMap's
    protocol; `stratum` is the part of all pairs that it was drawn from, in a pool."""

    __pydantic_config__ = STRICT

    image_id: str
    caption_id: str
    query: str | None = None
    stratum: str | None = None


@dataclass(frozen=True)
class ReviewPlan:
    """What is rated, of which corpus, in an order that follows from the seed.

    `facts` are what a report needs.
    """

    __pydantic_config__ = STRICT

    protocol: Annotated[str, Field(pattern=f"^({INFORMATION}|{SEMANTIC_MAP}|{POOL}|{LISTED})$")]
    corpus: str  # fingerprint
    seed: int
    items: tuple[Item, ...]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """SHA-256 of the whole plan: ratings belong to one plan."""
        return hashlib.sha256(canonical(self.json()).encode()).hexdigest()

    def json(self) -> dict[str, Any]:
        """The plan as it is written.

        A stratum is written where an item has one, so that older plans keep their key.
        """
        whole = asdict(self)
        for item in whole["items"]:
            if item["stratum"] is None:
                del item["stratum"]
        return whole

    def probability(self, item: Item) -> float:
        """With which a pair of its stratum was chosen."""
        stratum = self.facts["strata"][item.stratum]
        return float(stratum["chosen"] / stratum["pairs"])

    def order(self, reviewer: str) -> list[int]:
        """The items' numbers as this reviewer sees them, shuffled by the seed and the name. Items
        of one query follow each other, so that a query is rated whole before the next one starts.
        """
        digest = hashlib.sha256(f"{self.seed} {reviewer}".encode()).digest()
        shuffled = np.random.default_rng(list(digest)).permutation(len(self.items)).tolist()
        first: dict[str | None, int] = {}  # query -> its place among queries
        for k in shuffled:
            first.setdefault(self.items[k].query, len(first))
        return sorted(shuffled, key=lambda k: first[self.items[k].query])


def read_plan(folder: Path) -> ReviewPlan:
    """The plan in a review's folder. InputError when there is none, or it is damaged."""
    path = folder / PLAN
    if not path.is_file():
        raise InputError(
            f"no {PLAN}: not a review", file=folder, remedy="start one: capgrade explore sample"
        )
    plan = read_json(path)
    if isinstance(plan, dict):
        plan.pop("kind", None)  # "review", for people
    try:
        return TypeAdapter(ReviewPlan).validate_python(plan)
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"not a review plan ({'.'.join(map(str, first['loc']))}: {first['msg']})"
        raise InputError(problem, file=path, remedy="start another review") from error


def read_all_ratings(folder: Path, plan: ReviewPlan) -> dict[str, dict[int, int]]:
    """Reviewer -> item -> score, of everyone who rated, by name.

    InputError as `read_ratings`, and for two files of one reviewer, such as a copy.
    """
    by_reviewer: dict[str, dict[int, int]] = {}
    for path in sorted(folder.glob(RATINGS)):
        name, ratings = read_ratings(path, plan)
        if ratings and name in by_reviewer:
            raise InputError(
                f"ratings of '{name}', who has another file",
                file=path,
                remedy="keep one of the two",
            )
        by_reviewer[name] = ratings
    return {name: by_reviewer[name] for name in sorted(by_reviewer) if by_reviewer[name]}


def read_ratings(path: Path, plan: ReviewPlan) -> tuple[str, dict[int, int]]:
    """The reviewer, and item -> score, the last rating of each.

    A line without its end is a click that was never confirmed. InputError for another line, and for
    a rating of another plan or reviewer.
    """
    name, scores = "", {}
    for row, text in appended_lines(path, "plan"):
        try:
            line = json.loads(text)
            item, score, name = line["item"], line["score"], name or line["reviewer"]
            right = line["plan"] == plan.key and item in range(len(plan.items)) and score in SCORES
            right &= line["reviewer"] == name
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                "not a rating", file=path, row=row, remedy="remove the line"
            ) from error
        if not right:
            remedy = "keep it in its own file"
            raise InputError(
                "a rating of another review or reviewer", file=path, row=row, remedy=remedy
            )
        scores[item] = score
    return name, scores

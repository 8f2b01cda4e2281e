"""Reviews as judgements: the folder of `capgrade explore --sample`, in which people's ratings are."""

from __future__ import annotations

from pathlib import Path

from capgrade.schemas.errors import InputError
from capgrade.schemas.reviews import read_all_ratings, read_plan

Pair = tuple[str, str]  # image id, caption id


def reviewed(folder: Path) -> dict[Pair, tuple[float, ...]]:
    """The ratings of each rated pair, one per reviewer (the mean, where a pair stood in the review twice), in the order
    of the plan. InputError for a folder that is no review, damaged ratings, ratings of another plan, and none at all.
    """
    plan = read_plan(folder)
    pairs = [(item.image_id, item.caption_id) for item in plan.items]
    found: dict[Pair, list[float]] = {pair: [] for pair in pairs}
    for ratings in read_all_ratings(folder, plan).values():
        given: dict[Pair, list[int]] = {}
        for item, score in ratings.items():
            given.setdefault(pairs[item], []).append(score)
        for pair, scores in given.items():
            found[pair].append(sum(scores) / len(scores))
    rated = {pair: tuple(scores) for pair, scores in found.items() if scores}
    if not rated:
        raise InputError("nothing has been rated", file=folder, remedy="rate its pairs first: capgrade explore")
    return rated

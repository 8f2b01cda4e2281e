"""A review as the app runs it: who is asked what next, and what has been said."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from capgrade.explorer.answers import Explorer
from capgrade.explorer.plans import most_informative, write_plan
from capgrade.explorer.ratings import ReviewRatings, admitted
from capgrade.schemas.errors import InputError
from capgrade.schemas.reviews import PLAN, Plan

PAIRS, SEED = 100, 0  # of a review that nobody planned


@dataclass(frozen=True)
class Review:
    """The ratings in a folder, of a plan that stands there, or else of a new one of most information."""

    explorer: Explorer
    folder: Path

    @cached_property
    def ratings(self) -> ReviewRatings:
        """InputError when the folder holds a review of other captions."""
        if not (self.folder / PLAN).is_file():
            write_plan(self.folder, self._new_plan())
        found = ReviewRatings.open(self.folder)
        if found.plan.corpus != self.explorer.corpus.fingerprint:
            remedy = "give another --reviews folder, or these captions"
            raise InputError("holds a review of other captions", file=self.folder, remedy=remedy)
        return found

    def _new_plan(self) -> Plan:
        corpus = self.explorer.corpus
        return most_informative(corpus.pairs, corpus.captions, corpus.fingerprint, PAIRS, SEED)

    def admitted(self, name: str, key: str) -> tuple[str, str]:
        """`ratings.admitted` in this review's folder, which is made by then."""
        return admitted(self.ratings.folder, name, key)

    def pair(self, item: int) -> tuple[int, int]:
        """Image and caption of an item, by number."""
        found = self.ratings.plan.items[item]
        return self._image_number[found.image_id], self._caption_number[found.caption_id]

    @cached_property
    def _image_number(self) -> dict[str, int]:
        return {key: k for k, key in enumerate(self.explorer.corpus.captions.image_ids)}

    @cached_property
    def _caption_number(self) -> dict[str, int]:
        return {key: k for k, key in enumerate(self.explorer.corpus.captions.caption_ids)}

    def previous(self, reviewer: str, item: int | None) -> int | None:
        """The item that stands before `item` in this reviewer's order; the last one when `item` is None."""
        order = self.ratings.plan.order(reviewer)
        at = len(order) if item is None else order.index(item)
        return order[at - 1] if at else None

"""A model's R@1 errors: how many of them are likely positives, and how many people would accept at
least.

People accept an error at pair (i, j) with probability p(v_ij), by the calibration. Of shards, the
sum of w_ij p(v_ij) over the kept pairs estimates the sum over all errors: which pairs were drawn
does not depend on what the model ranks first. Intervals are those of `estimate`.
docs/false_negatives.md says what an error is, and why there is no upper end.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from capgrade.agreement.curve import Curve
from capgrade.apps.audit.estimate import PairCounts
from capgrade.apps.audit.lists import select_likely, sort_by_value
from capgrade.schemas.captions import Captions
from capgrade.schemas.pairs import Pairs

DIRECTIONS = ("i2t", "t2i")


class ModelErrors:
    """The R@1 errors of one direction, counted as pairs are added. similarity [rows, columns]; kept
    int64 [columns]: each column's caption; images int64 [rows]: each row's image, None where rows
    are all images in order."""

    def __init__(
        self,
        similarity: np.ndarray,
        kept: np.ndarray,
        captions: Captions,
        direction: str,
        curve: Curve,
        images: np.ndarray | None = None,
    ) -> None:
        self.similarity, self.direction, self.curve = similarity, direction, curve
        self.row = np.full(captions.n_images, -1)
        self.row[slice(None) if images is None else images] = np.arange(len(similarity))
        self.column = np.full(captions.n_captions, -1)
        self.column[kept] = np.arange(len(kept))
        axis = DIRECTIONS.index(direction) ^ 1
        self.best = similarity.max(axis=axis)  # of each query
        self.ties = (similarity == (self.best if axis == 0 else self.best[:, None])).sum(axis=axis)
        self.counts = PairCounts(curve, captions.n_images, captions.owner)
        self.known = 0.0  # number of errors whose pair has a value
        self.of_likely = 0.0  # number of errors whose pair is likely
        self.likely_parts: list[Pairs] = []
        _, query = self._first(captions.owner[kept], kept)
        self.hits = float((np.bincount(query, minlength=len(self.ties)) / self.ties).sum())

    def _first(self, image: np.ndarray, caption: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The positions of the pairs that share a first place, and the query of each."""
        row, column = self.row[image], self.column[caption]
        query = row if self.direction == "i2t" else column
        at_first = np.flatnonzero(
            (self.similarity[row, column] == self.best[query]) & (column >= 0) & (row >= 0)
        )
        return at_first, query[at_first]

    def add(self, pairs: Pairs) -> None:
        """Count pairs of an image and another image's caption; each is to be added once."""
        positions, query = self._first(pairs.image, pairs.caption)
        at_first, share = pairs.take(positions), 1 / self.ties[query]
        self.known += share.sum()
        errors = replace(at_first, weight=at_first.weight * share)
        self.counts.add(errors)
        self.of_likely += float(select_likely(errors, self.curve).weight.sum())
        self.likely_parts.append(select_likely(at_first, self.curve))

    def likely(self) -> Pairs:
        """The errors that more people accept than not, the likeliest first."""
        return sort_by_value(self.likely_parts)

    def summarise(self, random: bool) -> dict[str, Any]:
        """recall: R@1; errors: their number; known: the share of errors whose pair has a value;
        likely: the `share` of errors that are likely positives, and `recall`, R@1 with these
        counted as right; at_least: the same of the errors that people accept, by the lower end of
        the 95 % interval, None unless the calibration is on `random` pairs."""
        queries, hits = len(self.ties), self.hits
        errors = queries - hits

        def with_right(accepted: float) -> dict[str, float]:
            right = min(max(accepted, 0.0), errors)  # weights may say more
            return {"share": right / errors if errors else 0.0, "recall": (hits + right) / queries}

        return {
            "recall": hits / queries,
            "errors": errors,
            "known": float(round(self.known / errors, 6)) if errors else 1.0,
            "likely": with_right(self.of_likely),
            "at_least": with_right(float(np.quantile(self.counts.draw_sums(), 0.025)))
            if random
            else None,
        }

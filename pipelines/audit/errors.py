"""A model's R@1 errors: how many of them are likely positives, and how many people would accept at
least.

An error is a query whose first item is not its own; where several items share the first place, each
counts by its share, as in the expected recall of `evaluate`. Of an error at pair (i, j) people
accept p(v_ij), by the calibration. Of shards, w_ij p(v_ij) over the kept pairs estimates the sum
over all errors, since what a model ranks first does not hang on what was drawn. Intervals are those
of `estimate`.

Their lower end alone is told, and of a calibration on random pairs alone: p(v) is of all pairs of a
value, and a model that knows more than the measure ranks first those that people accept more often.
"""

from typing import Any

import numpy as np

from capgrade.agreement.curve import Curve
from capgrade.labels.stored import ValuedPairs
from capgrade.pipelines.audit.estimate import PairCounts
from capgrade.pipelines.audit.lists import falling, likely
from capgrade.schemas.captions import Captions

BOTH_WAYS = ("i2t", "t2i")


class Errors:
    """Of one direction: the pairs of a query with a first item that is not its own. similarity
    [rows, columns]; kept int64 [columns]: each column's caption; images int64 [rows]: each row's
    image, None for all in order."""

    def __init__(
        self,
        similarity: np.ndarray,
        kept: np.ndarray,
        captions: Captions,
        way: str,
        curve: Curve,
        images: np.ndarray | None = None,
    ) -> None:
        self.similarity, self.way, self.curve = similarity, way, curve
        self.row = np.full(captions.n_images, -1)
        self.row[slice(None) if images is None else images] = np.arange(len(similarity))
        self.column = np.full(captions.n_captions, -1)
        self.column[kept] = np.arange(len(kept))
        axis = BOTH_WAYS.index(way) ^ 1
        self.best = similarity.max(axis=axis)  # of each query
        self.ties = (similarity == (self.best if axis == 0 else self.best[:, None])).sum(axis=axis)
        self.counts = PairCounts(curve, captions.n_images, captions.owner)
        # errors whose value is known, and whose pair is likely
        self.known, self.of_likely = (
            0.0,
            0.0,
        )
        self.likely_parts: list[ValuedPairs] = []
        _, query = self._first(captions.owner[kept], kept)
        self.hits = float((np.bincount(query, minlength=len(self.ties)) / self.ties).sum())

    def _first(self, image: np.ndarray, caption: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of these pairs are at a first place, and their queries."""
        row, column = self.row[image], self.column[caption]
        query = row if self.way == "i2t" else column
        some = np.flatnonzero(
            (self.similarity[row, column] == self.best[query]) & (column >= 0) & (row >= 0)
        )
        return some, query[some]

    def add(self, pairs: ValuedPairs) -> None:
        """Pairs of other captions, each once."""
        some, query = self._first(pairs.image, pairs.caption)
        first, share = pairs.take(some), 1 / self.ties[query]
        self.known += share.sum()
        errors = first._replace(weight=first.weight * share)
        self.counts.add(errors)
        self.of_likely += float(likely(errors, self.curve).weight.sum())
        self.likely_parts.append(likely(first, self.curve))

    def likely(self) -> ValuedPairs:
        """The errors that more people accept than not, the likeliest first."""
        return falling(self.likely_parts)

    def told(self, random: bool) -> dict[str, Any]:
        """recall: R@1; errors: how many queries; known: the share of them whose value is known;
        likely: the `share` of the errors that are likely positives, and `recall`, R@1 with these
        counted; at_least: the same of errors that people accept, the lower ends of 95 % intervals;
        None unless `random`: any pair was as likely to be judged."""
        queries, hits = len(self.ties), self.hits
        errors = queries - hits

        def counted(accepted: float) -> dict[str, float]:
            some = min(max(accepted, 0.0), errors)  # weights may say more
            return {"share": some / errors if errors else 0.0, "recall": (hits + some) / queries}

        return {
            "recall": hits / queries,
            "errors": errors,
            "known": float(round(self.known / errors, 6)) if errors else 1.0,
            "likely": counted(self.of_likely),
            "at_least": counted(float(np.quantile(self.counts.sums(), 0.025))) if random else None,
        }

"""A model's R@1 errors: how many of them are likely positives, and how many people would accept at least.

An error is a query whose first item is not its own; where several items share the first place, each counts by its
share, as in the expected recall of `evaluate`. Of an error at pair (i, j) people accept p(v_ij), by the calibration.
Of shards, w_ij p(v_ij) over the kept pairs estimates the sum over all errors, since what a model ranks first does not
hang on what was drawn. Intervals are percentiles over draws that resample images with all their queries, take one of
the calibration's curves each, and add what chance leaves open where p is neither 0 nor 1, and what errors that share a
side's image have in common: the calibration's random effects, that of the queries' image and that of the items'.

Their lower end alone is told, and of a calibration on random pairs alone: p(v) is of all pairs of a value, and a model
that knows more than the measure ranks first those that people accept more often.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from capgrade.agreement.curve import Curve
from capgrade.pipelines.audit.candidates import ValuedPairs
from capgrade.pipelines.audit.estimate import CHUNK, DRAWS, LIKELY, Counts
from capgrade.pipelines.audit.lists import likely
from capgrade.schemas.captions import Captions

WAYS = ("i2t", "t2i")


class RankedModel:
    """What a model ranks first. similarity (n_images, n_columns); kept int64 [n_columns]: each column's caption."""

    def __init__(self, similarity: np.ndarray, kept: np.ndarray, captions: Captions) -> None:
        self.similarity, self.kept, self.captions = similarity, kept, captions
        self.column = np.full(captions.n_captions, -1)
        self.column[kept] = np.arange(len(kept))
        self.best = {"i2t": similarity.max(axis=1), "t2i": similarity.max(axis=0)}  # of each query
        self.ties = {  # how many items share its first place
            "i2t": (similarity == self.best["i2t"][:, None]).sum(axis=1),
            "t2i": (similarity == self.best["t2i"]).sum(axis=0),
        }

    def first(self, way: str, image: np.ndarray, caption: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of the pairs at a first place: which of those given, their queries, and the share of the place, float64."""
        column = self.column[caption]
        query = image if way == "i2t" else column
        there = self.similarity[image, column] == self.best[way][query]
        some = np.flatnonzero(there & (column >= 0))
        return some, query[some], 1 / self.ties[way][query[some]]

    def image_of(self, way: str) -> np.ndarray:
        """The image of each query, int64."""
        return np.arange(len(self.similarity)) if way == "i2t" else self.captions.owner[self.kept]


class Errors:
    """Errors of one direction: what is first and not own, by the value of its pair. Sums are of each query's image."""

    def __init__(self, ranked: RankedModel, way: str, curve: Curve) -> None:
        self.ranked, self.way, self.curve = ranked, way, curve
        n = ranked.captions.n_images
        self.image = ranked.image_of(way)
        self.counts = Counts(curve, n)
        self.known = 0.0
        self.chance, self.squares = np.zeros((2, n))  # variance; squares of what is accepted
        self.of_items = np.zeros(n)  # accepted, by the image that the first item is of
        self.likely_parts: list[ValuedPairs] = []
        self.of_likely = 0.0  # errors whose pair is likely
        _, query, _ = ranked.first(way, ranked.captions.owner[ranked.kept], ranked.kept)
        hit = np.bincount(query, minlength=len(self.image)) / ranked.ties[way]
        self.queries, self.hits = np.bincount(self.image, minlength=n), np.bincount(self.image, hit, n)

    def add(self, pairs: ValuedPairs) -> None:
        """Pairs of other captions, each once."""
        some, query, share = self.ranked.first(self.way, pairs.image, pairs.caption)
        self.known += share.sum()
        image, first = self.image[query], pairs.take(some)
        errors = ValuedPairs(image, first.caption, first.value, first.weight * share)
        self.counts.add(errors)
        p = self.curve.probability(errors.value)
        accepted = errors.weight * p
        self.of_likely += float(errors.weight[p >= LIKELY].sum())
        item = first.image if self.way == "t2i" else self.ranked.captions.owner[first.caption]
        n = len(self.of_items)
        self.chance += np.bincount(image, accepted * (1 - p), n)
        self.squares += np.bincount(image, accepted**2, n)
        self.of_items += np.bincount(item, accepted, n)
        self.likely_parts.append(likely(first, self.curve))

    def likely(self) -> ValuedPairs:
        """The errors that more people accept than not, the likeliest first."""
        return ValuedPairs.joined(self.likely_parts)

    def told(self, random: bool, seed: int = 0) -> dict[str, Any]:
        """recall: R@1; errors: how many queries; known: the share of them whose value is known; likely: the `share` of
        the errors that are likely positives, and `recall`, R@1 with these counted; at_least: the same of errors that
        people accept, the lower ends of 95 % intervals; None unless `random`: any pair was as likely to be judged."""
        each, drawn = self.counts.accepted()
        left_open, shared = self._open(each)
        table = np.column_stack([self.queries, self.hits, each, drawn, left_open])
        queries, hits = table[:, :2].sum(axis=0)
        errors = queries - hits
        likely = min(self.of_likely, errors)  # weights may say more
        share, recall = _draws(table, shared, np.random.default_rng(seed))
        at_least = {"share": float(np.quantile(share, 0.025)), "recall": float(np.quantile(recall, 0.025))}
        return {
            "recall": float(hits / queries),
            "errors": float(errors),
            "known": float(round(self.known / errors, 6)) if errors else 1.0,
            "likely": {"share": float(likely / errors) if errors else 0.0, "recall": float((hits + likely) / queries)},
            "at_least": at_least if random else None,
        }

    def _open(self, each: np.ndarray) -> tuple[np.ndarray, float]:
        """Variance of the accepted errors, of which `each` are of each image's queries: float64 [images] by chance and
        by what an image's queries have in common; and by what items of one image have in common. Chance has all of one
        pair."""
        both = self.curve.image_spread, self.curve.caption_spread
        of_query, of_item = both if self.way == "i2t" else both[::-1]
        shared = of_item * ((self.of_items**2).sum() - self.squares.sum())
        return self.chance + of_query * (each**2 - self.squares).clip(0), max(float(shared), 0.0)  # clip: of rounding


def _draws(table: np.ndarray, shared: float, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The share of errors accepted and the recall with them, of each draw, float64 [DRAWS]. table float64 [images, 4 +
    curves]: queries, hits, accepted, the same by each curve, and the variance left open; shared: more of it."""
    n, curves, found = len(table), table.shape[1] - 4, np.empty((DRAWS, 2))
    for at in range(0, DRAWS, CHUNK):
        sums = random.multinomial(n, np.full(n, 1 / n), size=CHUNK) @ table
        queries, hits, left_open = sums[:, 0], sums[:, 1], sums[:, -1]
        accepted = sums[np.arange(CHUNK), 3 + (at + np.arange(CHUNK)) % curves]
        accepted = accepted + random.normal(size=CHUNK) * np.sqrt(left_open + shared)
        errors = queries - hits
        found[at : at + CHUNK, 0] = np.divide(accepted, errors, out=np.zeros(CHUNK), where=errors > 0)
        found[at : at + CHUNK, 1] = (hits + accepted) / queries
    return found[:, 0].clip(0, 1), found[:, 1].clip(0, 1)

"""Hard negatives that the labels do not accept, for losses that count every other document of a
row or batch as wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from capgrade.labels.unsampled import Unknown
from capgrade.schemas.arrays import as_numpy
from capgrade.schemas.errors import InputError, check_choice
from capgrade.schemas.say import warn

if TYPE_CHECKING:
    from capgrade.labels import Labels

_BLOCK = 256  # queries at once
MinedFormat = Literal["triplet", "n-tuple", "labeled-pair", "labeled-list"]


class AcceptanceRule(NamedTuple):
    """Which captions an image accepts: its own, those whose `measure` is `below` or more, and those
    whose value is not known, unless `unknown` has something stand for it."""

    labels: Labels
    below: np.float32  # as labels are: a value that is written as the threshold is reaches it
    measure: str
    unknown: Unknown

    def judge(self, images: np.ndarray, captions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whether each image accepts each caption, bool [I, C], and the relevance, float32 [I,
        C]."""
        values, known, _ = self.labels.block(images, captions, self.measure, unknown=self.unknown)
        own = self.labels.owner[captions] == images[:, None]
        return own | (values >= self.below) | ~known, values


@dataclass(frozen=True)
class Negatives:
    """Pairs of an image and an own caption, each with negatives; made by `Labels.negatives`.

    An anchor is the image of a pair where `queries` is images, else its caption; its documents are
    of the other kind: the pair's own one, then the negatives from the hardest on.
    """

    rule: AcceptanceRule
    queries: str
    anchors: np.ndarray  # int64 [n]: rows
    documents: np.ndarray  # int64 [n, 1 + k]: rows
    relevance: np.ndarray  # float32 [n, 1 + k]

    def columns(
        self,
        output_format: MinedFormat = "n-tuple",
        images: Sequence[Any] | None = None,
        *,
        rows: bool = False,
    ) -> dict[str, list[Any]]:
        """Columns as `mine_hard_negatives` of sentence-transformers names them, which its losses
        read.

        Captions are their texts; `images` has what stands for each image row, ids unless it is
        given. By `output_format`: n-tuple has anchor, positive, negative_1 to negative_k; triplet a
        row for each negative; labeled-pair a row for each document, with its relevance as `score`;
        labeled-list the documents of an anchor in `positive`, with their relevance in `labels`.
        With `rows`, of n-tuple alone, `label` has the rows of the anchor and of its documents, as
        `GradedRankingLoss` reads them. InputError for another format, and for images that are not
        as many as the labels have.

        >>> found = Labels.load("dataset").negatives(2, accepted_below=0.3, measure="rouge_l")
        >>> list(found.columns())
        ['anchor', 'positive', 'negative_1', 'negative_2']
        >>> listed = found.columns("labeled-list")
        >>> len(listed["positive"][0]), len(listed["labels"][0])
        (3, 3)
        """
        check_choice("output_format", output_format, get_args(MinedFormat))
        if rows and output_format != "n-tuple":
            raise InputError(f"rows of {output_format}", remedy="take them with n-tuple")
        items, texts = self._items(images)
        anchors = [items[row] for row in self.anchors]
        documents = [[texts[row] for row in of_anchor] for of_anchor in self.documents]
        if output_format == "labeled-list":
            return {"anchor": anchors, "positive": documents, "labels": self.relevance.tolist()}
        if output_format == "n-tuple":
            numbers = range(1, self.documents.shape[1])
            names = ["anchor", "positive", *(f"negative_{place}" for place in numbers)]
            columns = {name: list[Any]() for name in names}
            for anchor, of_anchor in zip(anchors, documents, strict=True):
                for name, item in zip(names, [anchor, *of_anchor], strict=True):
                    columns[name].append(item)
            label = np.concatenate([self.anchors[:, None], self.documents], axis=1)
            return {**columns, **({"label": label.tolist()} if rows else {})}
        found: list[tuple[Any, Any, Any]] = []
        for anchor, own, grades in zip(anchors, documents, self.relevance.tolist(), strict=True):
            if output_format == "triplet":
                found += [(anchor, own[0], negative) for negative in own[1:]]
            else:
                found += [(anchor, item, grade) for item, grade in zip(own, grades, strict=True)]
        last = "negative" if output_format == "triplet" else "score"
        return {
            name: [row[place] for row in found]
            for place, name in enumerate(("anchor", "positive", last))
        }

    def clash(self, pairs: Sequence[int]) -> np.ndarray:
        """Of some pairs, bool [n, n]: which may not be in one batch, as the anchor of one accepts
        what another brings.

        >>> labels = capgrade.exact(Labels.load("dataset"), "rouge_l")
        >>> found = labels.negatives(1, accepted_below=0.3)
        >>> bool(found.clash([0, 1])[0, 1])  # captions of one image
        True
        """
        anchors, documents = self.anchors[pairs], self.documents[pairs].ravel()
        if self.queries == "images":
            accepts, _ = self.rule.judge(anchors, documents)
        else:
            accepts = self.rule.judge(documents, anchors)[0].T
        accepts_any = np.any(accepts.reshape(len(pairs), len(pairs), -1), axis=2)
        return (accepts_any | accepts_any.T) & ~np.eye(len(pairs), dtype=bool)

    def _items(self, images: Sequence[Any] | None) -> tuple[Sequence[Any], Sequence[Any]]:
        labels = self.rule.labels
        pictures = labels.image_ids if images is None else images
        if len(pictures) != len(labels.image_ids):
            problem = f"{len(pictures)} images for labels of {len(labels.image_ids)}"
            raise InputError(problem, remedy="give one for each row")
        return (pictures, labels.texts) if self.queries == "images" else (labels.texts, pictures)


def mine_negatives(rule: AcceptanceRule, k: int, scores: Any, queries: str) -> Negatives:
    """As `Labels.negatives`."""
    if not isinstance(k, (int, np.integer)) or k < 0 or queries not in ("images", "captions"):
        raise InputError(
            f"{k} negatives of {queries!r}", remedy="give 0 or more, of images or captions"
        )
    if np.isnan(rule.below):
        raise InputError(
            "accepted_below is nan", remedy="give a number, or inf to accept own captions alone"
        )
    pairs = [
        np.concatenate(parts)
        for parts in zip(*_blocks(rule, k, _scores(rule, scores), queries), strict=True)
    ]
    enough = pairs[1].min(axis=1) >= 0
    if not enough.all():
        problem = f"{queries} with fewer than {k} candidates that are known and not accepted"
        remedy = "ask for fewer, raise accepted_below, or take capgrade.exact(labels, measure)"
        if not enough.any():
            raise InputError(f"only {problem}", file=rule.labels.file, remedy=remedy)
        warn(f"{(~enough).sum()} of {len(enough)} pairs are left out, of {problem}; {remedy}")
    return Negatives(rule, queries, *(part[enough] for part in pairs))


def _blocks(
    rule: AcceptanceRule, k: int, scores: Any, queries: str
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Anchors, documents and relevance of a block of queries at a time; -1 where no candidate is
    left."""
    images, captions = np.arange(len(rule.labels.image_ids)), np.arange(rule.labels.n_captions)
    by_image, owner = queries == "images", rule.labels.owner
    query_of, own = (owner, captions) if by_image else (captions, owner)  # of each pair
    for first in range(0, len(images if by_image else captions), _BLOCK):
        block = slice(first, first + _BLOCK)
        asked = (images[block], captions) if by_image else (images, captions[block])
        accepted, relevance = rule.judge(*asked)
        hardness = np.where(accepted, np.float32(-np.inf), scores(*asked))
        if not by_image:
            hardness, relevance = hardness.T, relevance.T
        pair = np.flatnonzero((query_of >= first) & (query_of < first + _BLOCK))
        query, best = query_of[pair] - first, np.stack([_best(row, k) for row in hardness])
        documents = np.concatenate([own[pair][:, None], best[query]], axis=1)
        yield (
            query_of[pair],
            documents,
            np.take_along_axis(relevance[query], np.maximum(documents, 0), axis=1),
        )


def _best(row: np.ndarray, k: int) -> np.ndarray:
    """The candidates of the k largest values, int64 [k], the first ones of equal values, and -1
    where there are none above -inf."""
    rows = np.full(k, -1, np.int64)
    least = np.partition(row, len(row) - k)[-k] if 0 < k <= len(row) else -np.inf
    candidates = np.flatnonzero((row >= least) & (row > -np.inf)) if k else np.empty(0, np.int64)
    best = candidates[np.argsort(-row[candidates], kind="stable")][:k]
    rows[: len(best)] = best
    return rows


def _scores(rule: AcceptanceRule, given: Any) -> Any:
    """A function of image and caption rows: how alike a measure, a matrix or vectors of both find
    them, float32."""
    labels = rule.labels
    if given is None or isinstance(given, str):
        name = labels.choose_measure(given or rule.measure)
        return lambda images, captions: (
            labels.block(images, captions, name, unknown=rule.unknown).relevance
        )
    shape = len(labels.image_ids), labels.n_captions
    parts = [as_numpy(part) for part in (given if isinstance(given, tuple) else (given,))]
    if len(parts) == 1:
        fits = parts[0].shape == shape
    else:
        fits = [part.shape for part in parts] == [(n, *parts[0].shape[-1:]) for n in shape]
    if not fits or not all(np.isfinite(part).all() for part in parts):
        problem = (
            f"scores of {' and '.join(str(list(part.shape)) for part in parts)}, or with a value"
            " that is no number"
        )
        remedy = f"give finite scores {list(shape)}, (vectors of images, of captions), or a measure"
        raise InputError(problem, remedy=remedy)
    if len(parts) == 1:
        return lambda images, captions: parts[0][images[:, None], captions].astype(
            np.float32, copy=False
        )
    # Products of int8 would overflow.
    of_images, of_captions = (
        part.astype(np.result_type(part, np.float32), copy=False) for part in parts
    )
    return lambda images, captions: (of_images[images] @ of_captions[captions].T).astype(
        np.float32, copy=False
    )

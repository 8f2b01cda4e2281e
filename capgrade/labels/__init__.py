"""`capgrade.Labels`: graded relevance of images and captions for a training loop, wherever it was
written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from capgrade.labels.stored import Complete, Opened, RelevanceBlock, Sampled
from capgrade.labels.unsampled import UNKNOWN_RULES, Unknown, stand_ins
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.extras import needs
from capgrade.schemas.pairs import Pairs

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

    from capgrade.labels.batches import GradedBatches
    from capgrade.labels.negatives import Negatives

GIVE_CAPTIONS = "give Labels.load(..., captions=FOLDER), what `capgrade captions` wrote"
Ids = Any  # a sequence of ids (str), or of rows (int), as a list, numpy array or torch tensor


@dataclass(frozen=True)
class Labels(Opened):
    """Graded labels, images in rows and captions in columns; made by `Labels.load`.

    Ids are strings as in the captions table, or rows: numbers of images in order of first
    appearance and of captions in the order of the table. May be pickled, for the workers of a
    DataLoader: it is opened anew there. What a folder does not say is None.
    """

    # What made them of the labels that were opened: `capgrade.exact` with its arguments.
    completed: Callable[[Labels], Labels] | None = None
    _how: dict[str, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def load(
        where: str | Path,
        *,
        measures: Sequence[str] | None = None,
        split: str | None = None,
        captions: str | Path | None = None,
        revision: str | None = None,
    ) -> Labels:
        """Open a folder of `capgrade shards`, `relevance` or `publish`, or a published dataset
        USER/NAME of the hub.

        `measures` are those wanted (None: all); `split` chooses one of a published dataset, and
        must be that of other labels; `captions`, the folder of `capgrade captions`, gives shards
        and dense relevance the ids of captions, and must be what a dataset was published from; of
        one that was published without texts, captions get theirs by the digest of each
        (`labels.digests`), and a warning counts those that do not fit;
        `revision` is of the hub: a tag, branch or commit. Arrow files are mapped into memory; of a
        published dataset the columns of `measures` are read. Raises InputError for what is damaged,
        unfinished, of another kind, or made for other captions.

        >>> labels = Labels.load("dataset")
        >>> labels.measures
        ['cider', 'rouge_l', 'sbert']
        """
        from capgrade.labels.opening import open_labels

        how = {
            "where": where,
            "measures": measures,
            "split": split,
            "captions": captions,
            "revision": revision,
        }
        return Labels(**vars(open_labels(**how)), _how=how)  # type: ignore[arg-type]

    def __reduce__(self) -> tuple:
        if not self._how:  # in memory: there is nothing to open
            return Labels, tuple(getattr(self, item.name) for item in fields(self))
        return _reload, (self._how, self.completed)

    def __repr__(self) -> str:
        kind = "sampled" if self.stored.sampled else "every pair known"
        return (
            f"Labels({len(self.image_ids)} images, {self.n_captions} captions,"
            f" {', '.join(self.measures)}; {kind})"
        )

    @property
    def measures(self) -> list[str]:
        """Names of the measures; of a published dataset in alphabetical order."""
        return list(self.stored.measures)

    @property
    def caption_ids(self) -> list[str]:
        """The id of each caption row. InputError without a captions table."""
        return self.table.caption_ids

    @property
    def texts(self) -> list[str]:
        """The text of each caption row. InputError without a captions table, and of a dataset that
        was published without texts, where they are not given."""
        self.table.require_texts(self.file)
        return self.table.texts

    @property
    def table(self) -> Captions:
        """The captions table. InputError where these labels have none."""
        if self.captions is None:
            raise InputError(
                "these labels have rows of captions, not ids", file=self.file, remedy=GIVE_CAPTIONS
            )
        return self.captions

    @property
    def owner(self) -> np.ndarray:
        """The image row of each caption row, int64 [n_captions]. InputError where it is not
        known."""
        if self.owners is None:
            raise InputError(
                "whose each caption is stands in the captions table",
                file=self.file,
                remedy=GIVE_CAPTIONS,
            )
        return self.owners

    def choose_measure(self, measure: str | None) -> str:
        """The measure, or the only one there is. InputError otherwise, listing them."""
        if measure is None and len(self.measures) == 1:
            return self.measures[0]
        if measure not in self.measures:
            problem = (
                "no measure chosen"
                if measure is None
                else f"no measure '{measure}' in these labels"
            )
            remedy = choose_from(measure or "", self.measures)
            raise InputError(problem, file=self.file, remedy=remedy)
        return measure

    def block(
        self,
        image_ids: Ids,
        caption_ids: Ids,
        measure: str | None = None,
        device: str | torch.device | None = None,
        unknown: Unknown = "mask",
    ) -> RelevanceBlock:
        """Relevance of captions to images: (relevance float32, known bool, weights float32), each
        [I, C].

        `measure` may be left out where there is one. numpy arrays; torch tensors on `device` where
        it is given. `known` is False where a pair was not sampled; its relevance is 0 and means
        nothing. `weights` say how many pairs each stands for: 0 where it is not known, 1 where
        sampling kept it for certain, above 1 otherwise. Where every pair is known they are 1.

        `unknown` says what a pair that was not sampled gets. mask: what is said above. estimate:
        the estimated mean of that image's captions that were not sampled
        (`labels.unsampled.estimates` has the formula, bias and variance). bound: the image's last
        top value, which none of them exceeds. With both every cell counts as known, with weight 1.
        Raises InputError for an unknown id, row or measure, and where nothing tells of the pairs
        that were not sampled.

        >>> labels = Labels.load("dataset", measures=["cider"])
        >>> relevance, known, weights = labels.block(labels.image_ids[:2], labels.caption_ids[:10])
        >>> relevance.shape, bool(known[0, :5].all()), bool((weights[0, :5] == 1).all())
        ((2, 10), True, True)
        """
        if unknown not in UNKNOWN_RULES:
            raise InputError(f"unknown is {unknown!r}", remedy=choose_from(unknown, UNKNOWN_RULES))
        measure = self.choose_measure(measure)
        images, captions = self.rows_of_images(image_ids), self.rows_of_captions(caption_ids)
        if device is not None and isinstance(self.stored, Complete):
            tensors = self.stored.on_device(device, images, captions, measure)
            if tensors is not None:
                return tensors
        if len(images) and len(captions):
            block = self.stored.block(images, captions, measure)
        else:
            block = RelevanceBlock.complete(np.zeros((len(images), len(captions)), np.float32))
        if unknown != "mask" and isinstance(self.stored, Sampled):
            others = stand_ins(self.stored, measure, unknown, self.file)[images]
            np.copyto(block.relevance, others[:, None], where=~block.known)
            block.known[:], block.weights[:] = True, 1
        if device is None:
            return block
        with needs("train"):
            import torch

        return RelevanceBlock(*(torch.from_numpy(cells).to(device) for cells in block))

    def relevance(self, measure: str | None = None) -> np.ndarray | Pairs:
        """Relevance of every caption to every image, float32 [n_images, n_captions]; where pairs
        were sampled, what is known, with its weights. InputError as of `choose_measure` and
        `sample`.

        >>> type(Labels.load("dataset").relevance("cider")).__name__  # of shards
        'Pairs'
        """
        stored = self.stored
        if isinstance(stored, Sampled) and (stored.sizes < self.n_captions).any():
            return self.sample(measure)
        images, captions = range(len(self.image_ids)), range(self.n_captions)
        return np.asarray(self.block(images, captions, self.choose_measure(measure)).relevance)

    def batches(
        self,
        size: int,
        *,
        measure: str | None = None,
        low: float = -np.inf,
        high: float = np.inf,
        seed: int = 0,
        process: int = 0,
        processes: int = 1,
    ) -> GradedBatches:
        """A batch sampler for a DataLoader whose dataset is indexed by caption rows: graded
        neighbours meet.

        Half of each batch is drawn at random, and each of these captions brings one that is not its
        image's own and has a relevance in low..high to it; `labels.batches.BatchPlan` says the
        rest, and the trainer's batches are planned by it too. The same for the same seed and epoch
        (`set_epoch`), whatever ran before; of several `processes` each gets other batches, equally
        many. InputError where nothing is in the range.

        >>> batches = Labels.load("dataset").batches(8, measure="sbert", low=0.3, high=0.9)
        >>> len(next(iter(batches)))
        8
        """
        from capgrade.labels.batches import GradedBatches

        return GradedBatches(
            self, size, self.choose_measure(measure), low, high, seed, process, processes
        )

    def negatives(
        self,
        k: int,
        *,
        accepted_below: float,
        measure: str | None = None,
        scores: Any = None,
        queries: str = "images",
        unknown: Unknown = "mask",
    ) -> Negatives:
        """Each pair of an image and an own caption with the k hardest candidates that the labels do
        not accept.

        Own captions are accepted, and those whose `measure` is `accepted_below` or more. A pair
        whose value is not known counts as accepted too, so that it is never a negative; with
        `unknown` "estimate" or "bound" what stands for its value decides (`block`). Hardest is what
        a model finds most alike: `scores` [n_images, n_captions], numpy or torch; or (vectors of
        images, of captions); or the name of a measure, `measure` unless given. Of equal scores the
        first comes first. `queries` says whether images or captions are the anchors; k = 0 gives
        the pairs alone. Pairs with fewer than k negatives are left out, and a warning counts them.

        Raises InputError for scores that do not fit, labels without captions, and where no pair has
        k negatives.

        >>> labels = Labels.load("dataset")
        >>> found = labels.negatives(3, accepted_below=0.5, measure="rouge_l", scores="sbert")
        >>> found.documents.shape
        (60, 4)
        """
        from capgrade.labels.negatives import AcceptanceRule, mine_negatives

        rule = AcceptanceRule(
            self, np.float32(accepted_below), self.choose_measure(measure), unknown
        )
        return mine_negatives(rule, k, scores, queries)

    def positives(
        self, caption_id: str | int, *, above: float, measure: str | None = None
    ) -> list[tuple[str, float]]:
        """The images whose known relevance to a caption exceeds `above`, best first: (image id,
        relevance).

        >>> labels = Labels.load("dataset")
        >>> caption = labels.caption_ids[0]
        >>> labels.positives(caption, above=0.99, measure="rouge_l")[0]
        ('scene-train-000000', 1.0)
        """
        name = self.choose_measure(measure)
        images, values = self.stored.of_caption(int(self.rows_of_captions([caption_id])[0]), name)
        order = [k for k in np.argsort(-values, kind="stable") if values[k] > above]
        return [(self.image_ids[images[k]], float(values[k])) for k in order]

    def neighbours(
        self, image_id: str | int, *, top: int, measure: str | None = None
    ) -> list[tuple[str | int, float]]:
        """The `top` captions of largest known relevance to an image, best first: (caption id,
        relevance). InputError for a top below 1, and for an image that is not there.

        Sampled labels hold the `shards.top` best ones of every image; beyond these the list is of
        the sampled alone. Without a captions table the captions' rows stand for their ids.

        >>> labels = Labels.load("dataset")
        >>> len(labels.neighbours(labels.image_ids[0], top=3, measure="cider"))
        3
        """
        if top < 1:
            raise InputError(f"the top {top} captions", remedy="ask for 1 or more")
        name = self.choose_measure(measure)
        captions, values = self.stored.of_image(int(self.rows_of_images([image_id])[0]), name)
        names: Sequence[str | int] = (
            range(self.n_captions) if self.captions is None else self.caption_ids
        )
        order = np.argsort(-values, kind="stable")[:top]
        return [(names[captions[k]], float(values[k])) for k in order]

    def to_qrels(
        self,
        path: str | Path,
        *,
        measure: str | None = None,
        grades: Sequence[float],
        queries: str = "captions",
        force: bool = False,
    ) -> int:
        """Write what is known as TREC judgements, "query 0 document grade" a line; returns the
        lines.

        A grade is how many of the thresholds `grades`, rising, a value reaches: TREC's are whole
        numbers. `queries` is captions or images; what was not sampled is not judged. Raises
        InputError for an id with a space, and where a file is, but with `force`.

        >>> labels = Labels.load("dataset")
        >>> labels.to_qrels("cider.qrels", measure="cider", grades=[0.5, 1, 2]) > 100
        True
        """
        from capgrade.labels.qrels import write_qrels

        name = self.choose_measure(measure)
        return write_qrels(self, Path(path), name, grades, queries, force)

    def sample(self, measure: str | None = None) -> Pairs:
        """What is known, as `metrics.estimate` reads it, images as queries: a kept pair stands for
        the others by its weight. Relevance below 0 is a gain of 0. What an image did not keep is at
        most the least of its top captions.

        InputError for another measure, for one that scores some pairs alone, and for weights that
        do not add up to all pairs: some had no chance.

        >>> labels = Labels.load("dataset")
        >>> sample = labels.sample("cider")
        >>> bool(abs(sample.weight.sum() / (len(labels.image_ids) * labels.n_captions) - 1) < 0.1)
        True
        """
        name = self.choose_measure(measure)
        if self.stored.partial(name):
            problem = f"{name} scores some pairs alone, and no weights tell of the others"
            remedy = "evaluate by a measure of every pair"
            raise InputError(problem, file=self.file, remedy=remedy)
        pairs = Pairs.concatenate(self.stored.pairs(name))
        remedy = "make shards with a chance for every pair: shards.uniform of 1 or more"
        pairs.require_all(len(self.image_ids), self.n_captions, file=self.file, remedy=remedy)
        most = np.maximum(self.stored.limits(name), 0)[pairs.image]
        return replace(pairs.valued(np.maximum(pairs.value, 0)), most=most)

    def judgements(
        self, measure: str | None, queries: str
    ) -> tuple[pa.Array, pa.Array, np.ndarray]:
        """Query id, document id and relevance, float64 [pairs], of each pair that is known, a query
        after the other; `queries` is captions or images. InputError for other queries."""
        from capgrade.labels.qrels import judgements

        return judgements(self, self.choose_measure(measure), queries)

    def rows_of_images(self, ids: Ids) -> np.ndarray:
        """Rows of images, int64 [ids]. InputError for one that is not there."""
        return _rows(ids, lambda: self._row_of_image, len(self.image_ids), "image", self.file)

    def rows_of_captions(self, ids: Ids) -> np.ndarray:
        """Rows of captions, int64 [ids]. InputError for one that is not there."""
        return _rows(ids, lambda: self._row_of_caption, self.n_captions, "caption", self.file)

    @cached_property
    def _row_of_image(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(self.image_ids)}

    @cached_property
    def _row_of_caption(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(self.caption_ids)}


def _reload(how: dict[str, Any], completed: Callable[[Labels], Labels] | None) -> Labels:
    """Open labels again, as pickles do in another process."""
    labels = Labels.load(**how)
    return labels if completed is None else completed(labels)


def _rows(
    ids: Ids, row_of_id: Callable[[], dict[str, int]], count: int, what: str, file: Any
) -> np.ndarray:
    if hasattr(ids, "detach"):
        ids = ids.detach().cpu().numpy()
    if isinstance(ids, str):
        raise InputError(f"{what} ids are the text {ids!r}", remedy=f"give a list: [{ids!r}]")
    if not hasattr(ids, "__iter__") or (isinstance(ids, np.ndarray) and ids.ndim == 0):
        raise InputError(
            f"{what} ids are {ids!r}", remedy="give a list of strings, or of row numbers"
        )
    items = ids if isinstance(ids, np.ndarray) else list(ids)
    if len(items) and isinstance(items[0], str):
        row_of = row_of_id()
        try:
            return np.array([row_of[name] for name in items], np.int64)
        except KeyError as error:
            remedy = f"ask for ids of this split, such as {next(iter(row_of))!r}"
            raise InputError(f"no {what} {error.args[0]!r}", file=file, remedy=remedy) from None
    rows = np.asarray(items if len(items) else np.empty(0, np.int64))
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        problem = f"{what} ids are {rows.dtype} {list(rows.shape)}"
        raise InputError(problem, remedy="give a list of strings, or of row numbers")
    if len(rows) and not 0 <= rows.min() <= rows.max() < count:
        bad = int(rows.min() if rows.min() < 0 else rows.max())
        raise InputError(
            f"no {what} row {bad}: there are {count}", file=file, remedy=f"rows are 0..{count - 1}"
        )
    return rows.astype(np.int64, copy=False)

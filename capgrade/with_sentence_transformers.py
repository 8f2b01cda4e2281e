"""For sentence-transformers: an evaluator by graded labels, a loss of several positives, and mined
negatives and batches without false ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from capgrade.evaluation import evaluate
from capgrade.labels import Labels
from capgrade.labels.negatives import AcceptanceRule, Negatives
from capgrade.labels.unsampled import Unknown
from capgrade.metrics.catalogue import is_graded
from capgrade.metrics.formats import DIRECTIONS
from capgrade.schemas.errors import InputError, check_choice
from capgrade.schemas.extras import needs
from capgrade.schemas.say import warn

with needs("encoder"):
    import torch
    from sentence_transformers.base.evaluation import SentenceEvaluator
    from sentence_transformers.base.sampler import DefaultBatchSampler
    from torch import Tensor
    from torch.nn.functional import normalize

if TYPE_CHECKING:
    from datasets import Dataset

_METRICS = ("ndcg@10", "kendall_tau_b", "asp")


class GradedEvaluator(SentenceEvaluator):
    """Graded metrics of both directions, as the trainers of sentence-transformers call it:
    {"i2t_ndcg@10": ...}.

    `labels` know every pair, as dense ones or `capgrade.exact` do. `images` has what the model
    encodes for each image row: a picture or its path for a multimodal model, or a text that stands
    for the image. Captions are the labels' own texts, unless `captions` has others, in their order.
    `metrics` are those of `capgrade.evaluate`; `ndcg@10`, Kendall's tau-b and ASP unless given.
    Ties of a model's scores count as the mean over their orders. The primary metric, by which
    trainers choose a checkpoint, is the first one from text to image. Raises InputError for metrics
    that are not known, labels with unknown pairs, and numbers of images or captions that are not
    the labels'.

    >>> from sentence_transformers import SentenceTransformer
    >>> labels = capgrade.exact(Labels.load("dataset"), "rouge_l")
    >>> # Texts, in place of pictures.
    >>> images = [labels.captions.texts[row] for row in range(0, labels.n_captions, 5)]
    >>> evaluator = GradedEvaluator(labels, images, metrics=["ndcg@10"])
    >>> evaluator.primary_metric
    't2i_ndcg@10'
    """

    def __init__(
        self,
        labels: Labels,
        images: Sequence[Any],
        *,
        captions: Sequence[str] | None = None,
        measure: str | None = None,
        metrics: Sequence[str] = _METRICS,
        batch_size: int = 32,
        name: str = "",
    ) -> None:
        super().__init__()
        self.labels, self.measure, self.metrics = (
            labels,
            labels.choose_measure(measure),
            list(metrics),
        )
        self.images = list(images)
        self.captions = list(labels.texts if captions is None else captions)
        self.batch_size, self.name = batch_size, name
        for what, items, count in (
            ("images", self.images, len(labels.image_ids)),
            ("captions", self.captions, labels.n_captions),
        ):
            if len(items) != count:
                raise InputError(
                    f"{len(items)} {what} for labels of {count}", remedy="give one for each row"
                )
        if not self.metrics or not all(map(is_graded, self.metrics)):
            raise InputError(
                f"metrics {self.metrics}", remedy=f"give graded ones, such as {', '.join(_METRICS)}"
            )
        self.primary_metric = f"t2i_{self.metrics[0]}"

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """The mean of each metric and direction, which also go into the card of `model`, a
        SentenceTransformer."""
        images, captions = (
            model.encode(
                items, batch_size=self.batch_size, show_progress_bar=False, convert_to_tensor=True
            )
            for items in (self.images, self.captions)
        )
        scores = model.similarity(images, captions).float().cpu()
        evaluation = evaluate(
            scores, self.labels, self.metrics, measure=self.measure, intervals=None
        )
        means = {
            f"{direction}_{metric}": value
            for direction in DIRECTIONS
            for metric, value in evaluation.scored[direction].mean.items()
        }
        named = self.prefix_name_to_metrics(means, self.name)
        self.store_metrics_in_model_card_data(model, named, epoch, steps)
        return named


class GradedRankingLoss(torch.nn.Module):
    """MultipleNegativesRankingLoss whose targets are labels: several documents of a batch may be
    right for an anchor, and some more than others.

    -mean_i sum_j q_ij log softmax_j(scale cos(a_i, d_j)), over the documents d of all rows whose
    relevance to the anchor is known. q_i is the same for each accepted document; with `softness` it
    is softmax(r_i / softness) of the relevance. A row has an anchor, then its documents, one or
    several, right or wrong. Its `label` has the labels' rows of all of them:
    `negatives.columns(images=..., rows=True)` makes such rows.

    `queries` says whether anchors are images or captions. Own documents are accepted, and those
    whose `measure` is `accepted_below` or more; `unknown` is that of `Labels.block`. On labels that
    accept own documents alone it is MultipleNegativesRankingLoss. InputError without `label`, and
    for one of another length than the rows have columns.

    >>> loss = GradedRankingLoss(None, Labels.load("dataset"), "rouge_l", accepted_below=0.5)
    >>> loss.get_config_dict()["accepted_below"]
    0.5
    """

    def __init__(
        self,
        model: Any,
        labels: Labels,
        measure: str | None = None,
        *,
        accepted_below: float = float("inf"),
        softness: float | None = None,
        queries: Literal["images", "captions"] = "images",
        unknown: Unknown = "mask",
        scale: float = 20.0,
    ) -> None:
        super().__init__()
        check_choice("queries", queries, ("images", "captions"))
        self.model, self.labels, self.measure = model, labels, labels.choose_measure(measure)
        self.accepted_below, self.softness, self.scale = accepted_below, softness, scale
        self.queries, self.unknown = queries, unknown

    def forward(self, sentence_features: Any, labels: Tensor | None) -> Tensor:
        """float32 scalar of a batch as trainers give it: features of each column, and `label`,
        int64 [B, columns]. InputError where `label` has other columns than the batch."""
        anchors, *documents = (
            normalize(self.model(features)["sentence_embedding"], dim=-1)
            for features in sentence_features
        )
        columns = 1 + len(documents)
        if labels is None or labels.shape != (len(anchors), columns):
            problem = f"rows of {columns} columns, and no `label` of as many rows of labels"
            raise InputError(problem, remedy="take negatives.columns(images=..., rows=True)")
        rows = labels.cpu().numpy()
        anchor_rows, document_rows = rows[:, 0], rows[:, 1:].T.ravel()
        by_image = self.queries == "images"
        images, captions = anchor_rows, document_rows
        if not by_image:
            images, captions = captions, images
        block = self.labels.block(images, captions, self.measure, unknown=self.unknown)
        own = self.labels.owner[captions] == images[:, None]
        relevance, own, known = (
            torch.from_numpy(part if by_image else part.T).to(anchors.device)
            for part in (block.relevance, own, block.known | own)
        )
        if self.softness is None:
            right = own | (known & (relevance >= self.accepted_below))
            target = right / right.sum(1, keepdim=True)
        else:
            target = (relevance.float() / self.softness).masked_fill(~known, -torch.inf).softmax(1)
        log = self.scale * anchors.float() @ torch.cat(documents).float().T
        log = log.masked_fill(~known, -torch.inf).log_softmax(1)
        return -(target * log.masked_fill(target == 0, 0)).sum(1).mean()

    def get_config_dict(self) -> dict[str, Any]:
        """What a model's card says of the loss."""
        names = ("measure", "accepted_below", "softness", "queries", "unknown", "scale")
        return {name: getattr(self, name) for name in names}


def without_accepted(
    mined: Dataset,
    labels: Labels,
    *,
    accepted_below: float,
    measure: str | None = None,
    images: Sequence[Any] | None = None,
    unknown: Unknown = "mask",
) -> Dataset:
    """What `mine_hard_negatives` found, without the negatives that the labels accept.

    mined: its dataset in any of its four formats, anchors first. Captions are known by their texts,
    images by what `images` has for each image row, ids unless it is given. A triplet or n-tuple
    with an accepted negative, and an accepted negative of a labeled pair, is left out; of a
    labeled list the document is. Accepted are own documents, those whose `measure` is
    `accepted_below` or more, and those whose value is not known. A text that several captions have
    is accepted where one of them is. A warning counts what is left out. InputError for a dataset of
    another form, and for an anchor or document that the labels do not have.

    >>> from datasets import Dataset
    >>> labels = capgrade.exact(Labels.load("dataset"), "rouge_l")
    >>> first, other = labels.texts[0], labels.texts[1]  # two captions of the first image
    >>> row = {"anchor": [labels.image_ids[0]], "positive": [first], "negative": [other]}
    >>> len(without_accepted(Dataset.from_dict(row), labels, accepted_below=0.5))
    0
    """
    anchor, first, *more = mined.column_names
    names = [name for name in more if name == "negative" or name.startswith("negative_")]
    grade = next((name for name in ("label", "labels") if name in more), None)
    if (grade is None) == (not names):
        problem = f"columns {', '.join(mined.column_names)}"
        remedy = "give what mine_hard_negatives returns, with labels where it has pairs or lists"
        raise InputError(problem, remedy=remedy)
    rule = AcceptanceRule(
        labels, np.float32(accepted_below), labels.choose_measure(measure), unknown
    )
    accepts = _Acceptance(rule, labels.image_ids if images is None else images)
    anchors = mined[anchor]
    if grade == "labels":
        kept = [
            [label != 0 or not accepts(query, item) for item, label in zip(*row, strict=True)]
            for query, *row in zip(anchors, mined[first], mined[grade], strict=True)
        ]
        left_out, of = sum(row.count(False) for row in kept), sum(map(len, kept))
        listed = [name for name in mined.column_names if name in (first, grade, "scores")]

        def cut(row: dict[str, Any], place: int) -> dict[str, Any]:
            return {name: list(compress(row[name], kept[place])) for name in listed}

        result = mined.map(cut, with_indices=True)
    else:
        asked = names or [first]
        zero = [True] * len(mined) if grade is None else [label == 0 for label in mined[grade]]
        wrong = [
            is_negative and any(accepts(query, item) for item in items)
            for is_negative, query, *items in zip(
                zero, anchors, *(mined[name] for name in asked), strict=True
            )
        ]
        left_out, of = sum(wrong), len(wrong)
        result = mined.select([k for k, is_wrong in enumerate(wrong) if not is_wrong])
    if left_out:
        warn(f"{left_out:,} of {of:,} are left out: the labels accept a negative of theirs")
    return result


class _Acceptance:
    """Whether the labels accept a document for an anchor, both as a dataset has them."""

    def __init__(self, rule: AcceptanceRule, images: Sequence[Any]) -> None:
        if len(images) != len(rule.labels.image_ids):
            problem = f"{len(images)} images for labels of {len(rule.labels.image_ids)}"
            raise InputError(problem, remedy="give one for each row")
        self.rule = rule
        self.images, self.captions = _rows_by_item(images), _rows_by_item(rule.labels.texts)

    def __call__(self, anchor: Any, document: Any) -> bool:
        of = (anchor, document) if anchor in self.images else (document, anchor)
        rows = self.images.get(of[0]), self.captions.get(of[1])
        if rows[0] is None or rows[1] is None:
            what = f"image {of[0]!r}" if rows[0] is None else f"caption {of[1]!r}"
            raise InputError(f"the labels have no {what}", remedy="give images= of the same items")
        return bool(self.rule.judge(np.array(rows[0]), np.array(rows[1]))[0].any())


def _rows_by_item(items: Sequence[Any]) -> dict[Any, list[int]]:
    found: dict[Any, list[int]] = {}
    for row, item in enumerate(items):
        found.setdefault(item, []).append(row)
    return found


def accepted_apart(negatives: Negatives) -> Callable[..., ApartBatches]:
    """The `batch_sampler` of training arguments, for a dataset of the columns of `negatives`, in
    their order.

    Of several processes each has batches of its own, and what a loss gathers from the others is not
    kept apart. Set `dataloader_drop_last` for them: accelerate fills the last batch with rows of
    the first ones, which may be accepted.

    >>> labels = capgrade.exact(Labels.load("dataset"), "rouge_l")
    >>> sampler = accepted_apart(labels.negatives(0, accepted_below=0.5))
    >>> len(next(iter(sampler(range(60), batch_size=4, drop_last=True))))
    4
    """
    return partial(ApartBatches, negatives=negatives)


class ApartBatches(DefaultBatchSampler):
    """Batches in which no row brings what the labels accept for another row's anchor; made by
    `accepted_apart`.

    Rows in random order fill a batch; one that fits in none of its places waits for the next batch.
    What is left at the end makes smaller batches, which `drop_last` leaves out. The same for the
    same seed and epoch. Raises InputError for a dataset of another number of rows, and where the
    labels keep so many rows apart that no batch is filled.
    """

    def __init__(self, dataset: Any, *args: Any, negatives: Negatives, **options: Any) -> None:
        super().__init__(dataset, *args, **options)
        self.negatives, self._made = negatives, (-1, list[list[int]]())
        if len(dataset) != len(negatives.anchors):
            problem = f"a dataset of {len(dataset)} rows, and {len(negatives.anchors)} pairs"
            raise InputError(
                problem, remedy="train on their columns; evaluate with GradedEvaluator"
            )

    def __len__(self) -> int:
        return len(self._batches())

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._batches())

    def _batches(self) -> list[list[int]]:
        """Those of the epoch."""
        if self._made[0] != self.epoch:
            batches = [
                batch
                for batch in self._fill()
                if len(batch) == self.batch_size or not self.drop_last
            ]
            self._made = self.epoch, batches
        return self._made[1]

    def _fill(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        waiting = deque(torch.randperm(len(self.negatives.anchors), generator=generator).tolist())
        least = min(self.batch_size, len(waiting))  # of the first batch
        while waiting:
            batch, later = list[int](), list[int]()
            while waiting and len(batch) < self.batch_size:
                some = [waiting.popleft() for _ in range(min(self.batch_size, len(waiting)))]
                clash = self.negatives.clash([*batch, *some])
                taken = list(range(len(batch)))
                for place, row in enumerate(some, len(batch)):
                    fits = (
                        len(taken) < self.batch_size
                        and not clash[place, np.array(taken, int)].any()
                    )
                    taken += [place] if fits else []
                    (batch if fits else later).append(row)
            if len(batch) < least:
                problem = (
                    f"no batch of {self.batch_size} rows: the labels keep all but {len(batch)}"
                    " apart"
                )
                remedy = (
                    "take capgrade.exact(labels, measure) or unknown='estimate', raise"
                    " accepted_below, or lower the size"
                )
                raise InputError(problem, file=self.negatives.rule.labels.file, remedy=remedy)
            least = 0
            waiting.extendleft(reversed(later))
            yield batch

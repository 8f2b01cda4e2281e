"""For sentence-transformers: an evaluator by graded labels, and batches without false negatives."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from capgrade.evaluation import evaluate
from capgrade.labels import Labels
from capgrade.labels.negatives import Negatives
from capgrade.metrics.catalogue import is_graded
from capgrade.metrics.formats import DIRECTIONS
from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import needs

with needs("encoder"):
    import torch
    from sentence_transformers.base.evaluation import SentenceEvaluator
    from sentence_transformers.base.sampler import DefaultBatchSampler

_METRICS = ("ndcg@10", "kendall_tau_b", "asp")


class GradedEvaluator(SentenceEvaluator):
    """Graded metrics of both directions, as the trainers of sentence-transformers call it:
    {"i2t_ndcg@10": ...}.

    `labels` know every pair, as dense ones or `Labels.exact` do. `images` has what the model
    encodes for each image row: a picture or its path for a multimodal model, or a text that stands
    for the image. Captions are the labels' own texts, unless `captions` has others, in their order.
    `metrics` are those of `capgrade.evaluate`; `ndcg@10`, Kendall's tau-b and ASP unless given.
    Ties of a model's scores count as the mean over their orders. The primary metric, by which
    trainers choose a checkpoint, is the first one from text to image. Raises InputError for metrics
    that are not known, labels with unknown pairs, and numbers of images or captions that are not
    the labels'.

    >>> from sentence_transformers import SentenceTransformer
    >>> labels = Labels.load("dataset").exact("rouge_l")
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


def accepted_apart(negatives: Negatives) -> Callable[..., ApartBatches]:
    """The `batch_sampler` of training arguments, for a dataset of the columns of `negatives`, in
    their order.

    Of several processes each has batches of its own, and what a loss gathers from the others is not
    kept apart. Set `dataloader_drop_last` for them: accelerate fills the last batch with rows of
    the first ones, which may be accepted.

    >>> labels = Labels.load("dataset").exact("rouge_l")
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
                    "take labels.exact(measure) or unknown='estimate', raise accepted_below, or"
                    " lower the size"
                )
                raise InputError(problem, file=self.negatives.rule.labels.file, remedy=remedy)
            least = 0
            waiting.extendleft(reversed(later))
            yield batch

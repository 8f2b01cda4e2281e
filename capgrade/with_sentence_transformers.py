"""For sentence-transformers: an evaluator by graded labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from capgrade.labels import Labels
from capgrade.metrics.evaluation import DIRECTIONS, evaluate, is_graded
from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import needs

with needs("encoder"):
    from sentence_transformers.base.evaluation import SentenceEvaluator

METRICS = ("ndcg@10", "kendall_tau_b", "asp")


class GradedEvaluator(SentenceEvaluator):
    """Graded metrics of both directions, as the trainers of sentence-transformers call it: {"i2t_ndcg@10": ...}.

    `labels` know every pair, as dense ones or `Labels.exact` do. `images` has what the model encodes for each image
    row: a picture or its path for a multimodal model, or a text that stands for the image. Captions are the labels' own
    texts, unless `captions` has others, in their order. `metrics` are those of `capgrade.evaluate`; `ndcg@10`,
    Kendall's tau-b and ASP unless given. Ties of a model's scores count as the mean over their orders. The primary
    metric, by which trainers choose a checkpoint, is the first one from text to image. Raises InputError for metrics
    that are not known, labels with unknown pairs, and numbers of images or captions that are not the labels'.

    >>> from sentence_transformers import SentenceTransformer
    >>> labels = Labels.load("dataset").exact("rouge_l")
    >>> images = [labels.captions.texts[row] for row in range(0, labels.n_captions, 5)]  # texts, in place of pictures
    >>> evaluator = GradedEvaluator(labels, images, metrics=["ndcg@10"])
    >>> evaluator.primary_metric
    't2i_ndcg@10'
    """

    def __init__(
        self, labels: Labels, images: Sequence[Any], *, captions: Sequence[str] | None = None,
        measure: str | None = None, metrics: Sequence[str] = METRICS, batch_size: int = 32, name: str = "",
    ) -> None:  # fmt: skip
        super().__init__()
        self.labels, self.measure, self.metrics = labels, labels.chosen(measure), list(metrics)
        self.images, self.captions = list(images), list(labels.texts if captions is None else captions)
        self.batch_size, self.name = batch_size, name
        for what, given, count in (
            ("images", self.images, len(labels.image_ids)), ("captions", self.captions, labels.n_captions)
        ):  # fmt: skip
            if len(given) != count:
                raise InputError(f"{len(given)} {what} for labels of {count}", remedy="give one for each row")
        if not self.metrics or not all(map(is_graded, self.metrics)):
            raise InputError(f"metrics {self.metrics}", remedy=f"give graded ones, such as {', '.join(METRICS)}")
        self.primary_metric = f"t2i_{self.metrics[0]}"

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """The mean of each metric and direction, which also go into the card of `model`, a SentenceTransformer."""
        images, captions = (
            model.encode(some, batch_size=self.batch_size, show_progress_bar=False, convert_to_tensor=True)
            for some in (self.images, self.captions)
        )
        scores = model.similarity(images, captions).float().cpu()
        found = evaluate(scores, self.labels, self.metrics, measure=self.measure, intervals=None)
        means = {f"{way}_{metric}": value for way in DIRECTIONS for metric, value in found.scored[way].mean.items()}
        named = self.prefix_name_to_metrics(means, self.name)
        self.store_metrics_in_model_card_data(model, named, epoch, steps)
        return named

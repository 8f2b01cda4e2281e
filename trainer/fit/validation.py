"""Validation of a model on a split: recall, and graded metrics where relevance is known."""

from collections.abc import Collection

import numpy as np
import torch

from capgrade.evaluation import RECALL, SUMMED
from capgrade.metrics.base import Queries
from capgrade.metrics.catalogue import find_metric, reduce_values, score_all
from capgrade.trainer.data.pairs import Pairs
from capgrade.trainer.models.base import RetrievalModel
from capgrade.trainer.search.encode import compute_scores, encode_split

# The metrics of each figure: one is a mean over both directions, several are added up in percent.
_GRADED = {"ndcg": ("ndcg@25",), "asp": ("asp",), "kendall_tau_b": ("kendall_tau_b",)}
# Other figures that `train.best_by` may name.
_BY_NAME = {
    "ndcg_exp": ("ndcg_exp@25",),
    **{name: tuple(f"{name}@{k}" for k in SUMMED) for name in ("ncs", "ncs_ordered")},
}


def validate(
    model: RetrievalModel,
    pairs: Pairs | None,
    relevance: np.ndarray | None,
    fold: int | None = None,
    best_by: Collection[str | None] = (),
) -> dict[str, float]:
    """rsum (0 to 600), and with relevance [n_images, n_captions] the means over both directions of
    NDCG@25, ASP and tau-b, and what `best_by` names: ndcg_exp (a mean), ncs and ncs_ordered (0 to
    600). Empty without a split. The model's mode is kept.

    With `fold`, the mean over folds of so many images in their order; pairs across folds are not
    scored.
    """
    if pairs is None:
        return {}
    figures = {"rsum": RECALL}
    if relevance is not None:
        figures |= _GRADED
        figures |= {name: _BY_NAME[name] for name in _BY_NAME if name in best_by}
    metrics = [find_metric(name) for names in figures.values() for name in names]
    was_training, folds = model.training, []
    images, captions = encode_split(model.eval(), pairs)
    size = fold or pairs.captions.n_images
    for first in range(0, pairs.captions.n_images, size):
        owner = pairs.captions.owner - first
        columns = np.flatnonzero((owner >= 0) & (owner < size))
        rows, owner = np.arange(size), owner[columns]
        scores = compute_scores(
            model, images[first : first + size], captions[torch.from_numpy(columns)]
        )
        by_image, by_caption = {}, {}
        if relevance is not None:
            by_image[""] = relevance[first : first + size, columns]
            by_caption[""] = by_image[""].T
        means = []
        for queries in (
            Queries(scores, rows, owner, by_image, clip=True),
            Queries(scores.T, owner, rows, by_caption, clip=True),
        ):
            by_metric = score_all(queries, metrics).items()
            means.append({name: reduce_values(name, values) for name, values in by_metric})
        values = {}
        for figure, names in figures.items():
            parts = [direction[name] for direction in means for name in names]
            is_sum = len(names) > 1
            values[figure] = 100 * float(np.sum(parts)) if is_sum else float(np.mean(parts))
        folds.append(values)
    model.train(was_training)
    return {figure: float(np.mean([values[figure] for values in folds])) for figure in figures}

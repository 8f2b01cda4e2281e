"""Validation of a model on a split: recall, and graded metrics where relevance is known."""

from collections.abc import Collection

import numpy as np
import torch

from capgrade.evaluation import RECALL, SUMMED, evaluate
from capgrade.trainer.data.pairs import Pairs
from capgrade.trainer.models.base import RetrievalModel
from capgrade.trainer.search.encode import compute_scores, encode_split

_GRADED = ("ndcg@25", "asp", "kendall_tau_b")
# Other metrics that `train.best_by` may name.
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
    named = [] if relevance is None else [name for name in _BY_NAME if name in best_by]
    graded = () if relevance is None else _GRADED
    metrics = [*RECALL, *graded, *(metric for name in named for metric in _BY_NAME[name])]
    was_training, folds = model.training, []
    images, captions = encode_split(model.eval(), pairs)
    owner, size = pairs.captions.owner, fold or pairs.captions.n_images
    for first in range(0, pairs.captions.n_images, size):
        columns = np.flatnonzero((owner >= first) & (owner < first + size))
        matrix = compute_scores(
            model, images[first : first + size], captions[torch.from_numpy(columns)]
        )
        labels = None if relevance is None else relevance[first : first + size, columns]
        evaluation = evaluate(matrix, labels, metrics, owner=owner[columns] - first, intervals=None)
        directions = [scored.mean for scored in evaluation.scored.values()]
        values = {"rsum": evaluation.rsum}
        for metric in graded:
            mean = np.mean([direction[metric] for direction in directions])
            values[metric.split("@")[0]] = float(mean)
        for name in named:
            parts = [direction[metric] for direction in directions for metric in _BY_NAME[name]]
            is_sum = len(_BY_NAME[name]) > 1
            values[name] = 100 * float(np.sum(parts)) if is_sum else float(np.mean(parts))
        folds.append(values)
    model.train(was_training)
    return {name: float(np.mean([values[name] for values in folds])) for name in folds[0]}

"""How good a model is on a split: recall, and graded metrics where relevance is known."""

from collections.abc import Collection

import numpy as np
import torch

from capgrade.evaluation import RECALL, SUMMED, evaluate
from capgrade.trainer.data.pairs import Pairs
from capgrade.trainer.models.base import RetrievalModel
from capgrade.trainer.search.encode import compute_scores, encode_split

_GRADED = ("ndcg@25", "asp", "kendall_tau_b")
# What `train.best_by` may ask for beside these.
_ASKED = {
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
    """rsum (0 to 600), and with relevance [n_images, n_captions] the means of both directions of
    NDCG@25, ASP and tau-b, and what `best_by` names: ndcg_exp, also a mean, and ncs or ncs_ordered,
    0 to 600 as rsum. Nothing without a split. The model is left in the mode it was in.

    With `fold` the mean over folds of so many images, in their order; pairs across folds are never
    scored.
    """
    if pairs is None:
        return {}
    asked = [] if relevance is None else [name for name in _ASKED if name in best_by]
    graded = () if relevance is None else _GRADED
    names = [*RECALL, *graded, *(name for one in asked for name in _ASKED[one])]
    training, found = model.training, []
    images, captions = encode_split(model.eval(), pairs)
    owner, size = pairs.captions.owner, fold or pairs.captions.n_images
    for first in range(0, pairs.captions.n_images, size):
        columns = np.flatnonzero((owner >= first) & (owner < first + size))
        matrix = compute_scores(
            model, images[first : first + size], captions[torch.from_numpy(columns)]
        )
        known = None if relevance is None else relevance[first : first + size, columns]
        evaluation = evaluate(matrix, known, names, owner=owner[columns] - first, intervals=None)
        directions = [scored.mean for scored in evaluation.scored.values()]
        sums = {"rsum": evaluation.rsum}
        sums |= {
            name.split("@")[0]: float(np.mean([direction[name] for direction in directions]))
            for name in graded
        }
        for one in asked:
            values = [direction[name] for direction in directions for name in _ASKED[one]]
            sums[one] = (
                float(np.mean(values)) if len(_ASKED[one]) == 1 else 100 * float(np.sum(values))
            )
        found.append(sums)
    model.train(training)
    return {name: float(np.mean([sums[name] for sums in found])) for name in found[0]}

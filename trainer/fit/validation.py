"""How good a model is on a split: recall, and graded metrics where relevance is known."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import torch

from capgrade.metrics.evaluation import RECALL, SUMMED, Evaluation, evaluate
from capgrade.schemas.captions import Captions
from capgrade.trainer.data.pairs import Pairs
from capgrade.trainer.data.relevance import learnt_from
from capgrade.trainer.models.base import RetrievalModel
from capgrade.trainer.search.encode import SIZE, encode_captions, encode_images, scores

GRADED = ("ndcg@25", "asp", "kendall_tau_b")
# What `train.best_by` may ask for beside these.
ASKED = {
    "ndcg_exp": ("ndcg_exp@25",),
    **{name: tuple(f"{name}@{k}" for k in SUMMED) for name in ("ncs", "ncs_ordered")},
}


def validate(
    model: RetrievalModel, pairs: Pairs | None, relevance: np.ndarray | None, fold: int | None = None,
    best_by: Collection[str | None] = (),
) -> dict[str, float]:  # fmt: skip
    """rsum (0 to 600), and with relevance [n_images, n_captions] the means of both directions of NDCG@25, ASP and
    tau-b, and what `best_by` names: ndcg_exp, also a mean, and ncs or ncs_ordered, 0 to 600 as rsum. Nothing without a
    split. The model is left in the mode it was in.

    With `fold` the mean over folds of so many images, in their order; pairs across folds are never scored.
    """
    if pairs is None:
        return {}
    asked = [] if relevance is None else [name for name in ASKED if name in best_by]
    graded = () if relevance is None else GRADED
    names = [*RECALL, *graded, *(name for one in asked for name in ASKED[one])]
    training = model.training
    folds = list(_folds(model.eval(), pairs, relevance, names, fold or pairs.captions.n_images))
    model.train(training)
    sums = [_summed(one, graded, asked) for one in folds]
    return {name: float(np.mean([one[name] for one in sums])) for name in sums[0]}


def first_images(captions: Captions, images: int | None) -> Captions:
    """The captions of the first `images` images, of all where there are no more or it is None: the authors' loaders
    validate on 1,000 of COCO's 5,000."""
    rows = np.arange(captions.n_captions) if images is None else np.flatnonzero(captions.owner < images)
    return learnt_from(captions, rows)


def _folds(
    model: RetrievalModel, pairs: Pairs, relevance: np.ndarray | None, names: Sequence[str], size: int
) -> Iterator[Evaluation]:
    images = encode_images(model, pairs.image_batches(SIZE))
    captions = encode_captions(model, pairs.caption_batches(SIZE))
    owner = pairs.captions.owner
    for first in range(0, pairs.captions.n_images, size):
        columns = np.flatnonzero((owner >= first) & (owner < first + size))
        matrix = scores(model, images[first : first + size], captions[torch.from_numpy(columns)])
        known = None if relevance is None else relevance[first : first + size, columns]
        yield evaluate(matrix, known, names, owner=owner[columns] - first, intervals=None)


def _summed(evaluation: Evaluation, graded: tuple[str, ...], asked: Sequence[str]) -> dict[str, float]:
    ways = [scored.mean for scored in evaluation.scored.values()]
    means = {name.split("@")[0]: float(np.mean([way[name] for way in ways])) for name in graded}
    for one in asked:
        values = [way[name] for way in ways for name in ASKED[one]]
        means[one] = float(np.mean(values)) if len(ASKED[one]) == 1 else 100 * float(np.sum(values))
    return {"rsum": evaluation.rsum, **means}

"""How good a model is on a split: recall, and graded metrics where relevance is known."""

from __future__ import annotations

import numpy as np

from capgrade.trainer.data.pairs import Pairs
from capgrade.trainer.evaluation.evaluate import Settings, score
from capgrade.trainer.evaluation.task import Task
from capgrade.trainer.models.base import RetrievalModel
from capgrade.trainer.search.encode import similarity

RECALL = ("recall@1", "recall@5", "recall@10")
GRADED = ("ndcg@25", "asp", "kendall_tau_b")


def validate(model: RetrievalModel, pairs: Pairs | None, relevance: np.ndarray | None) -> dict[str, float]:
    """rsum (0 to 600), and with relevance [n_images, n_captions] the means of both directions of NDCG@25, ASP and
    tau-b; nothing without a split. The model is left in the mode it was in.
    """
    if pairs is None:
        return {}
    training = model.training
    scores = similarity(model.eval(), pairs)
    model.train(training)
    known = {} if relevance is None else {"relevance": relevance}
    names = RECALL if relevance is None else (*RECALL, *GRADED)
    found = score(Task(scores, pairs.captions.owner, known), Settings(samples=0, metrics=names))
    ways = [scored.summary() for scored in found.scored.values()]
    graded = {name.split("@")[0]: float(np.mean([way[name] for way in ways])) for name in names if name in GRADED}
    return {"rsum": found.sums["rsum"], **graded}

"""Metrics of retrieval by graded relevance, of numpy arrays or torch tensors on any device.

`scores` [Q, N] are similarities of Q queries (rows) and N candidates (columns); `relevance` [Q, N]
is graded; `own` is bool [Q, N], or `Positives`, which hold absent ones too and need no matrix.
Values come back as float64 [Q]: numpy for numpy, a tensor on the scores' device for tensors. Tied
scores count as every order of them, each as likely (`ties="expected"`); "reference" takes the later
index first. NaN, and shapes that do not fit, are InputError. Definitions beside other packages:
docs/metrics.md.
"""

from capgrade.metrics.asp import asp
from capgrade.metrics.eccv import human_lists
from capgrade.metrics.gains import ncs, ndcg
from capgrade.metrics.judged_sample import change_places, estimate
from capgrade.metrics.kendall import coherent_score, kendall_tau
from capgrade.metrics.pmrp import coco_codes, pmrp
from capgrade.metrics.pools import draw_pool
from capgrade.metrics.positives import Positives
from capgrade.metrics.recall import first_rank, map_at_r, r_precision, recall, recall_share
from capgrade.metrics.semantic_map import Collapse, collapse, semantic_map
from capgrade.metrics.semantic_recall import semantic_recall
from capgrade.schemas.pairs import Pairs

__all__ = [
    "Collapse",
    "Pairs",
    "Positives",
    "asp",
    "change_places",
    "coco_codes",
    "coherent_score",
    "collapse",
    "draw_pool",
    "estimate",
    "first_rank",
    "human_lists",
    "kendall_tau",
    "map_at_r",
    "ncs",
    "ndcg",
    "pmrp",
    "r_precision",
    "recall",
    "recall_share",
    "semantic_map",
    "semantic_recall",
]

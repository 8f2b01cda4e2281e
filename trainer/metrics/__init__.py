"""Retrieval metrics over plain arrays: queries as rows, candidates as columns, one float64 value a query."""

from trainer.metrics.asp import asp, asp_average, asp_ceiling
from trainer.metrics.base import Positives, Queries, own_positives
from trainer.metrics.catalogue import CATALOGUE, Metric, asp_a, extension_name, metric, score_all
from trainer.metrics.coherence import coherent_score
from trainer.metrics.eccv import human_lists, map_at_r, r_precision
from trainer.metrics.kendall import kendall_tau
from trainer.metrics.mined import MinedCurve, mined_precision, mined_precision_classes
from trainer.metrics.ncs import ncs
from trainer.metrics.ndcg import ndcg, zero_ideal
from trainer.metrics.pmrp import coco_codes, pmrp
from trainer.metrics.recall import first_rank, median_rank, recall, recall_share
from trainer.metrics.semantic_map import Collapse, collapse, semantic_map
from trainer.metrics.semantic_recall import (
    extension_images,
    extension_set,
    semantic_recall,
    semantic_recall_authors,
)
from trainer.metrics.uncertainty import Interval, PairedTest, bootstrap, paired_test

__all__ = [
    "CATALOGUE",
    "Collapse",
    "Interval",
    "Metric",
    "MinedCurve",
    "PairedTest",
    "Positives",
    "Queries",
    "asp",
    "asp_a",
    "asp_average",
    "asp_ceiling",
    "bootstrap",
    "coco_codes",
    "coherent_score",
    "collapse",
    "extension_images",
    "extension_name",
    "extension_set",
    "first_rank",
    "human_lists",
    "kendall_tau",
    "map_at_r",
    "median_rank",
    "metric",
    "mined_precision",
    "mined_precision_classes",
    "ncs",
    "ndcg",
    "own_positives",
    "paired_test",
    "pmrp",
    "r_precision",
    "recall",
    "recall_share",
    "score_all",
    "semantic_map",
    "semantic_recall",
    "semantic_recall_authors",
    "zero_ideal",
]

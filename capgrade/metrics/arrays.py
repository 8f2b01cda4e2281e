"""Retrieval metrics over plain arrays: queries as rows, candidates as columns, one float64 value per query."""

from capgrade.metrics.asp import asp, asp_average, asp_ceiling
from capgrade.metrics.base import Positives, Queries, own_positives
from capgrade.metrics.catalogue import CATALOGUE, Metric, asp_a, extension_name, metric, score_all
from capgrade.metrics.coherence import coherent_score
from capgrade.metrics.eccv import human_lists, map_at_r, r_precision
from capgrade.metrics.kendall import kendall_tau
from capgrade.metrics.mined import MinedCurve, mined_precision, mined_precision_classes
from capgrade.metrics.ncs import ncs
from capgrade.metrics.ndcg import ndcg, zero_ideal
from capgrade.metrics.pmrp import coco_codes, pmrp
from capgrade.metrics.recall import first_rank, median_rank, recall, recall_share
from capgrade.metrics.semantic_map import Collapse, collapse, semantic_map
from capgrade.metrics.semantic_recall import (
    extension_images,
    extension_set,
    semantic_recall,
    semantic_recall_authors,
)
from capgrade.metrics.uncertainty import Interval, PairedTest, bootstrap, paired_test

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

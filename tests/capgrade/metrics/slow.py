"""Slow, obvious references: every metric on one strict order, and its mean over all orders that
ties allow."""

import itertools
import math

import numpy as np


def orders(scores):
    """Every order of the candidates, best first, in which no score comes after a smaller one."""
    falling = sorted(range(len(scores)), key=lambda item: -scores[item])
    groups = [
        itertools.permutations(some)
        for _, some in itertools.groupby(falling, key=lambda item: scores[item])
    ]
    return [list(itertools.chain(*choice)) for choice in itertools.product(*groups)]


def recall(order, positives, k):
    return float(bool(set(order[:k]) & set(positives)))


def share(order, positives, k):
    return len(set(order[:k]) & set(positives)) / len(positives)


def first(order, positives):
    return min(order.index(item) for item in positives) + 1


def average_precision(order, positives):
    depth, total = len(positives), 0.0
    for r in range(1, min(depth, len(order)) + 1):
        if order[r - 1] in positives:
            total += len(set(order[:r]) & set(positives)) / r
    return total / depth


def dcg(gains, k):
    return sum(gain / math.log2(p + 2) for p, gain in enumerate(gains[:k]))


def ndcg(order, relevance, k, exponential=False):
    gains = [2.0 ** float(r) - 1 if exponential else float(r) for r in relevance]
    ideal = dcg(sorted(gains, reverse=True), k)
    return dcg([gains[item] for item in order], k) / ideal if ideal else 0.0


def ncs(order, relevance, k, removed=()):
    order = [item for item in order if item not in removed]
    ideal = sum(sorted((relevance[item] for item in order), reverse=True)[:k])
    return sum(relevance[item] for item in order[:k]) / ideal if ideal else 0.0


def ncs_eq5(order, labelled, relevance, k):
    ideal = labelled[:k]
    total = sum(relevance[item] for item in ideal)
    return sum(relevance[item] for item in order[:k] if item in ideal) / total if total else 0.0


def ncs_authors(order, relevance, k, removed):
    """metric.py:NCS: means, and 1e-10 beside the best one."""
    order = [item for item in order if item not in removed]
    ideal = sorted((relevance[item] for item in order), reverse=True)[:k]
    return (
        np.mean([relevance[item] for item in order[:k]]) / (np.mean(ideal) + 1e-10)
        if order
        else 0.0
    )


def ncs_ordered(order, relevance, k):
    """SAM's `softer_order`: place p weighs log2(k - p + 2)."""
    weights = [math.log2(k - p + 1) for p in range(min(k, len(order)))]
    ideal = sum(w * r for w, r in zip(weights, sorted(relevance, reverse=True), strict=False))
    total = sum(w * relevance[item] for w, item in zip(weights, order, strict=False))
    return total / ideal if ideal else 0.0


def semantic_recall(order, labelled, relevance, k, m, soft, removed=()):
    order, labelled = ([item for item in one if item not in removed] for one in (order, labelled))
    weight = {item: float(relevance[item]) if soft else 1.0 for item in labelled[:m]}
    total = sum(weight.values())
    return sum(weight.get(item, 0.0) for item in order[:k]) / total if total else 0.0


def asp(order, labelled):
    n = len(order)
    ranks = [(order.index(item) + 1, labelled.index(item) + 1) for item in range(n)]
    return sum(min(pair) / max(pair) for pair in ranks) / n


def r_precision_of_classes(order, query, candidates, zeta):
    """Hits in the first R over R among the annotated candidates; NaN where none matches."""
    order = [item for item in order if any(candidates[item])]
    match = [
        sum(a != b for a, b in zip(query, candidates[item], strict=True)) <= zeta for item in order
    ]
    return sum(match[: sum(match)]) / sum(match) if any(match) else math.nan


def tau_a(scores, relevance):
    signs = [
        np.sign(scores[i] - scores[j]) * np.sign(relevance[i] - relevance[j])
        for i, j in itertools.combinations(range(len(scores)), 2)
    ]
    return sum(signs) / len(signs)

"""Every loss as its paper writes it: plain loops over the pairs of a batch, in both directions.
Nothing here is taken from `capgrade/losses`.

S[i][j] is the similarity of image i and caption j, R[i][j] the relevance of caption j to image i,
K[i][j] whether that is known, W[i][j] how many pairs it stands for. A hinge is (weight, cost): a
loss of hinges is the sum of weight [cost]+, and which are active can be counted.
"""

import math
from typing import NamedTuple

import numpy as np


class Query(NamedTuple):
    """One pair in one direction: its own place among the candidates, and what is said of each
    candidate."""

    at: int
    S: np.ndarray
    R: np.ndarray
    K: np.ndarray
    own: np.ndarray
    W: np.ndarray

    @property
    def known(self):
        """Places of candidates whose relevance is known, or that are the own one."""
        return [j for j in range(len(self.S)) if self.K[j] or j == self.at]


def matrices(batch):
    """S, R, K, own, W of a ScoredBatch."""
    every = np.ones(tuple(batch.own.shape))
    relevance = every if batch.relevance is None else batch.relevance.double().numpy()
    known = every > 0 if batch.known is None else batch.known.numpy()
    weights = every if batch.weights is None else batch.weights.numpy()
    return batch.scores.double().numpy(), relevance, known, batch.own.numpy(), weights


def pairs(batch):
    """(image, caption) of each pair."""
    return list(zip(*(side.tolist() for side in batch.at), strict=True))


def directions(batch):
    """The queries of images over captions, then of captions over images."""
    given = matrices(batch)
    images = [Query(c, *(matrix[i] for matrix in given)) for i, c in pairs(batch)]
    return images, [Query(i, *(matrix[:, c] for matrix in given)) for i, c in pairs(batch)]


def queries(batch):
    return [query for way in directions(batch) for query in way]


def total(hinges):
    return sum(weight * max(0.0, cost) for weight, cost in hinges)


def picked(candidates, score, negatives):
    """The candidate that a strategy takes: hard is the most similar, soft the least."""
    return (max if negatives == "hard" else min)(candidates, key=score)


def triplet(batch, margin=0.2, negatives="hard", spare_own=False):
    """VSE++, eq. 5 (sum) and 6 (hardest)."""
    for q in queries(batch):
        others = [j for j in range(len(q.S)) if (not q.own[j] if spare_own else j != q.at)]
        if others and negatives != "sum":
            others = [picked(others, q.S.__getitem__, negatives)]
        yield from ((1, margin + q.S[j] - q.S[q.at]) for j in others)


def sam(batch, tau=10.0, negatives="hard"):
    """Biten et al., eq. 7. G_p: the captions of image p, all positive by the ground truth (figure
    2). alpha_i2t = (phi(G_p, c_p) - phi(G_p, c_m)) / tau and alpha_t2i = (phi(G_p, c_p) - phi(G_p,
    c_k)) / tau, c_k the caption of the negative image i_k: its first one of known relevance."""
    S, R, K, own, _ = matrices(batch)
    for p, c in pairs(batch):
        captions = [(j, S[p, j]) for j in range(S.shape[1]) if not own[p, j] and K[p, j]]
        images = [(j, S[k, c]) for k, j in pairs(batch) if not own[k, c] and K[p, j]]
        for some in (captions, images):
            if some and K[p, c]:
                j, similarity = picked(some, lambda one: one[1], negatives)
                yield 1, (R[p, c] - R[p, j]) / tau + similarity - S[p, c]


def sam_authors(batch, tau=3.0, negatives="soft"):
    """ContrastiveLossMetric.forward of AndresPMD/semantic_adaptive_margin, model_CVSE.py lines 709
    to 770: the second lowest (soft: highest) cost of each row in both directions, with the margin
    of that column's row, at most 1."""
    S, R, *_ = matrices(batch)
    own = np.diag(S)
    costs, sign = (S - own[:, None], S - own[None, :]), 1 if negatives == "hard" else -1
    second = [
        [sorted(range(len(S)), key=lambda j: sign * cost[i, j])[1] for i in range(len(S))]
        for cost in costs
    ]
    for cost, chosen, crossed in zip(costs, second, second[::-1], strict=True):
        yield from (
            (1, cost[i, j] + min(1, (R[j, j] - R[j, crossed[j]]) / tau))
            for i, j in enumerate(chosen)
        )


def triplet_sn(batch, margin=0.2, gamma=50.0):
    """BCLS, eq. 14 and 15, with r_ij < r_ii for r_ij < 1: the paper's labels have r_ii = 1."""
    for q in queries(batch):
        edge = q.R[q.at] - 1e-6 * max(1, abs(q.R[q.at]))
        some = [q.S[j] for j in q.known if j != q.at and q.R[j] < edge]
        if some:
            soft = (
                max(some) + math.log(sum(math.exp(gamma * (s - max(some))) for s in some)) / gamma
            )
            yield 1, soft - q.S[q.at] + margin


def kendall(batch, alpha=0.2):
    """BCLS, eq. 5 and 17."""
    for q in queries(batch):
        known = [j for j in q.known if q.K[j]]
        yield from ((1, q.S[k] - q.S[j]) for j in known for k in known if q.R[j] > q.R[k] + alpha)


def kendall_windows(batch, alpha=0.2, beta=0.1):
    """BCLS, eq. 19 and 20: of each window the furthest positive and the closest negative, over M
    windows."""
    windows = round((2 - alpha) / beta)
    for q in queries(batch):
        some = [(q.R[j], q.S[j]) for j in q.known if q.K[j]]
        for low in (-1 + m * beta for m in range(1, windows + 1)):
            positive = [s for r, s in some if r >= low + alpha - 1e-6]
            negative = [s for r, s in some if r <= low + 1e-6]
            if positive and negative:
                yield 1 / windows, max(negative) - min(positive)


def ladder(batch, thresholds=(0.63,), margins=(0.2, 0.01), weights=(1.0, 0.25)):
    """Zhou et al. 2020, eq. 6 and 7: the hardest triplet of each rung."""
    for q in queries(batch):
        for edge, margin, weight in zip((math.inf, *thresholds), margins, weights, strict=True):
            above = [q.S[j] for j in q.known if j == q.at or q.R[j] >= edge]
            below = [q.S[j] for j in q.known if j != q.at and q.R[j] < edge]
            if below:
                yield weight, margin + max(below) - min(above)


def soft_rank(values, at, among, temperature, weights=None):
    """DAA, eq. 9, and Brown et al., eq. 5: 1, and for each other candidate how far it is above this
    one, as often as it stands for."""
    others = [(a, 1 if weights is None else weights[a]) for a in among if a != at]
    return 1 + sum(
        w / (1 + math.exp(-max(-50, min(50, (values[a] - values[at]) / temperature))))
        for a, w in others
    )


def daa(batch, temperature=0.05):
    """Li et al. 2022, eq. 8 to 10: 1 - ASP of image queries and of caption queries, ASP the mean of
    min / max of two soft ranks; a known candidate counts as often as it stands for."""
    loss = 0.0
    for way in directions(batch):
        shares = []
        for q in way:
            among = np.flatnonzero(q.K)
            for j in among:
                ranks = [soft_rank(values, j, among, temperature, q.W) for values in (q.S, q.R)]
                shares.append((q.W[j], min(ranks) / max(ranks)))
        loss += 1 - sum(count * share for count, share in shares) / sum(
            count for count, _ in shares
        )
    return loss


def daa_authors(batch, temperature=0.05):
    """Loss.DAA of model.py, lines 469 to 492, where the first operand of the difference is read by
    column."""
    S, R, *_ = matrices(batch)

    def ranks(x):
        # query, other, item
        difference = np.clip((x.T[:, :, None] - x[:, None, :]) / temperature, -50, 50)
        return 1 + (1 / (1 + np.exp(-difference)) * ~np.eye(len(x), dtype=bool)).sum(axis=1)

    both = [[ranks(x) for x in way] for way in ((S, R), (S.T, R.T))]
    return sum(1 - (np.minimum(*way) / np.maximum(*way)).mean() for way in both)


def smooth_ap(batch, temperature=0.01):
    """Brown et al. 2020, eq. 6, the own items positive; of image queries and of caption queries."""
    loss = 0.0
    for way in directions(batch):
        means = []
        for q in way:
            positives, every = np.flatnonzero(q.own), range(len(q.S))
            ranks = [
                [soft_rank(q.S, c, among, temperature) for among in (positives, every)]
                for c in positives
            ]
            means.append(np.mean([few / whole for few, whole in ranks]))
        loss += 1 - np.mean(means)
    return loss


def info_nce(batch, temperature=0.05, targets="own", softness=0.1, mask_above=None):
    """CLIP's symmetric cross-entropy; soft targets are softmax(r / softness) over what is known;
    what is more relevant than mask_above is no negative."""
    loss = []
    for q in queries(batch):
        some = range(len(q.S)) if targets == "own" else q.known
        if mask_above is not None:
            alike = [j for j in q.known if q.R[j] > mask_above]
            some = [j for j in some if j == q.at or j not in alike]
        log = math.log(sum(math.exp(q.S[j] / temperature) for j in some))
        soft = {j: math.exp((q.R[j] - q.R[q.at]) / softness) for j in some}
        wanted = {
            j: float(j == q.at) if targets == "own" else soft[j] / sum(soft.values()) for j in some
        }
        loss.append(sum(wanted[j] * (log - q.S[j] / temperature) for j in some))
    return np.mean(loss)


def sigmoid(batch, temperature=0.1, bias=-10.0, targets="relevance", low=0.0, high=1.0):
    """SigLIP's loss, section 3.2, with the label z in -1, 1 written as y in 0, 1, and y anything
    between; a known cell counts as often as it stands for."""
    S, R, K, own, W = matrices(batch)
    loss = 0.0
    for i, j in np.ndindex(S.shape):
        y = float(own[i, j])
        if targets == "relevance" and not own[i, j]:
            y = min(1.0, max(0.0, (R[i, j] - low) / (high - low)))
        x = S[i, j] / temperature + bias
        weight = 1 if targets == "own" or own[i, j] else W[i, j] * K[i, j]
        loss += weight * (y * math.log1p(math.exp(-x)) + (1 - y) * math.log1p(math.exp(x)))
    return loss / len(S)

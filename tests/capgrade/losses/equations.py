"""Every loss as its paper writes it: plain loops over images i, captions j and the sets of a batch, both directions
spelt out. Nothing here is taken from `capgrade/losses`.

S[i][j] is the similarity of image i and caption j, R[i][j] the relevance of caption j to image i, and
known[i][j] says whether it is known; pair i is image i and caption i.
"""

from __future__ import annotations

import math

import numpy as np


def lists(batch):
    known = np.ones(tuple(batch.own.shape), bool) if batch.known is None else batch.known.numpy()
    relevance = batch.scores if batch.relevance is None else batch.relevance
    return batch.scores.tolist(), relevance.tolist(), known.tolist(), batch.own.tolist()


def plus(x):
    return max(0.0, x)


def picked(candidates, score, negatives):
    """The candidate that a strategy takes: hard is the most similar, soft the least."""
    return (max if negatives == "hard" else min)(candidates, key=score)


def triplet(batch, margin=0.2, negatives="hard", spare_own=False):
    """VSE++, eq. 5 (sum) and 6 (hardest)."""
    S, _, _, own = lists(batch)
    total = 0.0
    for i in range(len(S)):
        others = [j for j in range(len(S)) if (not own[i][j] if spare_own else j != i)]
        captions = {j: plus(margin + S[i][j] - S[i][i]) for j in others}  # of image i
        images = {j: plus(margin + S[j][i] - S[i][i]) for j in others}  # of caption i
        if negatives == "sum":
            total += sum(captions.values()) + sum(images.values())
        elif others:
            total += captions[picked(others, lambda j, i=i: S[i][j], negatives)]
            total += images[picked(others, lambda j, i=i: S[j][i], negatives)]
    return total


def sam(batch, tau=10.0, negatives="hard"):
    """Biten et al., eq. 7. G_p: the captions of image p, all positive by the ground truth (figure 2). alpha_i2t =
    (phi(G_p, c_p) - phi(G_p, c_m)) / tau and alpha_t2i = (phi(G_p, c_p) - phi(G_p, c_k)) / tau, c_k the caption of the
    negative image i_k."""
    S, R, known, own = lists(batch)
    pairs = range(len(S))

    def phi(G, c):
        return R[G][c]

    total = 0.0
    for p in pairs:
        others = [n for n in pairs if not own[p][n] and known[p][n]]  # phi(G_p, c_n) must be known
        if not others or not known[p][p]:
            continue
        m = picked(others, lambda n, p=p: S[p][n], negatives)  # a negative caption of image p
        k = picked(others, lambda n, p=p: S[n][p], negatives)  # a negative image of caption p
        alpha_i2t = (phi(p, p) - phi(p, m)) / tau
        alpha_t2i = (phi(p, p) - phi(p, k)) / tau
        total += plus(alpha_i2t + S[p][m] - S[p][p]) + plus(alpha_t2i + S[k][p] - S[p][p])
    return total


def sam_authors(batch, tau=3.0, negatives="soft"):
    """ContrastiveLossMetric.forward of AndresPMD/semantic_adaptive_margin, model_CVSE.py lines 709 to 770: whole
    matrices, a margin [B] added to costs [B, B], then one column taken of each row."""
    S, R = batch.scores.double().numpy(), batch.relevance.double().numpy()
    rows, own = np.arange(len(S)), np.diag(S)
    cost_s, cost_im = S - own[:, None], S - own[None, :]

    def second(cost):
        return np.argsort(cost if negatives == "hard" else -cost, axis=1, kind="stable")[:, 1]

    n_s, n_im = second(cost_s), second(cost_im)
    positive, i2t, t2i = np.diag(R), R[rows, n_s], R[rows, n_im]
    margin_s = np.minimum((positive - t2i) / tau, 1.0)
    margin_im = np.minimum((positive - i2t) / tau, 1.0)
    cost_s, cost_im = np.maximum(cost_s + margin_s, 0), np.maximum(cost_im + margin_im, 0)
    return cost_s[rows, n_s].sum() + cost_im[rows, n_im].sum()


def triplet_sn(batch, margin=0.2, gamma=50.0):
    """BCLS, eq. 14 and 15, with r_ij < r_ii for r_ij < 1: the paper's labels have r_ii = 1."""
    S, R, known, _ = lists(batch)
    total = 0.0
    for i in range(len(S)):
        edge = R[i][i] - 1e-6 * max(1, abs(R[i][i]))
        captions = [S[i][j] for j in range(len(S)) if j != i and known[i][j] and R[i][j] < edge]
        images = [S[j][i] for j in range(len(S)) if j != i and known[j][i] and R[j][i] < edge]
        for some in (captions, images):
            if some:
                soft = max(some) + math.log(sum(math.exp(gamma * (s - max(some))) for s in some)) / gamma
                total += plus(soft - S[i][i] + margin)
    return total


def kendall(batch, alpha=0.2):
    """BCLS, eq. 17."""
    S, R, known, _ = lists(batch)
    B, total = range(len(S)), 0.0
    for i in B:
        for j in B:
            for k in B:
                if known[i][j] and known[i][k] and R[i][j] > R[i][k] + alpha:
                    total += plus(S[i][k] - S[i][j])
                if known[j][i] and known[k][i] and R[j][i] > R[k][i] + alpha:
                    total += plus(S[k][i] - S[j][i])
    return total


def kendall_windows(batch, alpha=0.2, beta=0.1):
    """BCLS, eq. 19 and 20: of each window the furthest positive and the closest negative, over M windows."""
    S, R, known, _ = lists(batch)
    M, B = round((2 - alpha) / beta), range(len(S))
    total = 0.0
    for m in range(1, M + 1):
        low = -1 + m * beta
        for i in B:
            captions = [(R[i][j], S[i][j]) for j in B if known[i][j]]
            images = [(R[j][i], S[j][i]) for j in B if known[j][i]]
            for some in (captions, images):
                positive = [s for r, s in some if r >= low + alpha - 1e-6]
                negative = [s for r, s in some if r <= low + 1e-6]
                if positive and negative:
                    total += plus(max(negative) - min(positive)) / M
    return total


def sigmoid(z):
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, z))))


def daa(batch, temperature=0.05, form="paper"):
    """DAA: 1 - ASP of image queries and of caption queries, ASP the mean of min / max of two ranks, each
    1 + sum of sigmoids over the other candidates. authors: Loss.DAA of model.py, lines 469 to 492, where the first
    operand of the difference is read by column."""
    S, R, known, _ = lists(batch)
    B = range(len(S))

    def rank(x, seen, query, item):
        first = [x(a, query) if form == "authors" else x(query, a) for a in B]
        others = [a for a in B if a != item and seen(query, a)]
        return 1 + sum(sigmoid((first[a] - x(query, item)) / temperature) for a in others)

    def asp(score, relevance, seen):
        ranks = [(rank(score, seen, q, c), rank(relevance, seen, q, c)) for q in B for c in B if seen(q, c)]
        return sum(min(pair) / max(pair) for pair in ranks) / len(ranks)

    of_images = asp(lambda i, j: S[i][j], lambda i, j: R[i][j], lambda i, j: known[i][j])
    of_captions = asp(lambda j, i: S[i][j], lambda j, i: R[i][j], lambda j, i: known[i][j])
    return (1 - of_images) + (1 - of_captions)


def smooth_ap(batch, temperature=0.01):
    """Brown et al. 2020, eq. 6, the own items positive; of image queries and of caption queries."""
    S, _, _, own = lists(batch)
    B, total = range(len(S)), 0.0
    for x in (lambda q, c: S[q][c], lambda q, c: S[c][q]):
        average = 0.0
        for q in B:
            positives = [c for c in B if own[q][c]]

            def rank(c, among, x=x, q=q):
                return 1 + sum(sigmoid((x(q, a) - x(q, c)) / temperature) for a in among if a != c)

            average += sum(rank(c, positives) / rank(c, B) for c in positives) / len(positives) / len(S)
        total += 1 - average
    return total


def ladder(batch, thresholds=(0.63,), margins=(0.2, 0.01), weights=(1.0, 0.25)):
    """Zhou et al. 2020, eq. 6 and 7: the hardest triplet of each rung."""
    S, R, known, _ = lists(batch)
    B, total = range(len(S)), 0.0
    for i in B:
        captions = [(j, R[i][j], S[i][j]) for j in B if known[i][j] or j == i]
        images = [(j, R[j][i], S[j][i]) for j in B if known[j][i] or j == i]
        for some in (captions, images):
            for edge, margin, weight in zip((math.inf, *thresholds), margins, weights, strict=True):
                above = [s for j, r, s in some if j == i or r >= edge]
                below = [s for j, r, s in some if j != i and r < edge]
                if below:
                    total += weight * plus(margin + max(below) - min(above))
    return total


def info_nce(batch, temperature=0.05, targets="own", softness=0.1):
    """CLIP's symmetric cross-entropy; soft targets are softmax(r / softness) over what is known."""
    S, R, known, _ = lists(batch)
    B, total = range(len(S)), 0.0
    for i in B:
        captions = [(j, R[i][j], S[i][j]) for j in B if targets == "own" or known[i][j] or j == i]
        images = [(j, R[j][i], S[j][i]) for j in B if targets == "own" or known[j][i] or j == i]
        for some in (captions, images):
            log = math.log(sum(math.exp(s / temperature) for _, _, s in some))
            whole = sum(math.exp(r / softness) for _, r, _ in some)
            for j, r, s in some:
                wanted = float(j == i) if targets == "own" else math.exp(r / softness) / whole
                total += wanted * (log - s / temperature) / len(S) / 2
    return total


def sigmoid_loss(batch, temperature=0.1, bias=-10.0, targets="relevance", low=0.0, high=1.0):
    """SigLIP's loss, section 3.2, with the label z in -1, 1 written as y in 0, 1, and y anything between."""
    S, R, known, own = lists(batch)
    total = 0.0
    for i in range(len(S)):
        for j in range(len(S[0])):
            if targets == "own":
                y = float(own[i][j])
            elif own[i][j]:
                y = 1.0
            elif known[i][j]:
                y = min(1.0, max(0.0, (R[i][j] - low) / (high - low)))
            else:
                continue
            x = S[i][j] / temperature + bias
            total -= y * -math.log1p(math.exp(-x)) + (1 - y) * -math.log1p(math.exp(x))
    return total / len(S)

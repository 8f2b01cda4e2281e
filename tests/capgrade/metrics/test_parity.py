"""Agreement with scikit-learn, scipy and the authors' codes in large galleries; eccv_caption:
test_evaluation.py."""

import numpy as np
import pytest
from scipy.stats import kendalltau
from sklearn.metrics import ndcg_score

from capgrade import evaluate
from capgrade.metrics import coherent_score, kendall_tau, ndcg


def kinds(head):
    random = np.random.default_rng(1)
    return {
        "random": random.standard_normal(head.shape),
        "like the labels": head.astype(np.float64),
        "many ties": np.round(head, 1).astype(np.float64),
        "nearly constant": 1 + 1e-9 * random.standard_normal(head.shape),
        "constant": np.ones(head.shape),
        "float32": head.astype(np.float32),
    }


@pytest.fixture(scope="module")
def graded():
    """Eight queries over 25,000 candidates: similarities of several kinds, and labels, many zero,
    that go with them."""
    random = np.random.default_rng(0)
    labels = np.maximum(random.random((8, 25_000)) - 0.6, 0).round(3)
    return kinds(labels + 0.3 * random.random(labels.shape)), labels


def test_ndcg_agrees_with_scikit_learn(graded):
    similarities, labels = graded
    for name, scores in similarities.items():
        for k in (1, 25, 30_000):
            theirs = [ndcg_score(labels[q : q + 1], scores[q : q + 1], k=k) for q in range(2)]
            np.testing.assert_allclose(
                ndcg(scores[:2], labels[:2], k=k), theirs, atol=1e-9, rtol=0, err_msg=name
            )


@pytest.mark.parametrize("n", [1, 2, 3, 65, 25_000])
def test_tau_b_agrees_with_scipy(graded, n):
    similarities, labels = graded
    for name, scores in similarities.items():
        given = [(s[:n], r[:n]) for s, r in zip(scores, labels, strict=True)]
        theirs = [0.0 if n == 1 else np.nan_to_num(kendalltau(s, r).statistic) for s, r in given]
        np.testing.assert_allclose(
            kendall_tau(scores[:, :n], labels[:, :n], variant="b"),
            theirs,
            atol=1e-12,
            rtol=0,
            err_msg=name,
        )


def test_coherent_score_is_scipys_tau_of_the_first_k(graded):
    similarities, labels = graded
    scores = similarities["like the labels"]
    top = np.argsort(-scores, axis=1)[:, :50]
    theirs = [kendalltau(scores[q, top[q]], labels[q, top[q]]).statistic for q in range(8)]
    np.testing.assert_allclose(
        coherent_score(scores, labels, k=50), np.nan_to_num(theirs), atol=1e-12
    )


def authors_extension(matrix, each, depth):
    """Written from the description of get_intersection: sum the scores of each caption's `depth`
    nearest images."""
    found = []
    for image in range(matrix.shape[1]):
        sums = {}
        for caption in range(each * image, each * image + each):
            for other in np.argsort(matrix[caption], kind="stable")[::-1][:depth]:
                sums[other] = sums.get(other, 0.0) + matrix[caption, other]
        found.append(
            [
                other
                for other, _ in sorted(sums.items(), key=lambda item: -item[1])
                if other != image
            ]
        )
    return found


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("k", [1, 5, 10])
def test_sr_and_ncs_are_the_authors_code(m, k):
    """ncs_metric metric.py, own items removed as by default, plain loops over captions x images."""
    images, each = 14, 5
    random = np.random.default_rng(k)
    matrix = random.random((images * each, images))
    similarity, owner = random.random((images, images * each)), np.repeat(np.arange(images), each)
    extension = authors_extension(matrix, each, 30)
    hard, soft, gathered = [], [], []
    for image in range(images):
        order = [c for c in np.argsort(similarity[image])[::-1] if owner[c] != image]
        relevant = [c for c in range(images * each) if owner[c] in extension[image][:m]]
        hits = [c for c in order[:k] if c in relevant]
        hard.append(len(hits) / (each * m))
        soft.append(
            matrix[hits, image].sum() / (matrix[relevant, image].sum() + 1e-20) / (each * m)
        )
        ideal = sorted((matrix[c, image] for c in order), reverse=True)[:k]
        gathered.append(matrix[order[:k], image].mean() / (np.mean(ideal) + 1e-10))
    authors = {
        f"sr_authors@{k}(m={m})": hard,
        f"sr_soft_authors@{k}(m={m})": soft,
        f"ncs_authors@{k}": gathered,
    }
    found = evaluate(similarity, matrix.T, list(authors), owner=owner, intervals=None).i2t.values
    for name, theirs in authors.items():
        np.testing.assert_allclose(found[name], theirs, atol=1e-12, err_msg=name)

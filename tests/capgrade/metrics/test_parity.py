"""Agreement to 1e-6 and better with eccv_caption, scikit-learn, scipy and the authors' codes, on real captions."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import ndcg_score

from capgrade.metrics import asp, coherent_score, human_lists, kendall_tau, ncs, ndcg, recall
from capgrade.metrics.base import Queries, own_positives
from capgrade.metrics.catalogue import metric, score_all
from capgrade.metrics.semantic_recall import extension_images, extension_name, extension_set

COCO = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "coco" / "test5k_captions.tsv"


@pytest.fixture(scope="module")
def coco():
    """Image ids, caption ids, owner and tf-idf rows of the MS-COCO 5K captions."""
    if not COCO.exists():
        pytest.skip("the COCO captions of ../shared/data are not here")
    rows = [line.split("\t") for line in COCO.read_text(encoding="utf-8").splitlines()[1:]]
    images = list(dict.fromkeys(row[0] for row in rows))
    place = {image: index for index, image in enumerate(images)}
    vectors = TfidfVectorizer(dtype=np.float32).fit_transform([row[2] for row in rows])
    return images, [row[1] for row in rows], np.array([place[row[0]] for row in rows]), vectors


@pytest.fixture(scope="module")
def similarity(coco):
    """The first caption of each image against all, with a little noise so that no two tie."""
    *_, vectors = coco
    dense = (vectors[::5] @ vectors.T).toarray()
    return dense + np.random.default_rng(0).random(dense.shape, dtype=np.float32) * np.float32(1e-3)


def kinds(head):
    random = np.random.default_rng(1)
    return {
        "random": random.standard_normal(head.shape),
        "tf-idf": head.astype(np.float64),
        "many ties": np.round(head, 1).astype(np.float64),
        "nearly constant": 1 + 1e-9 * random.standard_normal(head.shape),
        "constant": np.ones(head.shape),
        "float32": head.astype(np.float32),
    }


@pytest.fixture(scope="module")
def graded(coco, similarity):
    """Eight image queries over all 25,000 captions: similarities of several kinds and tf-idf labels, many zero."""
    *_, vectors = coco
    labels = (vectors[1:40:5] @ vectors.T).toarray().astype(np.float64)
    return kinds(similarity[:8]), labels


def test_ndcg_agrees_with_scikit_learn(graded):
    similarities, labels = graded
    for name, scores in similarities.items():
        for k in (1, 25, 30_000):
            theirs = [ndcg_score(labels[q : q + 1], scores[q : q + 1], k=k) for q in range(2)]
            gap = np.abs(ndcg(scores[:2], labels[:2], k=k) - theirs).max()
            assert gap < 1e-9, (name, k, gap)


def test_tau_b_agrees_with_scipy(graded):
    similarities, labels = graded
    for name, scores in similarities.items():
        theirs = np.nan_to_num([kendalltau(s, r).statistic for s, r in zip(scores, labels, strict=True)])
        gap = np.abs(kendall_tau(scores, labels, variant="b") - theirs).max()
        assert gap < 1e-12, (name, gap)


def test_tau_a_is_concordant_minus_discordant(graded):
    similarities, labels = graded
    for name, scores in similarities.items():
        x, y = scores[0, :1500], labels[0, :1500]
        signs = np.sign(x[:, None] - x[None]) * np.sign(y[:, None] - y[None])
        theirs = signs.sum() / 2 / (1500 * 1499 / 2)
        assert kendall_tau(x[None], y[None])[0] == pytest.approx(theirs, abs=1e-12), name


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 4096, 4097])
def test_tau_at_the_edges_of_the_counting_blocks(n):
    random = np.random.default_rng(n)
    scores, labels = random.integers(0, 50, (2, n)).astype(float), random.random((2, n)).round(2)
    theirs = [0.0 if n == 1 else np.nan_to_num(kendalltau(s, r).statistic) for s, r in zip(scores, labels, strict=True)]
    np.testing.assert_allclose(kendall_tau(scores, labels, variant="b"), theirs, atol=1e-12)


def test_coherent_score_is_scipys_tau_of_the_first_k(graded):
    similarities, labels = graded
    scores = similarities["tf-idf"]
    top = np.argsort(-scores, axis=1)[:, :50]
    theirs = [kendalltau(scores[q, top[q]], labels[q, top[q]]).statistic for q in range(8)]
    np.testing.assert_allclose(coherent_score(scores, labels, k=50), np.nan_to_num(theirs), atol=1e-12)


def test_asp_is_the_daa_code_where_nothing_ties(graded):
    """ranks by double argsort, min / max, mean."""
    scores = graded[0]["random"][:, :3000]
    labels = np.random.default_rng(2).random((8, 3000))
    ranks = [np.argsort(np.argsort(-x, axis=1), axis=1) + 1 for x in (scores, labels)]
    theirs = (np.minimum(*ranks) / np.maximum(*ranks)).mean(axis=1)
    np.testing.assert_allclose(asp(scores, labels), theirs, atol=1e-12)


def ranked(scores, queries, candidates, depth=60):
    """id -> ranked ids, as deep as eccv_caption reads for mAP@R (48) and R@10."""
    top = np.argpartition(-scores, depth, axis=1)[:, :depth]
    order = np.take_along_axis(top, np.argsort(-np.take_along_axis(scores, top, axis=1), axis=1), axis=1)
    return {int(query): candidates[row].tolist() for query, row in zip(queries, order, strict=True)}


def test_eccv_and_cxc_agree_with_the_package(coco, similarity):
    images, captions, owner, _ = coco
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eccv_caption = pytest.importorskip("eccv_caption")
    ids = np.array(images, dtype=int), np.array(captions, dtype=int)
    lists = {"i2t": ranked(similarity, *ids), "t2i": ranked(similarity.T, *ids[::-1])}
    peer = eccv_caption.Metrics()
    theirs = peer.eccv_metrics(lists, "all")
    human = {name: human_lists(name, images, captions) for name in ("eccv", "cxc", "original")}
    names = {"map@r": "eccv_map_at_r", "r_precision": "eccv_rprecision", "eccv_recall@1": "eccv_r1"}
    wanted = [metric(name) for name in (*names, "cxc_recall@1", "cxc_recall@5", "cxc_recall@10", "recall@5")]
    groups = np.arange(len(images)), owner
    for way, side in (("i2t", 0), ("t2i", 1)):
        matrix, (left, right) = (similarity.T, groups[::-1]) if side else (similarity, groups)
        queries = Queries(matrix, left, right, positives={name: both[side] for name, both in human.items()})
        ours = {name: float(np.nanmean(values)) for name, values in score_all(queries, wanted).items()}
        for name, key in names.items():
            assert ours[name] == pytest.approx(theirs[key][way], abs=1e-9), (way, name)
        for k in (1, 5, 10):
            assert ours[f"cxc_recall@{k}"] == pytest.approx(peer.cxc_recalls(lists, way, K=k)[way], abs=1e-9)
        assert ours["recall@5"] == pytest.approx(peer.coco_5k_recalls(lists, way, K=5)[way], abs=1e-9)
        original = recall(matrix, human["original"][side], k=5)
        np.testing.assert_allclose(original, recall(matrix, own_positives(left, right), k=5))


def authors_extension(matrix, each, depth):
    """Written from the description of get_intersection: sum the scores of each caption's `depth` nearest images."""
    found = []
    for image in range(matrix.shape[1]):
        sums = {}
        for caption in range(each * image, each * image + each):
            for other in np.argsort(matrix[caption], kind="stable")[::-1][:depth]:
                sums[other] = sums.get(other, 0.0) + matrix[caption, other]
        found.append([other for other, _ in sorted(sums.items(), key=lambda item: -item[1]) if other != image])
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
    assert extension_images(matrix.T, owner, m=m).tolist() == [row[:m] for row in extension]
    hard, soft, gathered = [], [], []
    for image in range(images):
        order = [c for c in np.argsort(similarity[image])[::-1] if owner[c] != image]
        relevant = [c for c in range(images * each) if owner[c] in extension[image][:m]]
        hits = [c for c in order[:k] if c in relevant]
        hard.append(len(hits) / (each * m))
        soft.append(matrix[hits, image].sum() / (matrix[relevant, image].sum() + 1e-20) / (each * m))
        ideal = sorted((matrix[c, image] for c in order), reverse=True)[:k]
        gathered.append(matrix[order[:k], image].mean() / (np.mean(ideal) + 1e-10))
    groups = {"query_group": np.arange(images), "candidate_group": owner}
    lists = extension_set(extension_images(matrix.T, owner, m=m), np.arange(images), owner)
    for weight, theirs in (("hard", hard), ("soft", soft)):
        name = {"hard": f"sr_authors@{k}(m={m})", "soft": f"sr_soft_authors@{k}(m={m})"}[weight]
        queries = Queries(similarity, *groups.values(), {"": matrix.T}, {extension_name("", m): lists})
        np.testing.assert_allclose(score_all(queries, [metric(name)])[name], theirs, atol=1e-12)
    ours = ncs(similarity, matrix.T, k=k, form="authors", **groups)
    np.testing.assert_allclose(ours, gathered, atol=1e-12)


def test_ndcg_exponential_is_terans_code():
    random = np.random.default_rng(0)
    scores, labels = random.random((5, 80)), random.random((5, 80))
    for query, value in enumerate(ndcg(scores, labels, k=25, gain="exponential")):
        gains = [2 ** labels[query, c] - 1 for c in np.argsort(scores[query])[::-1][:25]]
        ideal = [2 ** labels[query, c] - 1 for c in np.argsort(labels[query])[::-1][:25]]
        dcg, best = (sum(g / math.log2(p + 2) for p, g in enumerate(side)) for side in (gains, ideal))
        assert value == pytest.approx(dcg / best, abs=1e-12)

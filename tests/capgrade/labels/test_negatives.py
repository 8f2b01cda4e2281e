"""Mined negatives against a plain search through every pair, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch

import capgrade
from capgrade import Labels
from capgrade.schemas.errors import InputError
from capgrade.schemas.say import CapgradeWarning


def plain(
    labels: Labels,
    k: int,
    below: float,
    measure: str,
    scores: np.ndarray,
    queries: str,
    unknown: str,
):
    """{(anchor, own document): negatives}, pair after pair."""
    values, known, _ = labels.block(labels.image_ids, labels.caption_ids, measure, unknown=unknown)
    found = {}
    for caption, image in enumerate(labels.owner):
        allowed = (
            known & (values < below) & (labels.owner[None, :] != np.arange(len(values))[:, None])
        )
        row, score = (
            (allowed[image], scores[image])
            if queries == "images"
            else (allowed[:, caption], scores[:, caption])
        )
        best = sorted(np.flatnonzero(row), key=lambda j: (-score[j], j))[:k]
        anchor, own = (image, caption) if queries == "images" else (caption, image)
        if len(best) == k:
            found[anchor, own] = list(best)
    return found


def paired(found) -> dict:
    return {
        (a, d[0]): list(d[1:])
        for a, d in zip(found.anchors.tolist(), found.documents.tolist(), strict=True)
    }


@pytest.mark.parametrize("queries", ["images", "captions"])
@pytest.mark.parametrize("unknown", ["mask", "estimate", "bound"])
@pytest.mark.parametrize("k", [0, 1, 4])
def test_they_are_those_of_a_plain_search(dataset: Path, queries, unknown, k):
    labels = Labels.load(dataset)
    scores = np.random.default_rng(0).integers(0, 9, (12, 60)) / 8  # many ties
    found = labels.negatives(
        k, accepted_below=0.35, measure="rouge_l", scores=scores, queries=queries, unknown=unknown
    )
    assert paired(found) == plain(labels, k, 0.35, "rouge_l", scores, queries, unknown)
    anchors, documents = found.anchors[:, None], found.documents
    images, captions = (anchors, documents) if queries == "images" else (documents, anchors)
    values, known, _ = labels.block(range(12), range(60), "rouge_l", unknown=unknown)
    assert known[images, captions].all()  # what is not known is never a negative
    assert np.array_equal(found.relevance, values[images, captions] + 0 * anchors)
    assert (found.relevance[:, 1:] < 0.35).all()


def test_a_value_that_is_the_threshold_is_accepted(dataset: Path):
    """Labels are float32: 0.7 is, whatever type has the threshold, as for grades."""
    labels = capgrade.exact(Labels.load(dataset), "rouge_l")
    values = labels.block(range(12), range(60)).relevance
    near = [value for value in np.unique(values) if float(str(value)) > float(value)]
    below = np.float64(str(near[0]))
    assert (labels.negatives(1, accepted_below=below).relevance[:, 1] < near[0]).all()


def test_scores_may_be_a_tensor_vectors_or_a_measure(dataset: Path):
    labels = capgrade.exact(Labels.load(dataset), "rouge_l")
    rng = np.random.default_rng(1)
    vectors = [rng.integers(-127, 128, (n, 8)).astype(np.float32) for n in (12, 60)]
    # hold no product
    coarse = [tuple(one.astype(kind) for one in vectors) for kind in (np.int8, np.float16)]
    ours = [
        paired(labels.negatives(np.int64(3), accepted_below=0.4, scores=scores))
        for scores in (
            vectors[0] @ vectors[1].T,
            tuple(map(torch.tensor, vectors)),
            tuple(vectors),
            *coarse,
        )
    ]
    assert all(one == ours[0] for one in ours)
    relevance = labels.block(range(12), range(60)).relevance
    by_measure = labels.negatives(3, accepted_below=0.4)
    assert paired(by_measure) == paired(labels.negatives(3, accepted_below=0.4, scores=relevance))
    assert (np.diff(by_measure.relevance[:, 1:]) <= 0).all()


def test_columns_have_texts_and_what_stands_for_images(dataset: Path):
    labels = capgrade.exact(Labels.load(dataset), "rouge_l")
    found = labels.negatives(2, accepted_below=0.4)
    files = [f"{name}.png" for name in labels.image_ids]
    rows, lists = found.columns(), found.columns("labeled-list", files)
    image = labels.image_ids[found.anchors[0]]
    texts = [labels.texts[row] for row in found.documents[0]]
    assert {name: column[0] for name, column in rows.items()} == {
        "anchor": image, "positive": texts[0], "negative_1": texts[1], "negative_2": texts[2],
    }  # fmt: skip
    assert {name: column[0] for name, column in lists.items()} == {
        "anchor": f"{image}.png", "positive": texts, "labels": found.relevance[0].tolist(),
    }  # fmt: skip
    label = found.columns(rows=True)["label"]
    assert label == np.c_[found.anchors, found.documents].tolist()
    for form, last, count in (("triplet", "negative", 2), ("labeled-pair", "score", 3)):
        columns = found.columns(form)
        assert list(columns) == ["anchor", "positive", last]
        assert {len(column) for column in columns.values()} == {count * len(found.anchors)}
        assert columns["anchor"][:count] == [image] * count
    assert found.columns("triplet")["negative"][:2] == texts[1:]
    assert found.columns("labeled-pair")["positive"][:3] == texts
    assert found.columns("labeled-pair")["score"][:3] == found.relevance[0].tolist()
    with pytest.raises(InputError, match="n-tuple"):
        found.columns("triplet", rows=True)
    with pytest.raises(InputError, match="output_format"):
        found.columns("quadruple")
    turned = labels.negatives(2, accepted_below=0.4, queries="captions").columns()
    assert turned["anchor"] == labels.texts and set(turned["negative_1"]) <= set(labels.image_ids)
    with pytest.raises(InputError, match="3 images for labels of 12"):
        found.columns(images=["a", "b", "c"])


@pytest.mark.parametrize("queries", ["images", "captions"])
def test_pairs_clash_where_one_brings_what_the_other_accepts(dataset: Path, queries):
    labels = capgrade.exact(Labels.load(dataset), "rouge_l")
    found = labels.negatives(2, accepted_below=0.4, queries=queries)
    values = labels.block(range(12), range(60)).relevance
    accepts = (values >= 0.4) | (labels.owner[None, :] == np.arange(12)[:, None])
    accepts = accepts if queries == "images" else accepts.T
    clash = found.clash(list(range(20)))
    for a in range(20):
        for b in range(20):
            crossed = [(a, b), (b, a)] if a != b else []
            assert clash[a, b] == any(
                accepts[found.anchors[x], found.documents[y]].any() for x, y in crossed
            )


def test_pairs_without_enough_are_counted(dataset: Path):
    labels = Labels.load(dataset)
    with pytest.warns(CapgradeWarning) as warned:
        found = labels.negatives(12, accepted_below=0.3, measure="rouge_l")
    lost = 60 - len(found.anchors)
    assert (
        0 < lost < 60
        and f"{lost} of 60 pairs are left out, of images with fewer than 12"
        in str(warned[0].message)
    )
    with pytest.raises(
        InputError, match="only images with fewer than 5 candidates that are known and not accepted"
    ):
        labels.negatives(5, accepted_below=-1.0, measure="rouge_l")


@pytest.mark.parametrize(("k", "given", "message"), [
    *((1, {"scores": scores}, "give finite scores")
      for scores in (np.zeros((60, 12)), np.full((12, 60), np.nan), (np.zeros((12, 4)), np.zeros((60, 5))),
                      (np.zeros(12), np.zeros(60)))),
    (-1, {}, "-1 negatives of 'images'"),
    (1, {"accepted_below": float("nan")}, "accepted_below is nan"),  # nothing would be accepted
    (1, {"queries": "texts"}, "1 negatives of 'texts'"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(dataset: Path, k, given, message):
    with pytest.raises(InputError, match=message):
        Labels.load(dataset).negatives(k, **{"accepted_below": 0.5, "measure": "rouge_l", **given})

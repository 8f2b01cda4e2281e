"""Tf-idf cosine beside scikit-learn as DAA's code uses it; plain CIDEr by its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

from capgrade.pipelines.measures.cider import CiderPlain
from capgrade.pipelines.measures.tfidf import TfidfCosine
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CiderPlainParams, TfidfParams
from tests.conftest import make_captions, random_sets
from tests.pipelines.measures.test_cider import grams


def daa(captions: Captions, leave_out: bool = False) -> np.ndarray:
    """`semantic.py` of DAA: similarities of all captions, averaged over the captions of an image."""
    vectors = TfidfTransformer().fit_transform(CountVectorizer().fit_transform(captions.texts))
    cosine = (vectors @ vectors.T).toarray()
    if not leave_out:
        return np.array([cosine[captions.owner == i].mean(axis=0) for i in range(captions.n_images)])
    out = np.empty((captions.n_images, captions.n_captions))
    for i, c in np.ndindex(out.shape):
        out[i, c] = cosine[(captions.owner == i) & (np.arange(captions.n_captions) != c), c].mean()
    return out


text = st.lists(st.sampled_from(["Dogs", "a", "cat", "it's", "no.1", "ÉTÉ", "x-ray", "!"]), max_size=8).map(" ".join)


@given(st.lists(st.lists(text, min_size=1, max_size=4), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_as_daa_with_odd_captions(sets: list[list[str]]) -> None:
    captions = make_captions([["dogs and cats"], *sets])  # scikit-learn refuses an empty vocabulary
    found = TfidfCosine(TfidfParams()).fit(captions).score(np.arange(captions.n_images))
    np.testing.assert_allclose(found, daa(captions), atol=1e-6)


def test_as_daa_without_the_caption_itself() -> None:
    captions = make_captions(random_sets(7, seed=1, least=2))
    fitted = TfidfCosine(TfidfParams(self_reference="left_out")).fit(captions)
    np.testing.assert_allclose(fitted.score(np.arange(7)), daa(captions, leave_out=True), atol=1e-6)
    with pytest.raises(InputError, match="no reference remains"):
        TfidfCosine(TfidfParams(self_reference="left_out")).fit(make_captions([["dogs"]]))


def test_as_daa_on_coco(coco: Captions) -> None:
    few = Captions(coco.table.slice(0, 5000), coco.split, coco.tokenizer, coco.digest)
    found = TfidfCosine(TfidfParams()).fit(few).score(np.arange(1000))
    assert np.abs(found - daa(few)).max() < 1e-6


def slow_cider(hypothesis: str, references: list[str], corpus: list[list[str]]) -> float:
    """CIDEr by equations 1 to 3 of its paper, times 10."""
    documents = [{g for caption in refs for order in grams(caption.split()) for g in order} for refs in corpus]
    idf = lambda g: np.log(len(corpus) / max(1, sum(g in found for found in documents)))  # noqa: E731
    total = 0.0
    for reference in references:
        for h, r in zip(grams(hypothesis.split()), grams(reference.split()), strict=True):
            known = sorted(h.keys() | r.keys())
            a, b = (np.array([c[g] * idf(g) for g in known]) for c in (h, r))
            norms = np.linalg.norm(a) * np.linalg.norm(b)
            total += a @ b / norms if norms else 0.0
    return 10 * total / 4 / len(references)


@pytest.mark.parametrize("leave_out", [False, True])
def test_plain_cider_by_its_definition(leave_out: bool) -> None:
    sets = random_sets(8, seed=6, least=2)
    params = CiderPlainParams(self_reference="left_out" if leave_out else "included")
    fitted = CiderPlain(params).fit(make_captions(sets))
    owner, texts = make_captions(sets).owner, [caption for one in sets for caption in one]
    expected = np.array(
        [
            [
                slow_cider(texts[c], [texts[r] for r in np.flatnonzero(owner == i) if not (leave_out and r == c)], sets)
                for c in range(len(texts))
            ]
            for i in range(8)
        ]
    )
    np.testing.assert_allclose(fitted.score(np.arange(8)), expected, atol=1e-5)
    some = np.array([4, 0, 9])
    np.testing.assert_allclose(fitted.score(np.arange(8), some), expected[:, some], atol=1e-5)

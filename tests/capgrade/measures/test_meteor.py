"""METEOR beside the jar that pycocoevalcap carries, and by hand."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from capgrade.measures.meteor import Meteor
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeteorParams
from tests.conftest import make_captions

SETS = [
    ["a man rides a horse", "the man is riding horses on a beach"],
    ["two dogs play with a red ball", "a pair of puppies plays with balls ."],
    ["a very big house", "the large home near a road"],
]


def score(sets: list[list[str]], **params: str) -> np.ndarray:
    captions = make_captions(sets)
    return Meteor(MeteorParams(**params)).fit(captions).score(np.arange(captions.n_images))


def test_stems_and_synonyms_match() -> None:
    values = score([["a man rides a horse"], ["men riding horses"], ["a large home"], ["a big house"], ["zebra sky"]])
    assert 0 < values[0, 1] < 1  # by stems
    assert 0 < values[2, 3] < 1  # by WordNet
    assert values[0, 4] == 0


def test_what_the_jar_would_take_for_several_captions_is_refused() -> None:
    with pytest.raises(InputError, match=r"has '\|\|\|'"):
        score([["a dog ||| a cat", "a bird"]])


def by_the_jar(pairs: list[tuple[list[str], str]]) -> np.ndarray:
    """pycocoevalcap's METEOR of captions, each with its references."""
    if shutil.which("java") is None:
        pytest.skip("no Java to run METEOR's jar")
    from pycocoevalcap.meteor.meteor import Meteor as Jar

    references = {k: list(others) for k, (others, _) in enumerate(pairs)}
    return np.array(Jar().compute_score(references, {k: [caption] for k, (_, caption) in enumerate(pairs)})[1])


@pytest.mark.parametrize("self_reference", ["included", "left_out"])
def test_every_pair_scores_as_the_jar_scores_it(self_reference: str) -> None:
    captions = [caption for one in SETS for caption in one]
    left_out = self_reference == "left_out"
    pairs = [([r for r in one if not (left_out and r == c)], c) for one in SETS for c in captions]
    found = score(SETS, self_reference=self_reference)
    np.testing.assert_allclose(found.ravel(), by_the_jar(pairs), atol=1e-6)


def test_real_pairs_score_as_the_jar_scores_them(coco: Captions) -> None:
    random = np.random.default_rng(0)
    few = Captions(coco.table.slice(0, 500), coco.split, coco.tokenizer, coco.digest)
    images = random.integers(few.n_images, size=250)
    captions = random.integers(few.n_captions, size=250)
    captions[:100] = [random.choice(few.refs[few.ref_ptr[i] : few.ref_ptr[i + 1]]) for i in images[:100]]
    sentences = [" ".join(words) for words in few.table["tokens"].to_pylist()]
    own = [[sentences[r] for r in few.refs[few.ref_ptr[i] : few.ref_ptr[i + 1]]] for i in images]
    expected = by_the_jar([(references, sentences[c]) for references, c in zip(own, captions, strict=True)])
    found = Meteor(MeteorParams()).fit(few).score(images)[np.arange(250), captions]
    assert np.abs(found - expected).max() < 1e-5

"""CIDEr-D against pycocoevalcap, and against a slow, obvious reference on odd captions."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocoevalcap.cider.cider import Cider as ReferenceCider

from capgrade.pipelines.measures.cider import Cider
from capgrade.pipelines.measures.ngrams import count_ngrams, document_frequencies
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CiderParams
from tests.conftest import caption_table, make_captions, random_sets, write_captions_folder


def grams(words: list[str]) -> list[Counter]:
    return [Counter(tuple(words[k : k + n]) for k in range(len(words) - n + 1)) for n in range(1, 5)]


def slow_cider(hypothesis: str, references: list[str], corpus: list[list[str]]) -> float:
    """CIDEr-D word for word from its definition."""
    df = Counter(g for refs in corpus for g in {g for r in refs for c in grams(r.split()) for g in c})
    idf = lambda g: math.log(len(corpus)) - math.log(max(1, df[g]))  # noqa: E731
    length = lambda text: max(0, len(text.split()) - 1)  # noqa: E731
    total = 0.0
    for reference in references:
        fade = math.exp(-((length(hypothesis) - length(reference)) ** 2) / 72)
        for h, r in zip(grams(hypothesis.split()), grams(reference.split()), strict=True):
            norm_h = math.sqrt(sum((c * idf(g)) ** 2 for g, c in h.items()))
            norm_r = math.sqrt(sum((c * idf(g)) ** 2 for g, c in r.items()))
            value = sum(min(c * idf(g), r[g] * idf(g)) * r[g] * idf(g) for g, c in h.items())
            total += fade * (value / (norm_h * norm_r) if norm_h and norm_r else value)
    return 10 * total / 4 / len(references)


def slow_matrix(sets: list[list[str]], leave_out: bool = False) -> np.ndarray:
    rows = []
    for i, references in enumerate(sets):
        row = []
        for j, captions in enumerate(sets):
            for k, caption in enumerate(captions):
                rest = [r for q, r in enumerate(references) if not (leave_out and i == j and q == k)]
                row.append(slow_cider(caption, rest, sets))
        rows.append(row)
    return np.array(rows)


def test_agrees_with_the_slow_reference() -> None:
    sets = random_sets(12, seed=1)
    fitted = Cider(CiderParams()).fit(make_captions(sets))
    np.testing.assert_allclose(fitted.score(np.arange(12)), slow_matrix(sets), atol=1e-5)


def test_left_out_self() -> None:
    sets = random_sets(8, seed=2, least=2)
    fitted = Cider(CiderParams(self_reference="left_out")).fit(make_captions(sets))
    expected = slow_matrix(sets, leave_out=True)
    np.testing.assert_allclose(fitted.score(np.arange(8)), expected, atol=1e-5)
    some = np.array([3, 0, 7])
    np.testing.assert_allclose(fitted.score(some, some), expected[np.ix_(some, some)], atol=1e-5)


odd = st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), max_size=12).map(" ".join)
odd_sets = st.lists(st.lists(odd, min_size=1, max_size=6), min_size=2, max_size=6)


@given(odd_sets)
@settings(max_examples=60, deadline=None)
def test_odd_captions(sets: list[list[str]]) -> None:
    """Empty and one-word captions, repeated words, n-grams that every image has."""
    captions = make_captions(sets)
    fitted = Cider(CiderParams()).fit(captions)
    images = np.arange(len(sets))
    expected = slow_matrix(sets)
    np.testing.assert_allclose(fitted.score(images), expected, atol=1e-5)
    np.testing.assert_allclose(fitted.score(images, np.arange(captions.n_captions)), expected, atol=1e-5)


def test_extreme_sizes() -> None:
    """500 words, one word 60 times, one reference, 30 references."""
    sets = [
        [" ".join(random_sets(1, seed=k)[0][0] for k in range(40))],
        ["dog " * 60],
        [f"a cat {k}" for k in range(30)],
    ]
    sets.append(["", "cat"])
    fitted = Cider(CiderParams()).fit(make_captions(sets))
    np.testing.assert_allclose(fitted.score(np.arange(4)), slow_matrix(sets), atol=1e-5)


def test_equals_pycocoevalcap_on_coco(coco: Captions) -> None:
    """All 25,000 own pairs and 20,000 random ones, within 1e-5."""
    sentences = [" ".join(words) for words in coco.table["tokens"].to_pylist()]
    references = {i: [sentences[5 * i + k] for k in range(5)] for i in range(5000)}
    random = np.random.default_rng(7)
    rounds = [np.arange(5000) * 5 + k for k in range(5)] + [random.integers(25_000, size=5000) for _ in range(4)]
    fitted = Cider(CiderParams()).fit(coco)
    matrix = fitted.score(np.arange(5000))
    for hypotheses in rounds:
        _, expected = ReferenceCider().compute_score(references, {i: [sentences[c]] for i, c in enumerate(hypotheses)})
        difference = np.abs(matrix[np.arange(5000), hypotheses] - expected).max()
        assert difference < 1e-5, difference


def test_blocks_do_not_change_a_row() -> None:
    fitted = Cider(CiderParams()).fit(make_captions(random_sets(40, seed=3)))
    whole = fitted.score(np.arange(40))
    for rows in (np.arange(7), np.array([39, 2, 17])):
        assert np.array_equal(fitted.score(rows), whole[rows])


def test_saved_and_opened(tmp_path) -> None:
    fitted = Cider(CiderParams()).fit(make_captions(random_sets(9, seed=4)))
    fitted.save(tmp_path)
    assert np.array_equal(type(fitted).load(tmp_path).score(np.arange(9)), fitted.score(np.arange(9)))


def test_postings_that_no_number_sorts_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    captions = make_captions([[f"{text} {text} the the dog" for text in texts] for texts in random_sets(30, seed=2)])
    expected = Cider(CiderParams()).fit(captions)
    monkeypatch.setattr("capgrade.pipelines.measures.cider.LARGEST", 0)
    found = Cider(CiderParams()).fit(captions)
    assert len(np.unique(found.term_count)) > 2
    for name in ("term_ptr", "term_count", "post_ptr", "post_rank", "dense_row", "dense"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)


def test_one_image_is_refused() -> None:
    with pytest.raises(InputError, match="every CIDEr 0 -> set measures.cider.document_frequency"):
        Cider(CiderParams()).fit(make_captions([["a dog", "a cat"]]))


def test_document_frequencies_from_elsewhere(tmp_path) -> None:
    """From a folder, FOLDER#split and a saved file: the same scores; one image is then no trap."""
    corpus, mine = random_sets(10, seed=5), [["a red dog runs", "the small dog"]]
    folder = write_captions_folder(tmp_path / "c", [caption_table(corpus, "train"), caption_table(corpus[:1], "val")])
    document_frequencies(make_captions(corpus)).save(tmp_path / "df.arrow")
    expected = [slow_cider(caption, mine[0], corpus) for caption in mine[0]]
    for source in (f"{folder}#train", str(tmp_path / "df.arrow")):
        fitted = Cider(CiderParams(document_frequency=source)).fit(make_captions(mine))
        np.testing.assert_allclose(fitted.score(np.arange(1))[0], expected, atol=1e-5)


def test_document_frequencies_of_another_tokenizer(tmp_path) -> None:
    captions = make_captions(random_sets(4))
    other = Captions(captions.table, "test", "ptb", "digest")
    document_frequencies(other).save(tmp_path / "df.arrow")
    with pytest.raises(InputError, match="tokenizer ptb; captions have tokenizer lower_split"):
        Cider(CiderParams(document_frequency=str(tmp_path / "df.arrow"))).fit(captions)


def test_left_out_needs_two_references() -> None:
    with pytest.raises(InputError, match="'i1' the first"):
        Cider(CiderParams(self_reference="left_out")).fit(make_captions([["a", "b"], ["c"]]))


def test_ngrams_are_counted_as_the_obvious_way() -> None:
    captions = make_captions([["a b a b a", ""], ["b"]])
    counted = count_ngrams(captions)
    text = counted.text.to_pylist()
    for row, words in enumerate(captions.table["tokens"].to_pylist()):
        span = slice(counted.ptr[row], counted.ptr[row + 1])
        found = {text[g]: int(c) for g, c in zip(counted.gram[span], counted.count[span], strict=True)}
        assert found == {" ".join(g): c for counter in grams(words) for g, c in counter.items()}

"""Measures of common words against pycocoevalcap and slow, obvious loops of definitions that it has
not."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu import Bleu as TheirBleu
from pycocoevalcap.cider.cider import Cider as TheirCider
from pycocoevalcap.rouge.rouge import Rouge as TheirRouge
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

from capgrade.measures import choose
from capgrade.measures.base import Fitted
from capgrade.measures.bleu import fitted as bleu
from capgrade.measures.cider import Cider, CiderParams
from capgrade.measures.frequencies import Frequencies, texts_of
from capgrade.measures.ngrams import count_ngrams
from capgrade.measures.params import MeasuresParams
from capgrade.measures.tfidf import TfidfCosine, TfidfParams
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from tests.conftest import caption_table, make_captions, random_sets, write_captions_folder

# of a caption, its references, all reference sets
Slow = Callable[[str, list[str], list[list[str]]], float]


def grams(text: str) -> list[Counter]:
    words = text.split()
    return [
        Counter(tuple(words[k : k + n]) for k in range(len(words) - n + 1)) for n in range(1, 5)
    ]


def slow_cider(
    caption: str, references: list[str], corpus: list[list[str]], plain: bool = False
) -> float:
    """CIDEr-D word for word from its definition; plain: CIDEr by equations 1 to 3 of its paper,
    times 10."""
    df = Counter(g for refs in corpus for g in {g for r in refs for c in grams(r) for g in c})
    idf = lambda g: math.log(len(corpus)) - math.log(max(1, df[g]))  # noqa: E731
    length = lambda text: max(0, len(text.split()) - 1)  # noqa: E731
    total = 0.0
    for reference in references:
        fade = 1 if plain else math.exp(-((length(caption) - length(reference)) ** 2) / 72)
        for h, r in zip(grams(caption), grams(reference), strict=True):
            norm_h, norm_r = (
                math.sqrt(sum((c * idf(g)) ** 2 for g, c in one.items())) for one in (h, r)
            )
            value = sum((c if plain else min(c, r[g])) * r[g] * idf(g) ** 2 for g, c in h.items())
            total += fade * (value / (norm_h * norm_r) if norm_h and norm_r else value)
    return 10 * total / 4 / len(references)


def their_bleu(caption: str, references: list[str], _: object, k: int) -> float:
    return float(
        TheirBleu(k).compute_score({0: references}, {0: [caption]}, verbose=0)[1][k - 1][0]
    )


def their_rouge(caption: str, references: list[str], _: object, mean: bool, beta: float) -> float:
    theirs = TheirRouge()
    theirs.beta = beta
    sets = [[reference] for reference in references] if mean else [references]
    return float(np.mean([theirs.calc_score([caption], some) for some in sets]))


FORMS: dict[str, tuple[str, dict, Slow]] = {
    "cider": ("cider", {}, slow_cider),
    "cider_plain": ("cider_plain", {}, lambda *pair: slow_cider(*pair, plain=True)),
    **{
        f"bleu_{k}": ("bleu", {"n": k}, lambda *pair, k=k: their_bleu(*pair, k=k))
        for k in range(1, 5)
    },  # type: ignore[misc]
    "rouge_l": ("rouge_l", {}, lambda *pair: their_rouge(*pair, mean=False, beta=1.2)),
    "rouge_mean": (
        "rouge_l",
        {"references": "mean", "beta": 0.8},
        lambda *pair: their_rouge(*pair, mean=True, beta=0.8),
    ),
}


def fit(form: str, sets: list[list[str]], self_reference: str = "included") -> Fitted:
    name, options, _ = FORMS[form]
    params = MeasuresParams.model_validate({name: {**options, "self_reference": self_reference}})
    return choose([name], params)[name].fit(make_captions(sets))


def slow_matrix(
    sets: Sequence[Sequence], value: Callable[[Any, list], float], leave_out: bool = False
) -> np.ndarray:
    """`value` of every caption with every image's references, of its own image without itself:
    [images, captions]."""
    captions = [(j, k, caption) for j, own in enumerate(sets) for k, caption in enumerate(own)]

    def rest(i, j, k):
        return [r for q, r in enumerate(sets[i]) if not (leave_out and (i, q) == (j, k))]

    return np.array(
        [[value(caption, rest(i, j, k)) for j, k, caption in captions] for i in range(len(sets))]
    )


def by_definition(form: str, sets: list[list[str]], leave_out: bool = False) -> np.ndarray:
    return slow_matrix(
        sets, lambda caption, references: FORMS[form][2](caption, references, sets), leave_out
    )


odd = st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), max_size=20).map(" ".join)
odd_sets = st.lists(st.lists(odd, min_size=2, max_size=5), min_size=2, max_size=5)


@pytest.mark.parametrize("form", FORMS)
@given(sets=odd_sets, self_reference=st.sampled_from(["included", "left_out"]))
@settings(max_examples=40, deadline=None)
def test_odd_captions(form: str, sets: list[list[str]], self_reference: str) -> None:
    """Empty and one-word captions, repeated words, ties of lengths, n-grams that every image
    has."""
    fitted = fit(form, sets, self_reference)
    images, expected = np.arange(len(sets)), by_definition(form, sets, self_reference == "left_out")
    np.testing.assert_allclose(fitted.score(images), expected, atol=1e-5)
    some = np.arange(expected.shape[1])[::-2]
    np.testing.assert_allclose(fitted.score(images, some), expected[:, some], atol=1e-5)


@pytest.mark.parametrize("form", ["cider", "bleu_4", "rouge_l", "rouge_mean"])
def test_extreme_sizes(form: str) -> None:
    """Lengths around the width of a number's bits, one word 60 times, one reference, 30
    references."""
    random = np.random.default_rng(0)
    long = [
        [" ".join(random.choice(list("abcdefgh"), n)), "a b c"]
        for n in (15, 16, 17, 63, 64, 65, 128, 129, 500)
    ]
    sets = [*long, ["dog " * 59 + "dog"], [f"a cat {k}" for k in range(30)], ["", "cat"]]
    np.testing.assert_allclose(
        fit(form, sets).score(np.arange(len(sets))), by_definition(form, sets), atol=1e-5
    )


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_postings_dense_rows_and_chunks_of_bleu(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever share of n-grams is dense, and wherever chunks end."""
    monkeypatch.setattr(bleu, "DENSE_SHARE", share)
    monkeypatch.setattr("capgrade.measures.base.CHUNK", 7)
    sets = random_sets(12, seed=3)
    np.testing.assert_allclose(
        fit("bleu_4", sets).score(np.arange(12)), by_definition("bleu_4", sets), atol=1e-6
    )


def daa(captions: Captions, leave_out: bool = False) -> np.ndarray:
    """`semantic.py` of DAA: similarities of all captions, averaged over the captions of an
    image."""
    vectors = TfidfTransformer().fit_transform(CountVectorizer().fit_transform(captions.texts))
    sets = np.split(vectors.toarray(), captions.ref_ptr[1:-1])
    return slow_matrix(
        sets, lambda caption, references: np.mean(np.array(references) @ caption), leave_out
    )


text = st.lists(
    st.sampled_from(["Dogs", "a", "cat", "it's", "no.1", "ÉTÉ", "x-ray", "!"]), max_size=8
).map(" ".join)


@given(
    sets=st.lists(st.lists(text, min_size=2, max_size=4), min_size=1, max_size=5),
    leave_out=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_tfidf_cosines_are_daas(sets: list[list[str]], leave_out: bool) -> None:
    # scikit-learn refuses an empty vocabulary
    captions = make_captions([["dogs and cats", "cats"], *sets])
    params = TfidfParams(self_reference="left_out" if leave_out else "included")
    found = TfidfCosine(params).fit(captions).score(np.arange(captions.n_images))
    np.testing.assert_allclose(found, daa(captions, leave_out), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "theirs"), [("cider", TheirCider), ("rouge_l", TheirRouge), ("bleu", TheirBleu)]
)
def test_equals_pycocoevalcap_on_coco(name: str, theirs: type, coco: Captions) -> None:
    """An own caption of every second image, and a random one of the others; of CIDEr-D with
    document frequencies of all 5,000 images, so that it takes all."""
    sentences = [" ".join(words) for words in coco.table["tokens"].to_pylist()]
    fitted = choose([name], MeasuresParams())[name].fit(coco)
    images = np.arange(0, 5000, 1 if name == "cider" else 5)
    references = {i: [sentences[5 * i + k] for k in range(5)] for i in images}
    random = np.random.default_rng(7)
    own, other = (
        images * 5 + random.integers(5, size=len(images)),
        random.integers(25_000, size=len(images)),
    )
    captions = np.where(np.arange(len(images)) % 2, own, other)
    given = references, {i: [sentences[c]] for i, c in zip(images, captions, strict=True)}
    expected = (
        theirs(4).compute_score(*given, verbose=0)[1][3]
        if name == "bleu"
        else theirs().compute_score(*given)[1]
    )
    assert np.abs(fitted.pairs(images, captions) - expected).max() < 1e-6
    some = np.arange(0, len(images), 25)
    matrix = fitted.score(images[some])[np.arange(len(some)), captions[some]]
    assert np.abs(matrix - np.array(expected)[some]).max() < 1e-5


def test_own_pairs_of_any_length_are_exactly_one() -> None:
    """ROUGE-L of every length, whatever rounding does: they tie, as they do in the reference
    library."""
    sets = [[" ".join(f"w{k}" for k in range(n)), "other words"] for n in range(1, 90)]
    captions = make_captions(sets)
    values = fit("rouge_l", sets).score(np.arange(len(sets)))
    assert (values[captions.owner, np.arange(captions.n_captions)] == 1).all()


def test_what_cannot_be_fitted() -> None:
    with pytest.raises(InputError, match="every CIDEr 0 -> set measures.cider.document_frequency"):
        fit("cider", [["a dog", "a cat"]])
    with pytest.raises(InputError, match="'i0#0' has 65536 tokens"):
        fit("bleu_1", [["a " * 65536]])


def test_document_frequencies_from_elsewhere(tmp_path: Path) -> None:
    """From a folder, FOLDER#split and a saved file: the same scores; one image is then no trap."""
    corpus, mine = random_sets(10, seed=5), [["a red dog runs", "the small dog"]]
    folder = write_captions_folder(
        tmp_path / "c", [caption_table(corpus, "train"), caption_table(corpus[:1], "val")]
    )
    Frequencies.of_captions(make_captions(corpus)).write(tmp_path / "df.arrow")
    expected = [slow_cider(caption, mine[0], corpus) for caption in mine[0]]
    for source in (f"{folder}#train", str(tmp_path / "df.arrow")):
        fitted = Cider(CiderParams(document_frequency=source)).fit(make_captions(mine))
        np.testing.assert_allclose(fitted.score(np.arange(1))[0], expected, atol=1e-5)


@pytest.mark.parametrize(("counted", "own"), [("ptb", "lower_split"), ("ptb_py", "ptb")])
def test_document_frequencies_of_another_tokenizer(counted: str, own: str, tmp_path: Path) -> None:
    table = make_captions(random_sets(4)).table
    Frequencies.of_captions(Captions(table, "test", counted, "digest")).write(tmp_path / "df.arrow")
    with pytest.raises(InputError, match=f"tokenizer {counted}; captions have tokenizer {own}"):
        Cider(CiderParams(document_frequency=str(tmp_path / "df.arrow"))).fit(
            Captions(table, "test", own, "digest")
        )


def test_ngrams_are_counted_as_the_obvious_way() -> None:
    """And numbered by how many words they have, then by the alphabet."""
    captions = make_captions([["b a b a b", ""], ["c"]])
    counted = count_ngrams(captions)
    texts, (start, stop, gram, counts, _) = (
        texts_of(counted.keys, counted.vocabulary).to_pylist(),
        counted.sentences,
    )
    for row, words in enumerate(captions.table["tokens"].to_pylist()):
        found = {
            texts[g]: int(counts[k])
            for a, b in zip(start[row], stop[row], strict=True)
            for k, g in enumerate(gram[a:b], a)
        }
        assert found == {" ".join(g): c for one in grams(" ".join(words)) for g, c in one.items()}
    assert texts == sorted(texts, key=lambda text: (text.count(" "), text.split()))

"""Scores of candidates against pycocoevalcap's own code, and what the measures are fed with."""

import shutil
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from capgrade.measures import MEASURES
from capgrade.measures.corpus import Corpus, pair_candidates
from capgrade.measures.frequencies import Frequencies
from capgrade.measures.meteor.english import as_meteor_reads, meteor_words
from capgrade.schemas.errors import InputError
from capgrade.scoring import score_corpus
from capgrade.text.tokens import number_words, tokenize, tokenize_as_words
from tests.capgrade.measures.test_definitions import slow_cider

# Few words, so that n-grams repeat; some captions have no word. Python splits at the no-break space
# that a fraction has, and at other spaces, not at those of no width; pycocoevalcap's BLEU and CIDEr
# do, its ROUGE does not.
SPACED = [
    "3\xa01/2",
    "3\u20031/2",
    "\u3000",
    "a\x1fdog",
    "the\x85",
    "a\u1680dog",
    "a\u200bdog",
    "\ufeffdog",
    "\t",
    "",
]
LINE = st.lists(
    st.sampled_from(["a", "dog", "runs", "the", "in", "a", "dog", "the", *SPACED]), max_size=9
).map(" ".join)
SETS = st.lists(st.tuples(LINE, st.lists(LINE, min_size=1, max_size=4)), min_size=2, max_size=6)


def corpus(pairs: list[tuple[str, list[str]]], **settings: Any) -> Corpus:
    return Corpus(pair_candidates([c for c, _ in pairs], [r for _, r in pairs]), "none", **settings)


def dicts(pairs: list[tuple[str, list[str]]]) -> tuple[dict, dict]:
    return {k: list(r) for k, (_, r) in enumerate(pairs)}, {
        k: [c] for k, (c, _) in enumerate(pairs)
    }


@settings(max_examples=60, deadline=None)
@given(SETS)
def test_equal_pycocoevalcap(pairs: list[tuple[str, list[str]]]) -> None:
    """On whatever tokens: corpus and sentence values of BLEU, CIDEr-D and ROUGE-L."""
    gts, res = dicts(pairs)
    # else pycocoevalcap's CIDEr ends with a ValueError
    assume(any(r.split() for own in gts.values() for r in own))
    ours = score_corpus(corpus(pairs), ["bleu", "cider", "rouge_l"])
    whole, each = Bleu(4).compute_score(gts, res, verbose=0)
    for k in range(4):
        np.testing.assert_allclose(ours[f"bleu_{k + 1}"].sentences, each[k], atol=1e-9)
        np.testing.assert_allclose(ours[f"bleu_{k + 1}"].corpus, whole[k], atol=1e-9)
    for name, peer in (("cider", Cider()), ("rouge_l", Rouge())):
        whole, each = peer.compute_score(gts, res)
        np.testing.assert_allclose(ours[name].sentences, each, atol=1e-9)
        np.testing.assert_allclose(ours[name].corpus, whole, atol=1e-9)


METEOR = [
    ("a man is riding a horse", ["a man rides a horse", "the man is riding horses"]),
    ("two dogs", ["two dogs", "two dogs"]),  # whole: the jar then adds no chunk to the corpus
    ("xyzzy", ["a dog", "the cat is here"]),  # nothing matches
    ("", ["a dog", "a cat"]),
    (
        "puppies play with a ball in the park",
        ["dogs are playing with the ball at the park", "a t-shirt 's"],
    ),
    ("a child 's t-shirt in the u.s.", ["the kid 's shirt", "child in a t - shirt"]),
    ("the the the", ["a the", "the of the in the on the"]),
    (
        "xyzzy",
        ["a dog", "two cats " * 40],
    ),  # the first of equal references counts, whatever their lengths
]
# More words than a number has bits, and more matches than there is room for at first; many
# paraphrases of many words.
LONG = [
    ("a big house " * 25, ["a big house " * 8]),
    (
        "topical and urgent subjects of major importance " * 13,
        [
            "current emergencies emergency events news now pressing relevant timeliness urgency "
            * 10,
            "a big house " * 9,
        ],
    ),
]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "dog",
                "'s",
                "a-b-c",
                "t-shirt",
                "o'clock",
                "''",
                "'",
                "u.s.",
                "2",
                "3's",
                "-",
                "n't",
                ",",
            ]
        )
    )
)
def test_meteor_reads_tokens_one_by_one_as_in_their_caption(tokens: list[str]) -> None:
    """Beside a caption of tokens that none of these is, so that both ways of reading are taken."""
    found = as_meteor_reads(number_words([tokens, ["a", "dog"]]), {"u.s": True})
    assert found.sentence(0) == meteor_words(" ".join(tokens), {"u.s": True})
    assert found.sentence(1) == ["a", "dog"]


@pytest.mark.skipif(shutil.which("java") is None, reason="no Java to run METEOR's jar")
def test_meteor_equals_the_jar(request: pytest.FixtureRequest) -> None:
    """Corpus and sentences, also on COCO's captions where they are here."""
    from pycocoevalcap.meteor.meteor import Meteor

    pairs = [*METEOR, *LONG, *_coco(200)]
    gts, res = dicts(pairs)
    whole, each = Meteor().compute_score(gts, res)
    ours = score_corpus(corpus(pairs), ["meteor"])["meteor"]
    np.testing.assert_allclose(ours.sentences, each, atol=1e-9)
    assert abs(ours.corpus - whole) < 1e-9
    assert abs(ours.corpus - ours.sentences.mean()) > 1e-3  # it is no mean


def _coco(images: int) -> list[tuple[str, list[str]]]:
    from tests.conftest import DATA

    path = DATA / "coco" / "test5k_captions.tsv"
    if not path.is_file():
        return []
    rows = [
        line.rstrip("\n").split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]
    ]
    found: dict[str, list[str]] = {}
    for image, _, caption in rows:
        found.setdefault(image, []).append(" ".join(tokenize("ptb_py", [caption])[0]))
    return [(one[0], one[1:]) for one in list(found.values())[:images]]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.text(alphabet="ab 1/2.'-t,\n\xa0é&", max_size=20), min_size=1, max_size=8))
def test_tokens_are_those_of_the_tokeniser(texts: list[str]) -> None:
    """Pieces that are read once for all captions, others by themselves; writable, as kernels are
    compiled for such."""
    for name in ("ptb_py", "lower_split", "none"):
        words = tokenize_as_words(texts, name)
        expected = [text.split(" ") for text in texts] if name == "none" else tokenize(name, texts)
        assert [words.sentence(k) for k in range(len(texts))] == expected
        assert words.word.dtype == np.int32 and words.ptr.dtype == np.int64
        assert words.word.flags.writeable and words.ptr.flags.writeable


@settings(max_examples=40, deadline=None)
@given(SETS, SETS)
def test_given_frequencies(
    pairs: list[tuple[str, list[str]]], others: list[tuple[str, list[str]]]
) -> None:
    """Counted on other captions: as a corpus whose references they are, of which some images are
    looked at."""
    for counted in (others, pairs):
        sets = [references for _, references in counted]
        frequencies = Frequencies.of(sets, "none")
        ours = (
            MEASURES["cider"]().of_corpus(corpus(pairs, frequencies=frequencies))["cider"].sentences
        )
        np.testing.assert_allclose(
            ours, [slow_cider(c, references, sets) for c, references in pairs], atol=1e-9
        )


def test_frequencies_of_another_tokeniser_are_refused() -> None:
    with pytest.raises(InputError, match="tokenizer ptb_py, captions with none"):
        corpus([("a", ["a"])], frequencies=Frequencies.of([["a"], ["b"]]))


def test_long_sentences() -> None:
    """N-grams that are sorted the other way, and more matches than METEOR's aligner has room for at
    first."""
    words = [
        "a",
        "dog",
        "and",
        "a",
        "cat",
        "and",
        "the",
        "man",
        "in",
        "a",
        "park",
        "with",
        "the",
        "ball",
    ]
    pairs = [
        (
            " ".join(words[k % 13] for k in range(150)),
            [" ".join(words[(3 * k) % 13] for k in range(140))],
        ),
        ("a", ["a b"]),
    ]
    gts, res = dicts(pairs)
    np.testing.assert_allclose(
        score_corpus(corpus(pairs), ["cider"])["cider"].sentences,
        Cider().compute_score(gts, res)[1],
    )
    assert 0 < score_corpus(corpus(pairs), ["meteor"])["meteor"].sentences[0] < 1

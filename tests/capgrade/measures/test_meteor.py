"""METEOR pair by pair; its paraphrase table as arrays, kept, damaged and broken.

METEOR's values are compared with the jar's in `test_corpus`.
"""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.measures.meteor import paraphrases
from capgrade.measures.meteor.fitted import FittedMeteor, index_captions
from capgrade.measures.meteor.paraphrases import Paraphrases, compile_table
from capgrade.schemas.errors import InputError
from capgrade.schemas.say import CapgradeWarning
from capgrade.text.tokens import tokens_of
from tests.conftest import make_captions

# Stems, synonyms, paraphrases of one word and of several, function words among them
PHRASES = [
    (
        "a the man men woman women large big huge home house is riding rides ride bicycle bike two"
        " dogs dog puppy many"
    ),
    (
        "in front of before next to beside near in the background a lot of on top of the field the"
        " woman"
    ),
]
ENGLISH = [word for line in PHRASES for word in line.split()]


def english_sets(images: int, seed: int, words: int) -> list[list[str]]:
    """One to ten captions of up to `words` words, one empty, one that matches nothing, one many
    times."""
    rng = np.random.default_rng(seed)
    texts = [
        [rng.choice(ENGLISH, rng.integers(1, words)) for _ in range(rng.integers(2, 11))]
        for _ in range(images)
    ]
    sets = [[" ".join(text) for text in one] for one in texts]
    sets[0][0], sets[1][0] = "", "zzz yyy"
    for k in range(2, images, 4):
        sets[k][0] = sets[2][1]
    return sets


def fit(sets: list[list[str]], left_out: bool = False) -> FittedMeteor:
    """As `Meteor.fit`, whatever the language."""
    captions = make_captions(sets)
    index = index_captions(tokens_of(captions), captions.caption_ids)
    return FittedMeteor(captions.ref_ptr, captions.refs, left_out, *index)


@settings(max_examples=15, deadline=None)
@given(st.integers(8, 15), st.integers(0, 10_000), st.booleans(), st.sampled_from([12, 30, 70]))
def test_a_pair_hangs_on_no_other_pair(images: int, seed: int, left_out: bool, words: int) -> None:
    fitted = fit(english_sets(images, seed, words), left_out)
    image, row = np.random.default_rng(seed).integers([images, fitted.columns], size=(50, 2)).T
    assert (
        fitted.pairs(image, row).tobytes() == fitted.score(np.arange(images))[image, row].tobytes()
    )


def test_what_the_jar_would_take_for_several_captions_is_refused_and_what_is_too_long() -> None:
    with pytest.raises(InputError, match=r"has '\|\|\|'"):
        fit([["a dog ||| a cat", "a bird"]])
    with pytest.raises(
        InputError, match="caption 'i0#1' has 2001 words, meteor takes 2000 at most -> shorten it"
    ):
        fit([["a bird", "a dog " * 1000 + "runs"]])


TABLE = [
    ("a dog", "the dog"),
    ("dog", "hound"),
    ("a dog", "a hound"),
    ("the", "a"),
    ("dog", "a dog"),
]
TEXT = "".join(f"0.5\n{a}\n{b}\n" for a, b in TABLE)


@pytest.mark.parametrize("text", ["", "0.5\na dog\n", "0.5\n", TEXT + "0.5\na\n"])
def test_a_broken_entry_is_named(text: str) -> None:
    with pytest.raises(
        ValueError, match=f"entry {text.count(chr(10)) // 3} of the paraphrase table is cut short"
    ):
        compile_table(text.encode())


def test_kept_and_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("CAPGRADE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "paraphrases.gz"
    path.write_bytes(gzip.compress(TEXT.encode()))
    read = paraphrases.read_paraphrases.__wrapped__
    first = read(path)
    monkeypatch.setattr(paraphrases, "compile_table", lambda _: pytest.fail("it was kept"))
    same_arrays(read(path), first)
    monkeypatch.undo()
    monkeypatch.setenv("CAPGRADE_CACHE", str(tmp_path / "cache"))
    kept = sorted((tmp_path / "cache").rglob("*.npy"))
    assert len(kept) == len(Paraphrases._fields)
    kept[0].write_bytes(b"damaged")
    same_arrays(read(path), first)
    monkeypatch.setenv("CAPGRADE_CACHE", str(path / "below a file"))
    with pytest.warns(CapgradeWarning, match="cannot be kept"):
        same_arrays(read(path), first)
    path.write_bytes(b"no gzip")
    with pytest.raises(InputError, match="cannot be read"):
        read(path)


def same_arrays(one: Paraphrases, other: Paraphrases) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)

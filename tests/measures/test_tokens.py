"""Tokenizers: `ptb_py` against the jar on every real caption, a frozen table of odd ones, and what goes wrong."""

from __future__ import annotations

import re
import shutil

import pytest
from conftest import DATA
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.measures import tokens
from pipelines.measures.tokens import tokenize
from schemas.errors import InputError

needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here")

# What the jar prints, less the punctuation that pycocoevalcap removes.
ODD = {
    "A man with a red helmet on a small moped .": "a man with a red helmet on a small moped",
    "I can't, don't and won't.": "i ca n't do n't and wo n't",
    "You cannot; gonna gotta wanna lemme gimme.": "you can not gon na got ta wan na lem me gim me",
    "John's dogs' bowls, it's I'm you're": "john 's dogs bowls it 's i 'm you 're",
    "we've he'd she'll": "we 've he 'd she 'll",
    "rock'n'roll rock 'n' roll o'clock": "rock 'n' roll rock 'n' roll o'clock",
    "ma'am y'all O'Reilly": "ma'am y' all o'reilly",
    "'tis 'twas d'ye 'em": "'t is 't was d'ye 'em",
    "“smart” ‘quotes’ it’s don’t": "smart quotes it 's do n't",
    "``old'' 'single' \"double\"": "old single double",
    "well-known 3-year-old T-shirt e-mail": "well-known 3-year-old t-shirt e-mail",
    "a--b a - b a—b a–b": "a b a b a b a b",
    "1,000 3.5 -5 +5 10% 50%off": "1,000 3.5 -5 +5 10 % 50 % off",
    "1/2 ½ 3½ 12/25/2010": "1/2 1/2 3 1/2 12/25/2010",
    "$5 £5 €5 5¢ US$5 #1": "$ 5 # 5 $ 5 5 cents us$ 5 # 1",
    "'90s 90's 3:30 3:30pm 5pm 3rd 4x4 1960s-era": "'90s 90 's 3:30 3:30 pm 5pm 3rd 4x4 1960s-era",
    "Mr. Smith of St. Ives, a.m. p.m. etc. vs. Ph.D": "mr. smith of st. ives a.m. p.m. etc. vs. ph.d",
    "U.S. D.C. U.S.A. J.R. t.v e.e.cummings a. b.": "u.s. d.c. u.s.a. j.r. t.v e.e.cummings a. b.",
    "no.1 no. 5 no.": "no. 1 no. 5 no",
    "road.the end.A foo.bar a!b a?b": "road.the end.a foo.bar a!b a?b",
    "wow!! what?! hm.. so... …": "wow !! what ?! hm so",
    "http://www.x.com/a?b=c www.foo.com foo.com a@b.co": "http://www.x.com/a?b=c www.foo.com foo.com a@b.co",
    "@user #tag": "@user #tag",
    "<b>bold</b> &amp; &lt;": "<b> bold </b> & <",
    "AT&T r&b black&white R&B": "at&t r & b black & white r&b",
    "(a) [b] {c}": "-lrb- a -rrb- -lsb- b -rsb- -lcb- c -rcb-",
    ":-) :) ;-)": ":--rrb- :-rrb- ;--rrb-",
    "and/or he/she sit-ups/pull-ups w/ w/o a\\b": "and/or he/she sit-ups/pull-ups w / w/o a \\ b",
    "a*b a** a_b __x__ a~b x^2 a|b a+b c++ a=b": "a * b a ** a_b __ x __ a ~ b x ^ 2 a | b a + b c++ a = b",
    "café naïve Über 日本語": "café naïve über 日本語",
    "🐶dog dog😀": "dog dog",
    "\u00a0nb\u00a0sp a\u200bb co\u00adop": "nb sp a b coop",
    '°C 30° 12" 8x10 I-95 B-52s': "° c 30 ° 12 8x10 i-95 b-52s",
    "-foo foo- - walkie-": "foo foo walkie",
    "a ; b : c , d": "a b c d",
    "   ": "",
    "...": "",
}


@pytest.mark.parametrize("name", ["ptb_py", pytest.param("ptb", marks=needs_java)])
def test_odd_captions(name: str) -> None:
    found = [" ".join(words) for words in tokenize(name, list(ODD))]
    assert dict(zip(ODD, found, strict=True)) == ODD


def real_captions() -> list[str]:
    coco, flickr = DATA / "coco" / "test5k_captions.tsv", DATA / "flickr8k" / "Flickr8k.token.txt"
    if not (coco.is_file() and flickr.is_file()):
        pytest.skip("the captions of ../shared/data are not here")
    rows = [line.split("\t", 2)[2] for line in coco.read_text(encoding="utf-8").split("\n")[1:] if line]
    return rows + [line.split("\t", 1)[1] for line in flickr.read_text(encoding="utf-8").split("\n") if line]


@needs_java
@pytest.mark.parametrize("written", ["as the data sets have them", "as people write them"])
def test_ptb_py_equals_the_jar_on_every_real_caption(written: str) -> None:
    """The data sets' captions come with spaces before punctuation; without these, every period is a question."""
    captions = real_captions()
    assert len(captions) == 65_460
    if written == "as people write them":
        captions = [re.sub(r" (?=[.,!?;:)]|'s|n't|'re|'ll|'')", "", caption) for caption in captions]
    # The jar looks past a line's end for a sentence's first word: a plain word between two captions keeps them apart.
    jar = tokenize("ptb", [line for caption in captions for line in (caption, "x")])[::2]
    differ = [
        (caption, a, b) for caption, a, b in zip(captions, jar, tokenize("ptb_py", captions), strict=True) if a != b
    ]
    assert not differ, (len(differ), differ[:3])


@given(st.lists(st.text(max_size=60), max_size=5))
@settings(max_examples=300, deadline=None)
def test_any_text_gives_one_clean_list_a_caption(captions: list[str]) -> None:
    for name in ("ptb_py", "lower_split", "word_unigram"):
        found = tokenize(name, captions)
        assert len(found) == len(captions)
        assert all(word and " " not in word and "\n" not in word for words in found for word in words)


@needs_java
def test_line_breaks_do_not_shift_captions() -> None:
    captions = ["a\nb", "c\u2028d\x85e", "", "f\r\ng\x0bh\x0ci"]
    assert tokenize("ptb", captions) == tokenize("ptb_py", captions) == [["a", "b"], ["c", "d", "e"], [], list("fghi")]


def test_the_other_papers_tokens() -> None:
    assert tokenize("lower_split", ["A dog's  toy ."]) == [["a", "dog's", "toy", "."]]
    assert tokenize("word_unigram", ["A dog's 3-D toy ."]) == [["dog", "toy"]]


def test_missing_java_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="tokenizer ptb needs Java -> install a Java runtime, or use ptb_py"):
        tokenize("ptb", ["a dog"])


@needs_java
def test_failing_java_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "JAR", "nothing.jar")
    with pytest.raises(InputError, match="PTBTokenizer failed: exit status 1, 0 lines for 1 captions -> use ptb_py"):
        tokenize("ptb", ["a dog"])


def test_unknown_tokenizer() -> None:
    with pytest.raises(
        InputError, match="unknown tokenizer 'nltk' -> choose from: ptb_py, ptb, lower_split, word_unigram"
    ):
        tokenize("nltk", ["a"])

"""Tokenizers: `ptb_py` against the jar on every real caption, a frozen table of odd ones, what goes
wrong."""

import os
import re
import shutil
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.schemas.errors import InputError
from capgrade.text import ptb, tokens
from capgrade.text.tokens import remove_line_breaks, tokenize, tokenize_as_words
from tests.conftest import DATA

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
    "Mr. Smith of St. Ives, a.m. p.m. etc. vs. Ph.D": (
        "mr. smith of st. ives a.m. p.m. etc. vs. ph.d"
    ),
    "U.S. D.C. U.S.A. J.R. t.v e.e.cummings a. b.": "u.s. d.c. u.s.a. j.r. t.v e.e.cummings a. b.",
    "no.1 no. 5 no.": "no. 1 no. 5 no",
    "road.the end.A foo.bar a!b a?b": "road.the end.a foo.bar a!b a?b",
    "wow!! what?! hm.. so... …": "wow !! what ?! hm so",
    "http://www.x.com/a?b=c www.foo.com foo.com a@b.co": (
        "http://www.x.com/a?b=c www.foo.com foo.com a@b.co"
    ),
    "@user #tag": "@user #tag",
    "<b>bold</b> &amp; &lt;": "<b> bold </b> & <",
    "AT&T r&b black&white R&B": "at&t r & b black & white r&b",
    "(a) [b] {c}": "-lrb- a -rrb- -lsb- b -rsb- -lcb- c -rcb-",
    ":-) :) ;-)": ":--rrb- :-rrb- ;--rrb-",
    "and/or he/she sit-ups/pull-ups w/ w/o a\\b": "and/or he/she sit-ups/pull-ups w / w/o a \\ b",
    "a*b a** a_b __x__ a~b x^2 a|b a+b c++ a=b": (
        "a * b a ** a_b __ x __ a ~ b x ^ 2 a | b a + b c++ a = b"
    ),
    "café naïve Über 日本語": "café naïve über 日本語",
    "🐶dog dog😀": "dog dog",
    "\u00a0nb\u00a0sp a\u200bb co\u00adop": "nb sp a b coop",
    '°C 30° 12" 8x10 I-95 B-52s': "° c 30 ° 12 8x10 i-95 b-52s",
    "-foo foo- - walkie-": "foo foo walkie",
    "a ; b : c , d": "a b c d",
    "I can'ta, cannots, whatcha gonnas": "i ca n'ta cannots whatcha gonnas",
    "dogs'. James's o'er ne'er-do-well c'mon y'know": (
        "dogs james 's o'er ne'er do-well c'mon y' know"
    ),
    "rock'n roll, Dunkin' Donuts, s'mores, ol' man": "rock 'n roll dunkin' donuts s'mores ol' man",
    "It's the boss's; who'd've, she'd n't N'T": "it 's the boss 's who 'd 've she 'd n't n't",
    "‘tis ’90s ‚low‛ „low” «g» ‹s› “‘both’”": "tis ’90s ‚ low „ low g s ``` both '''",
    "--- ---- ----- ―— ‐‑‒": "-----",
    "hm.... hm..... hm...... . . . ..": "hm hm hm",
    "1,000,000.50 1.2.3 .5 3:30:15 ١٢٣ ３": "1,000,000.50 1.2.3 .5 3:30:15 ١٢٣ ３",
    "3 1/2 cups 10\xa01/4 1⁄2 ⅔ ⅞ 11/2/99 1-2-2010": (
        "3\xa01/2 cups 10\xa01/4 1⁄2 2/3 ⅞ 11/2/99 1-2-2010"
    ),
    "x² H₂O 10⁻³ m³": "x ² h ₂ o 10 ⁻³ m ³",
    "call (555) 555-1234 or": "call -lrb-555-rrb-\xa0555-1234 or",
    "555 123 4567 or 555.555.1234": "555\xa0123\xa04567 or 555.555.1234",
    "$1.50 US$5.00 C$3 ¥10 ₹10 10¢ £1.20 €3": "$ 1.50 us$ 5.00 c$ 3 ¥ 10 10 10 cents # 1.20 $ 3",
    "the 1990's, the '80s, '05 and '60": "the 1990 's the '80s '05 and '60",
    "5'10\" tall 6ft. 12' x 4'": "5 10 tall 6ft 12 x 4",
    "approx. e.g. i.e. no. nos. 5 fig. 3": "approx e.g. i.e. no nos. 5 fig. 3",
    "Mon. Jan. 5th, Inc. Co. Ltd. Jr. Blvd. Rd.": "mon. jan. 5th inc. co. ltd. jr. blvd. rd.",
    "Wii U. The Wii U. a plan B. It is": "wii u the wii u. a plan b it is",
    "the U.S. The army; the U.S. army; non-U.S.": "the u.s. the army the u.s. army non-u.s.",
    "Mr Smith Dr.Who st.louis a.m.": "mr smith dr.who st.louis a.m.",
    "https://x.y/?q=(a) ftp://a.b": "https://x.y/?q= -lrb- a -rrb- ftp / / a.b",
    "WWW.FOO.COM/a, foo.org.": "www.foo.com / a foo.org",
    "see bar@foo.com. <a@b.co> mailto:a@b": "see bar@foo.com <a@b.co> mailto:a@b",
    "@a_b @1 #tag1 #café #1 ##": "@a_b @ 1 #tag 1 #café # 1 ##",
    "=) :D :P ;o) <:( :] x:)b": "=-rrb- :d :p ;o-rrb- <:-lrb- :] x -rrb- b",
    "(-_-) ^_^ >_<": "-lrb--_--rrb- ^_^ >_<",
    "<br/> <a href='x y'> <!-- c -->": "<br/> <a\xa0href='x\xa0y'> <!--\xa0c\xa0-->",
    '<p class="z">t</p>': '<p\xa0class="z"> t </p>',
    "<3 <<a>> < b >": "< 3 << a >> < b >",
    "&lt;b&gt; &quot;q&quot; &nbsp; &eacute;t&eacute;": "< b > q &eacute;t&eacute;",
    "&#39; &mdash; R&amp;B": "&#39; r&b",
    "-LRB- -rrb- pro- anti- S&P-500 C.D.s Cap'n c'est": (
        "-lrb- -rrb- pro- anti- s&p-500 c.d.s cap'n c'est"
    ),
    "photo.jpg a.b.html, notes.txt? x.c y.d": "photo.jpg a.b.html notes.txt x.c y.d",
    "a/b/c 24/7 w/o km/h \\/ 1\\/2 either/or-not": "a/b/c 24/7 w/o km/h \\ / 1\\/2 either/or-not",
    "** \\* *a* ## @@ __ ~~ ^^ || ++ == %%": "** \\* * a * ## @@ __ ~ ~ ^ ^ | | + + = = % %",
    "İstanbul Iı ſ K ÅÉ ΑΣ ǅ": "i\u0307stanbul iı ſ k åé ας ǆ",
    "naïve re\u0301sume\u0301 हिन्दी": "naïve re\u0301sume\u0301 हिन्दी",
    "ไทย עברית العربية 한국어": "ไทย עברית العربية 한국어",
    "👨\u200d👩\u200d👧 ♥ ★ ™ © 😀.com http://a.b/😀": "♥ ★ ™ © 😀.com http://a.b/😀",
    "\xad co\xad-op a\xadn't": "co-op a n't",
    "tab\x09here nb\xa0sp em\u2003sp id\u3000sp zw\u200dj \ufeffbom": (
        "tab here nb sp em sp id sp zw j bom"
    ),
    "\x01 \x7f \x80 \x85 \x91q\x92 \x96 � \ue000": "$ q",
    "¡hola! ¿qué? 。 ！ 、 ・": "¡ hola ¿ qué 。 ！ 、 ・",
    "road.the. a.b.c. Go!Now x?y": "road.the a.b.c. go!now x?y",
    "etc.), etc., (etc.) vs., al.: St.-Denis": "etc. -rrb- etc. -lrb- etc. -rrb- vs. al. st.-denis",
    "walk-in/drive-thru two-year-old's A.B.-c x-ray.,": (
        "walk-in/drive-thru two-year-old 's a.b.-c x-ray."
    ),
    "   ": "",
    "...": "",
    "half a \ud83d character": "half a character",
    "a\nb": "a b",
    "c\u2028d\x85e\u2029f": "c d e f",
    "the \u212ay. \u017ft. f\u0131g. 3": "the ky. \u017ft. f\u0131g. 3",
    "f\r\ng\x0bh\x0ci": "f g h i",
}


@pytest.mark.parametrize("name", ["ptb_py", pytest.param("ptb", marks=needs_java)])
def test_odd_captions(name: str) -> None:
    found = [" ".join(words) for words in tokenize(name, list(ODD))]
    assert dict(zip(ODD, found, strict=True)) == ODD


def real_captions() -> list[str]:
    coco, flickr = DATA / "coco" / "test5k_captions.tsv", DATA / "flickr8k" / "Flickr8k.token.txt"
    if not (coco.is_file() and flickr.is_file()):
        pytest.skip("the captions of ../shared/data are not here")
    rows = [
        line.split("\t", 2)[2] for line in coco.read_text(encoding="utf-8").split("\n")[1:] if line
    ]
    return rows + [
        line.split("\t", 1)[1] for line in flickr.read_text(encoding="utf-8").split("\n") if line
    ]


def as_people_write_them(captions: list[str]) -> list[str]:
    """The data sets' captions have spaces before punctuation; without these, every period is a
    question."""
    return [re.sub(r" (?=[.,!?;:)]|'s|n't|'re|'ll|'')", "", caption) for caption in captions]


def with_odd_pieces(captions: list[str]) -> list[str]:
    """Pieces of the odd captions inserted into some, at spaces and inside words."""
    random = Random(0)
    pieces = [piece for odd in ODD for piece in odd.split(" ")]
    captions = random.sample(captions, 10_000)
    for i, caption in enumerate(captions):
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(caption) + 1)
            piece = random.choice(pieces)
            caption = caption[:at] + random.choice([piece, f" {piece} "]) + caption[at:]
        captions[i] = caption
    return captions


@needs_java
@pytest.mark.parametrize("written", [list, as_people_write_them, with_odd_pieces])
def test_ptb_py_equals_the_jar_on_real_captions(written: Callable[[list[str]], list[str]]) -> None:
    """The jar looks past a line for a sentence's first word; after each changed caption stands one
    that is none."""
    captions = real_captions()
    assert len(captions) == 65_460
    captions = written(captions)
    between = written is not list
    jar = tokenize("ptb", [line for caption in captions for line in [caption, "x"][: 1 + between]])[
        :: 1 + between
    ]
    found = zip(captions, jar, tokenize("ptb_py", captions), strict=True)
    assert [(caption, theirs, ours) for caption, theirs, ours in found if theirs != ours][:5] == []


STARTS = [
    "A man",
    "The dog runs",
    "two men",
    "ltd here",
    "3 dogs",
    "<b> tag",
    "About it",
    "",
    "(x) y",
    "5",
]
ENDS = [
    "x a.",
    "vitamin A.",
    "U.S.",
    "Mr.",
    "3 p.m.",
    "a dog",
    "no.",
    "pt.",
    "co.",
    "J. R.",
    "see fig.",
    "plan u.",
]


@needs_java
def test_a_list_in_order_equals_the_jar_at_the_ends_of_captions() -> None:
    """`A man takes vitamin A.` is another caption for the jar before `The dog` than before `two
    men`."""
    random = Random(0)
    captions = [f"{random.choice(STARTS)} is {random.choice(ENDS)}" for _ in range(1500)]
    captions[::7] = ["", "A", "The"] * 71 + ["", ""]
    jar, ours = tokenize("ptb", captions), tokenize_as_words(captions, "ptb_py", lists=(0,))
    assert [captions[k : k + 3] for k in range(1500) if jar[k] != ours.sentence(k)] == []
    assert (
        sum(one != other for one, other in zip(jar, tokenize("ptb_py", captions), strict=True))
        > 100
    )
    two = tokenize_as_words(captions, "ptb_py", lists=(0, 700))
    first = tokenize_as_words(captions[:700], "ptb_py", lists=(0,))
    assert [two.sentence(k) for k in range(700)] == [first.sentence(k) for k in range(700)]


ALMOST_RULES = "aAIUtnsm'.,!?-:;/<>&@#$%0123456789()\"` \xa0\xad’½"
ANY_TEXT = st.text(max_size=60) | st.text(alphabet=ALMOST_RULES, max_size=40)


@given(st.lists(ANY_TEXT, max_size=5))
@settings(max_examples=300, deadline=None)
def test_any_text_gives_one_clean_list_a_caption(captions: list[str]) -> None:
    for name in ("ptb_py", "lower_split", "word_unigram"):
        found = tokenize(name, captions)
        assert len(found) == len(captions)
        # A no-break space may stand inside a token: "3\xa01/2" is one for the jar, too.
        assert all(
            word and not re.search("[ \n\r\u2028]", word) for words in found for word in words
        )
        assert found == [tokenize(name, [caption])[0] for caption in captions]


PIECES = [
    "a",
    "I",
    "dog",
    "dog's",
    "'s",
    "'ll",
    "''",
    "``",
    "Mr.",
    "in.",
    ".",
    "-",
    ":",
    "man-eating,",
    "is",
    "na",
    "",
]
CHUNKS = st.lists(st.sampled_from(PIECES), max_size=9).map(" ".join)


@given(ANY_TEXT | CHUNKS)
@settings(max_examples=600, deadline=None)
def test_chunks_that_are_read_alone_change_nothing(caption: str) -> None:
    """The quick way through a caption of plain chunks, against the lexer over the whole line."""
    (line,) = remove_line_breaks([caption])
    assert tokenize("ptb_py", [line]) == [ptb.ptb_tokens(line)]


def test_the_other_papers_tokens() -> None:
    assert tokenize("lower_split", ["A dog's  toy ."]) == [["a", "dog's", "toy", "."]]
    assert tokenize("word_unigram", ["A dog's 3-D toy ."]) == [["dog", "toy"]]


@pytest.mark.parametrize(
    ("name", "path", "jar", "message"),
    [
        ("nltk", None, None, "unknown tokenizer 'nltk' -> choose from: ptb_py, ptb, lower_split, word_unigram"),
        ("ptb", "", None, "tokenizer ptb needs Java -> install a Java runtime >= 8, or use ptb_py"),
        pytest.param(
            "ptb", None, "no.jar", "PTBTokenizer failed: exit status 1, 0 lines for 1 captions -> use ptb_py",
            marks=needs_java,
        ),
    ],
)  # fmt: skip
def test_no_tokens_are_an_error(
    name: str, path: str, jar: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"] if path is None else path)
    monkeypatch.setattr(tokens, "PTB_JAR", jar or tokens.PTB_JAR)
    with pytest.raises(InputError, match=message):
        tokenize(name, ["a dog"])

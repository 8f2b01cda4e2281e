"""Stems of words, real and made up of vowels, apostrophes and endings, are those of METEOR's
jar."""

import random
import shutil
import subprocess

import pytest

from capgrade.measures.meteor.english import JAR, meteor_folder, read_lexicon
from capgrade.measures.meteor.stems import stem

# What version 3 of Snowball has otherwise, and what its lists of exceptions hold: as the jar has
# them.
OF_THE_JAR = {
    "zoologist": "zoologist",
    "emergence": "emerg",
    "ebbing": "eb",
    "offing": "of",
    "lateral": "later",
    "pasted": "past",
    "organically": "organ",
    "universally": "univers",
    "internalization": "intern",
    "skis": "ski",
    "dying": "die",
    "news": "news",
    "herrings": "herring",
    "generously": "generous",
    "communities": "communiti",
    "arsenal": "arsenal",
    "boys'": "boy",
    "hoping": "hope",
    "hopping": "hop",
    "flies": "fli",
    "ties": "tie",
    "yy": "yy",
}
ENDINGS = (
    "s 's 's' ' ed edly ing ingly eed eedly ational iveness ogi li ement ion ative y ll e ied ies"
    " fulli us ss"
)


def test_words_that_other_versions_stem_otherwise() -> None:
    assert {word: stem(word) for word in OF_THE_JAR} == OF_THE_JAR


def test_every_word_has_the_stem_of_the_jar() -> None:
    if shutil.which("java") is None:
        pytest.skip("no Java on this machine")
    draw = random.Random(0)
    ends = ["", "", *ENDINGS.split()]
    made = {
        "".join(draw.choices("aeiouyybdglmtsxwYé-'", k=draw.randint(1, 6)))
        + draw.choice(ends)
        + draw.choice(ends)
        for _ in range(10_000)
    }
    words = sorted([*made, *list(read_lexicon().synsets)[::15]])
    command = [
        "java",
        "-Dfile.encoding=UTF-8",
        "-Dstdout.encoding=UTF-8",
        "-cp",
        str(meteor_folder() / JAR),
        "Stemmer",
    ]
    done = subprocess.run(
        [*command, "en"], input="\n".join(words), capture_output=True, encoding="utf-8", check=True
    )
    theirs = done.stdout.split("\n")[:-1]
    assert len(theirs) == len(words) > 15_000
    assert {
        w: stem(w) for w, other in zip(words, theirs, strict=True) if stem(w) != other.strip()
    } == {}

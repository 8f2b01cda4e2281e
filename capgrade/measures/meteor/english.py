"""METEOR's English: what pycocoevalcap's jar knows of words, and how it reads a line of tokens.

The jar has function words, abbreviations and WordNet. Its reading is the normalisation that `-norm`
switches on, with punctuation: it runs on the caption's tokens joined by spaces, as pycocoevalcap
hands them over, and may split them once more ("dog 's" becomes "dog ' s"). `docs/measures.md` has
how equal it was measured to be.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capgrade.measures.meteor.stems import stem
from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import package_folder
from capgrade.schemas.files import file_digest
from capgrade.text.tokens import Words, retokenize

JAR = "meteor-1.5.jar"
REINSTALL = "install pycocoevalcap again"
PARAPHRASES = "data/paraphrase-en.gz"
_INFLECTIONS = (
    ("s", ""),
    ("ses", "s"),
    ("xes", "x"),
    ("zes", "z"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("men", "man"),
    ("ies", "y"),
    ("s", ""),
    ("ies", "y"),
    ("es", "e"),
    ("es", ""),
    ("ed", "e"),
    ("ed", ""),
    ("ing", "e"),
    ("ing", ""),
    ("er", ""),
    ("est", ""),
    ("er", "e"),
    ("est", "e"),
)
_ALPHA = "A-Za-zŠŽšžŸÀ-ÖØ-öø-žЀ-ӿԀ-ԧꙀ-ꙮ꙾-ꚗᴀ-ᵿ"
_PLAIN = re.compile("[a-z0-9 ]*")  # what nothing below changes
_STEPS = [
    (rf"([^0-9{_ALPHA} \t\n\x0b\f\r.'`,\-‘’])", r" \1 "),
    (r"\.(\.+)", r" DOTMULTI\1"),
]
_MORE_DOTS = re.compile(r"DOTMULTI\.([^.])")
_LATER_STEPS = [
    (r"([^0-9]),([^0-9])", r"\1 , \2"),
    (r"([0-9]),([^0-9])", r"\1 , \2"),
    (r"([^0-9]),([0-9])", r"\1 , \2"),
    (r"[`‘’]", "'"),
    (r"[“”]|''", ' " '),
    (r"–", "-"),
    (r"--", "-"),
    (rf"([0-9{_ALPHA}.])-([0-9{_ALPHA}])", r"\1 \2"),
    (rf"([^{_ALPHA}])'([^{_ALPHA}])", r"\1 ' \2"),
    (rf"([^{_ALPHA}0-9])'([{_ALPHA}])", r"\1 ' \2"),
    (rf"([{_ALPHA}])'([^{_ALPHA}])", r"\1 ' \2"),
    (rf"([{_ALPHA}])'([{_ALPHA}])", r"\1 '\2"),
    (r"([0-9])'(s)", r"\1 '\2"),
]
_HAS_LETTER = re.compile(f"[{_ALPHA}]")
_SPACES = re.compile("[ \u2000-\u200a\u202f\u205f\u3000\xa0]+")
_BREAKS = re.compile("[ \t\n\r\f]+")
_BLANK = "".join(map(chr, range(33)))
# Tokens that METEOR reads alike in any sentence of such tokens.
_ALONE = re.compile("[a-z0-9]+(?:['-][a-z0-9]+)*|'[a-z]+")


def meteor_folder() -> Path:
    """The installed pycocoevalcap's folder of METEOR. InputError when jar or data are missing."""
    folder = package_folder("pycocoevalcap.meteor")
    for name in (JAR, PARAPHRASES):
        if not (folder / name).is_file():
            raise InputError("METEOR's data is missing", file=folder / name, remedy=REINSTALL)
    return folder


def meteor_files(*names: str) -> dict[str, str]:
    """SHA-256 of these files of METEOR, by their last names."""
    folder = meteor_folder()
    return {Path(name).name: file_digest(folder / name) for name in names}


class Word(NamedTuple):
    """What METEOR knows of one word."""

    key: int  # words of one hash are one word
    stem_key: int
    is_function: bool
    synsets: tuple[int, ...]


def _java_hash(word: str) -> int:
    """Java's String.hashCode: METEOR takes words of one hash for one word."""
    h = 0
    units = np.frombuffer(word.encode("utf-16-le", "surrogatepass"), "<u2").tolist()
    for unit in units:
        h = (31 * h + unit) & 0xFFFFFFFF
    return h


@dataclass(frozen=True)
class Lexicon:
    """What METEOR knows of English words."""

    function_words: frozenset[str]
    abbreviations: dict[str, bool]  # true: only before a number
    exceptions: dict[str, list[str]]  # irregular form -> base forms
    synsets: dict[str, tuple[int, ...]]  # WordNet's synonym sets of each base form
    paraphrases: Path

    words: dict[str, Word] = field(default_factory=dict)  # those asked for

    def look_up(self, word: str) -> Word:
        """What there is to know of a word, found out once."""
        entry = self.words.get(word)
        if entry is None:
            is_function = word.lower() in self.function_words
            synsets = tuple(self.synsets_of(word))
            entry = Word(_java_hash(word), _java_hash(stem(word)), is_function, synsets)
            self.words[word] = entry
        return entry

    def synsets_of(self, word: str) -> set[int]:
        """Synonym sets of a word as it stands and of its base forms."""
        bases = self.exceptions.get(word)
        forms = [word, *([self._base(word)] if bases is None else bases)]
        return {synset for form in forms for synset in self.synsets.get(form, ())}

    def _base(self, word: str) -> str:
        """WordNet's regular inflections undone; the first that makes a known word, else nothing."""
        if word.endswith("ss") or len(word) <= 2:
            return word
        bases = (word[: -len(end)] + new for end, new in _INFLECTIONS if word.endswith(end))
        return next((base for base in bases if base in self.synsets), "")


def read_jar(folder: Path, *names: str) -> list[list[str]]:
    """The lines of these files in METEOR's jar. InputError when it cannot be read."""
    try:
        with zipfile.ZipFile(folder / JAR) as jar:
            return [jar.read(name).decode().splitlines() for name in names]
    except (OSError, KeyError, zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", file=folder / JAR, remedy=REINSTALL) from error


@cache
def read_lexicon(folder: Path | None = None) -> Lexicon:
    """The jar's English data, read once a process. InputError when it cannot be read."""
    folder = folder or meteor_folder()
    functions, prefixes, exceptions, synsets = read_jar(
        folder,
        "function/english.words",
        "nonbreaking/english.prefixes",
        "synonym/english.exceptions",
        "synonym/english.synsets",
    )
    abbreviations = [
        fields for line in prefixes if (fields := line.split()) and not fields[0].startswith("#")
    ]
    bases: dict[str, list[str]] = {}
    for base, forms in zip(exceptions[::2], exceptions[1::2], strict=True):
        for form in forms.split():
            bases.setdefault(form, []).append(base)
    return Lexicon(
        frozenset(functions),
        {fields[0]: fields[1:2] == ["#NUMERIC_ONLY#"] for fields in abbreviations},
        bases,
        {
            word: tuple(map(int, ids.split()))
            for word, ids in zip(synsets[::2], synsets[1::2], strict=True)
        },
        folder / PARAPHRASES,
    )


def as_meteor_reads(tokens: Words, prefixes: Mapping[str, bool]) -> Words:
    """METEOR's words of sentences of tokens; `prefixes` are as `meteor_words` takes them.

    Most tokens give the same words in any sentence, and are read once.
    """
    return retokenize(
        tokens, _words_of_token, lambda row: meteor_words(" ".join(tokens.sentence(row)), prefixes)
    )


@lru_cache(maxsize=1 << 16)
def _words_of_token(token: str) -> tuple[str, ...] | None:
    """The words of a token that gives the same ones in any sentence; None for another token."""
    return tuple(meteor_words(token, {})) if _ALONE.fullmatch(token) else None


def meteor_words(tokens: str, prefixes: Mapping[str, bool]) -> list[str]:
    """The words of a line of tokens.

    `prefixes` are abbreviations after which a period ends no sentence, true where that holds only
    before a number.
    """
    if _PLAIN.fullmatch(tokens):
        return tokens.split()
    line = f" {tokens} "
    for pattern, replacement in _STEPS:
        line = re.sub(pattern, replacement, line)
    while "DOTMULTI." in line:
        line = _MORE_DOTS.sub(r"DOTDOTMULTI \1", line).replace("DOTMULTI.", "DOTDOTMULTI")
    for pattern, replacement in _LATER_STEPS:
        line = re.sub(pattern, replacement, line)
    words = _split(line)
    line = "".join(
        f"{_split_period(word, words[k + 1 : k + 2], prefixes)} " for k, word in enumerate(words)
    )
    while "DOTDOTMULTI" in line:
        line = line.replace("DOTDOTMULTI", "DOTMULTI.")
    return _split(_SPACES.sub(" ", line.replace("DOTMULTI", ".")).strip(_BLANK).lower())


def _split(line: str) -> list[str]:
    return [part for part in _BREAKS.split(line) if part]


def _split_period(word: str, following: list[str], prefixes: Mapping[str, bool]) -> str:
    """A word such as "u.s." or "street.", with its last period removed, kept or set apart."""
    if len(word) < 2 or not word.endswith("."):
        return word
    stem = word[:-1]
    if "." in stem and _HAS_LETTER.search(stem):
        return word.replace(".", "")
    begins = following[0][0] if following else ""
    before_number_only = prefixes.get(stem)
    if before_number_only is False or "a" <= begins <= "z":
        return word
    if before_number_only and "0" <= begins <= "9":
        return word
    return f"{stem} ."

"""METEOR's data in pycocoevalcap's jar: function words, abbreviations, WordNet, paraphrases."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capgrade.measures.meteor.stems import stem
from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import package_folder
from capgrade.schemas.inputs import file_digest

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
    synsets: tuple[int, ...]
    is_function: bool


def java_hash(word: str) -> int:
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
            synsets = tuple(self.synsets_of(word))
            entry = Word(
                java_hash(word), java_hash(stem(word)), synsets, word.lower() in self.function_words
            )
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

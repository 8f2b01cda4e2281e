"""The parser's words: our lists of objects, actions and attributes, and WordNet behind them.

WordNet is of the data that METEOR's jar carries. The jar keeps its synonym sets by word, and each
set's hypernyms and hyponyms in one list, hypernyms first; parts of speech it leaves out. They
follow from the lists: a noun's first relations lead up to `entity`, a set with relations that do
not is a verb, and only adjectives and adverbs have none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import yaml

from capgrade.measures.meteor.english import Lexicon, meteor_folder, read_jar, read_lexicon

ENTITY = 1740  # the synonym set that is the root of all nouns
_HERE = Path(__file__).parent
_PLURALS = (
    ("ies", "y"),
    ("ves", "f"),
    ("ves", "fe"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("xes", "x"),
    ("ses", "s"),
    ("oes", "o"),
    ("zzes", "z"),
    ("men", "man"),
    ("s", ""),
)


@dataclass(frozen=True)
class WordNet:
    """Synonym sets by word, and the set above each."""

    lexicon: Lexicon
    above: dict[int, int]  # first relation of each synonym set: its hypernym, where it has one
    members: dict[int, list[str]]
    _kinds: dict[str, frozenset[str]] = field(default_factory=dict)

    def is_noun(self, synset: int) -> bool:
        """Whether a synonym set is one of nouns."""
        return self.chain(synset)[-1] == ENTITY

    def chain(self, synset: int) -> list[int]:
        """A synonym set and those above it, to the root or, among verbs, until one comes again."""
        chain = [synset]
        while (
            chain[-1] != ENTITY
            and (above := self.above.get(chain[-1])) is not None
            and above not in chain
        ):
            chain.append(above)
        return chain

    def words(self, synset: int) -> list[str]:
        """The words of a synonym set, several words joined by a space, in alphabetical order."""
        return self.members.get(synset, [])

    def nouns(self, word: str) -> list[int]:
        """The noun synonym sets of a base form; several words are joined by a space."""
        return [s for s in self.lexicon.synsets.get(word.replace(" ", "_"), ()) if self.is_noun(s)]

    def kinds(self, word: str) -> frozenset[str]:
        """Of a base form: "noun", "verb" and "adjective" (or adverb), as far as WordNet has it."""
        if word not in self._kinds:
            synsets = self.lexicon.synsets.get(word.replace(" ", "_"), ())
            self._kinds[word] = frozenset(self._kind(s) for s in synsets)
        return self._kinds[word]

    def _kind(self, synset: int) -> str:
        if synset not in self.above:
            return "adjective"
        return "noun" if self.is_noun(synset) else "verb"


@cache
def _read_wordnet(folder: Path | None = None) -> WordNet:
    """Read the jar's English data. InputError when it is missing or cannot be read."""
    folder = folder or meteor_folder()
    lexicon = read_lexicon(folder)
    (lines,) = read_jar(folder, "synonym/english.relations")
    above = {
        int(s): int(related.split(maxsplit=1)[0])
        for s, related in zip(lines[::2], lines[1::2], strict=True)
    }
    members: dict[int, list[str]] = {}
    for word, synsets in lexicon.synsets.items():
        for synset in synsets:
            members.setdefault(synset, []).append(word.replace("_", " "))
    return WordNet(lexicon, above, members)


@dataclass(frozen=True)
class Tree:
    """Concepts, each with its synonyms and the concepts above it."""

    concept: dict[str, str]  # word -> concept
    above: dict[str, frozenset[str]]

    def ancestors(self, concept: str) -> set[str]:
        """All concepts above one, without itself."""
        ancestors: set[str] = set()
        todo = [*self.above.get(concept, ())]
        while todo:
            name = todo.pop()
            if name not in ancestors:
                ancestors.add(name)
                todo += self.above.get(name, ())
        return ancestors


def _read_tree(path: Path) -> Tree:
    """Read a file of concepts.

    A line holds a concept and its synonyms; tabs before it say what it is a kind of.
    """
    concept: dict[str, str] = {}
    above: dict[str, set[str]] = {}
    path_of: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        depth = len(line) - len(line.lstrip("\t"))
        name, *synonyms = [word.strip() for word in line.split(",")]
        path_of[depth:] = [name]
        above.setdefault(name, set()).update(path_of[depth - 1 : depth] if depth else ())
        concept[name] = name
        for word in synonyms:
            concept.setdefault(word, name)
    return Tree(concept, {name: frozenset(names - {name}) for name, names in above.items()})


@dataclass(frozen=True)
class SceneLexicon:
    """Word classes. Words are lower-case tokens."""

    nouns: Tree
    verbs: Tree
    # word -> determiner, pronoun, auxiliary, conjunction, adverb, preposition
    closed: dict[str, str]
    phrases: dict[tuple[str, ...], str]  # words that stand for a preposition, attribute or nothing
    numbers: dict[str, str]  # word -> value
    attributes: dict[str, str]  # word -> value
    skipped: frozenset[str]
    wordnet: WordNet
    # Each form of a listed verb -> its base, and which form it is.
    _forms: dict[str, tuple[str, str]] = field(default_factory=dict)

    def noun(self, word: str) -> tuple[str, bool] | None:
        """Base form and whether the word is its plural; None for what is no noun."""
        if word in self.nouns.concept:
            return word, False
        for base in self._singulars(word):
            if base in self.nouns.concept or "noun" in self.wordnet.kinds(base):
                return base, True
        return (word, False) if "noun" in self.wordnet.kinds(word) else None

    def _singulars(self, word: str) -> Iterable[str]:
        if word not in self._forms:  # the exceptions do not tell a plural from a past
            yield from self.wordnet.lexicon.exceptions.get(word, ())
        if len(word) > 3 and not word.endswith(("ss", "us")):
            yield from (word[: -len(end)] + new for end, new in _PLURALS if word.endswith(end))

    def verb(self, word: str) -> tuple[str, str] | None:
        """Base form and form ("base", "s", "ing" or "ed") of what can be a verb."""
        if word in self._forms:
            return self._forms[word]
        for base, form in _uninflected(word, self.wordnet.lexicon.exceptions):
            if "verb" in self.wordnet.kinds(base):
                return base, form
        return None

    def is_listed_verb(self, word: str) -> bool:
        """Whether the word is a form of a verb of our own list."""
        return word in self._forms

    def is_adjective(self, word: str) -> bool:
        """Whether WordNet has the word as an adjective or adverb."""
        return "adjective" in self.wordnet.kinds(word)


def _uninflected(word: str, exceptions: dict[str, list[str]]) -> Iterable[tuple[str, str]]:
    form = "ing" if word.endswith("ing") else "s" if word.endswith("s") else "ed"
    yield from ((base, form) for base in exceptions.get(word, ()))
    if word.endswith("ing") and len(word) > 5:
        yield from ((base, "ing") for base in _stems(word[:-3]))
    if word.endswith("ed") and len(word) > 4:
        yield from ((base, "ed") for base in _stems(word[:-2]))
    if word.endswith("s") and not word.endswith("ss") and len(word) > 3:
        yield from ((base, "s") for base in (word[:-1], word[:-2], word[:-3] + "y"))
    yield word, "base"


def _stems(rest: str) -> tuple[str, ...]:
    """Base forms that an ending `-ing` or `-ed` may have been put to."""
    if rest.endswith("i"):
        return (rest[:-1] + "y",)
    if len(rest) > 2 and rest[-1] == rest[-2] and rest[-1] not in "lsz":
        return (rest[:-1], rest)
    return (rest, rest + "e", rest[:-1])


def _inflected(verb: str, irregular: dict[str, list[str]]) -> dict[str, str]:
    """Every form of a listed verb and its name."""
    forms = {verb: "base"}
    stem = verb[:-1] if verb.endswith("e") else verb
    doubled = verb + verb[-1] if _doubles(verb) else stem
    soft = verb[:-1] + "i" if verb[-1] == "y" and verb[-2] not in "aeiou" else doubled
    forms[
        {"lie": "lying", "tie": "tying", "die": "dying", "see": "seeing"}.get(verb, doubled + "ing")
    ] = "ing"
    forms[soft + "ed"] = "ed"
    hiss = verb.endswith(("s", "x", "z", "ch", "sh", "o"))
    forms[soft + "es" if soft.endswith("i") else verb + "es" if hiss else verb + "s"] = "s"
    for form in irregular.get(verb, ()):
        forms.setdefault(form, "ing" if form.endswith("ing") else "ed")
    return forms


def _doubles(verb: str) -> bool:
    last = verb[-3:]
    one_vowel = len(last) == 3 and last[1] in "aeiou" and last[0] not in "aeiou"
    return one_vowel and last[2] not in "aeiouwxyhr" and len(verb) <= 4


@cache
def scene_lexicon() -> SceneLexicon:
    """Our lists beside METEOR's WordNet. InputError when the latter is missing."""
    wordnet = _read_wordnet()
    words = yaml.safe_load((_HERE / "words.yaml").read_text(encoding="utf-8"))
    verbs = _read_tree(_HERE / "verbs.txt")
    irregular: dict[str, list[str]] = {}
    for form, bases in wordnet.lexicon.exceptions.items():
        for base in bases:
            irregular.setdefault(base, []).append(form)
    forms: dict[str, tuple[str, str]] = {}
    for verb in verbs.concept:
        for form, name in _inflected(verb, irregular).items():
            forms.setdefault(form, (verb, name))
    return SceneLexicon(
        nouns=_read_tree(_HERE / "nouns.txt"),
        verbs=verbs,
        closed=_closed_words(words),
        phrases={
            tuple(phrase.split()): str(meaning) for phrase, meaning in words["phrases"].items()
        },
        numbers=_values(words["numbers"]),
        attributes=_values(words["attributes"]),
        skipped=frozenset(words["skipped"].split()),
        wordnet=wordnet,
        _forms=forms,
    )


def _closed_words(words: dict[str, str]) -> dict[str, str]:
    # A word of several kinds is of the last of them.
    kinds = ("adverb", "conjunction", "preposition", "determiner", "pronoun", "auxiliary")
    return {
        word: kind
        for kind in kinds
        for word in words["auxiliaries" if kind == "auxiliary" else f"{kind}s"].split()
    }


def _values(block: dict[str, str]) -> dict[str, str]:
    return {word: str(value) for value, synonyms in block.items() for word in str(synonyms).split()}

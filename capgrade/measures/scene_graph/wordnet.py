"""Nouns, verbs and hypernyms of WordNet, from the data that METEOR's jar carries.

The jar keeps WordNet's synonym sets by word, and each set's hypernyms and hyponyms in one list,
hypernyms first; parts of speech it leaves out. They follow from the lists: a noun's first relations
lead up to `entity`, a set with relations that do not is a verb, and only adjectives and adverbs
have none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from capgrade.measures.meteor.english import Lexicon, meteor_folder, read_jar, read_lexicon

ENTITY = 1740  # the synonym set that is the root of all nouns


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
def read_wordnet(folder: Path | None = None) -> WordNet:
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

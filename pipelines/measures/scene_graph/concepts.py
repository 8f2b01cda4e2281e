"""What an object of a caption is: its concept, and the kinds of thing above it.

Objects of our list have their concept there. Any other noun is placed by WordNet: up the hypernyms of each of its
senses to the nearest word of the list, so that a corgi is a kind of dog.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from capgrade.pipelines.measures.scene_graph.lexicon import SceneLexicon

_FARTHEST = 4  # hypernyms up; above them stand words as general as "device"


@dataclass
class Concepts:
    """Concepts of objects and of actions, by word."""

    lexicon: SceneLexicon
    _objects: dict[str, tuple[str, frozenset[str]]] = field(default_factory=dict)

    def object(self, noun: str) -> tuple[str, frozenset[str]]:
        """The concept of a noun's base form, and all concepts above it."""
        if noun not in self._objects:
            self._objects[noun] = self._object(noun)
        return self._objects[noun]

    def action(self, verb: str) -> tuple[str, frozenset[str]]:
        """The same of a verb's base form."""
        concept = self.lexicon.verbs.concept.get(verb, verb)
        return concept, frozenset(self.lexicon.verbs.ancestors(concept))

    def is_action(self, word: str) -> bool:
        """Whether an attribute is a listed verb's base form."""
        return word in self.lexicon.verbs.concept

    def is_object(self, word: str) -> bool:
        """Whether an attribute is a listed object's base form, as "baseball" of a baseball bat."""
        return word in self.lexicon.nouns.concept

    def deed(self, noun: str) -> str | None:
        """What someone or something named by a listed verb does: "ski" for "skier" and "skiing"."""
        last = noun.rsplit(" ", 1)[-1]
        stem = last.removesuffix("ing") if last.endswith("ing") else last.removesuffix("er")
        if stem == last:
            return None
        verb = next((v for v in (stem, stem + "e", stem[:-1]) if v in self.lexicon.verbs.concept), None)
        return verb and self.lexicon.verbs.concept[verb]

    def _object(self, noun: str) -> tuple[str, frozenset[str]]:
        nouns = self.lexicon.nouns
        if noun in nouns.concept:
            concept = nouns.concept[noun]
            return concept, frozenset(nouns.ancestors(concept))
        steps, above = self._nearest(noun)
        if above is None and " " in noun:  # a kind of its last word
            last, higher = self.object(noun.rsplit(" ", 1)[1])
            return noun, higher | {last}
        if above is None:
            return noun, frozenset()
        if steps == 0:
            return above, frozenset(nouns.ancestors(above))
        return noun, frozenset(nouns.ancestors(above) | {above})

    def _nearest(self, noun: str) -> tuple[int, str | None]:
        """How far up the nearest listed concept is, 0 for a synonym, and which it is."""
        best: tuple[int, str | None] = (_FARTHEST + 1, None)
        for sense in self.lexicon.wordnet.nouns(noun):
            for steps, synset in enumerate(self.lexicon.wordnet.chain(sense)[: best[0]]):
                word = next((w for w in self.lexicon.wordnet.words(synset) if w in self.lexicon.nouns.concept), None)
                if word is not None:
                    best = (steps, self.lexicon.nouns.concept[word])
                    break
        return best

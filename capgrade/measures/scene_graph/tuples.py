"""A scene graph as a weighted set of tuples, so that what two graphs share is what two sets share.

Words become concepts, so synonyms are equal. What a tuple implies is in the set as well, with less
weight: a dog is an animal, a brown dog is something brown, a skier skis.

Objects of our list have their concept there. Any other noun is placed by WordNet: up the hypernyms
of each of its senses to the nearest word of the list, so that a corgi is a kind of dog.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from capgrade.measures.scene_graph.lexicon import SceneLexicon
from capgrade.measures.scene_graph.parse import Graph

if TYPE_CHECKING:
    from capgrade.measures.scene_graph import SceneGraphParams

_FARTHEST = 4  # hypernyms up; above them stand words as general as "device"
# Weights by ("object", dog), ("attribute", brown), ("attribute", dog, brown) or
# ("relation", dog, on, table).
Tuples = dict[tuple[str, ...], float]


@dataclass
class TupleReader:
    """Turns graphs into tuples. `params` has the weights, of which an object's is 1."""

    lexicon: SceneLexicon
    params: SceneGraphParams
    _concepts: dict[str, tuple[str, frozenset[str]]] = field(default_factory=dict)
    _of_noun: dict[str, Tuples] = field(default_factory=dict)

    def tuples(self, graph: Graph) -> Tuples:
        """The tuples of a graph and what they imply, each with its largest weight above 0."""
        weights: Tuples = {}
        for noun in graph.objects:
            _add(weights, self._object(noun))
        for noun, attribute in graph.attributes:
            alone = self._value(attribute, self.params.attributes)
            owner = self._concept(noun)[0]
            name = next(iter(alone))[1]  # the first tuple is of the attribute itself
            _add(weights, alone | {("attribute", owner, name): self.params.attached})
        for source, relation, target in graph.relations:
            ends = (self._concept(source)[0], self._action(relation)[0], self._concept(target)[0])
            _add(weights, {("relation", *ends): self.params.relations})
        return {key: weight for key, weight in weights.items() if weight > 0}

    def _object(self, noun: str) -> Tuples:
        if noun not in self._of_noun:
            concept, above = self._concept(noun)
            implied: Tuples = {("object", kind): self.params.kinds for kind in sorted(above)}
            for word in noun.split()[:-1]:
                implied |= self._value(word, self.params.kinds)
            action = self._action_of_noun(noun)
            if action:
                implied["attribute", action] = self.params.attributes
            self._of_noun[noun] = implied | {("object", concept): 1.0}
        return self._of_noun[noun]

    def _value(self, word: str, weight: float) -> Tuples:
        """What an attribute implies: an action, a thing ("tennis" of a tennis court), a quality."""
        if word in self.lexicon.verbs.concept:
            action, above = self._action(word)
            implied: Tuples = {
                ("attribute", kind): weight * self.params.kinds for kind in sorted(above)
            }
            return {("attribute", action): weight} | implied
        if word in self.lexicon.nouns.concept:
            return {("object", self._concept(word)[0]): weight}
        return {("attribute", word): weight}

    def _concept(self, noun: str) -> tuple[str, frozenset[str]]:
        """The concept of a noun's base form, and all concepts above it."""
        if noun not in self._concepts:
            self._concepts[noun] = self._find_concept(noun)
        return self._concepts[noun]

    def _action(self, verb: str) -> tuple[str, frozenset[str]]:
        """The same of a verb's base form."""
        concept = self.lexicon.verbs.concept.get(verb, verb)
        return concept, frozenset(self.lexicon.verbs.ancestors(concept))

    def _action_of_noun(self, noun: str) -> str | None:
        """The listed verb that a noun is made of: "ski" for "skier" and "skiing"."""
        last = noun.rsplit(" ", 1)[-1]
        stem = last.removesuffix("ing") if last.endswith("ing") else last.removesuffix("er")
        if stem == last:
            return None
        verb = next(
            (v for v in (stem, stem + "e", stem[:-1]) if v in self.lexicon.verbs.concept), None
        )
        return verb and self.lexicon.verbs.concept[verb]

    def _find_concept(self, noun: str) -> tuple[str, frozenset[str]]:
        nouns = self.lexicon.nouns
        if noun in nouns.concept:
            concept = nouns.concept[noun]
            return concept, frozenset(nouns.ancestors(concept))
        steps, above = self._nearest(noun)
        if above is None and " " in noun:  # a kind of its last word
            last, higher = self._concept(noun.rsplit(" ", 1)[1])
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
                word = next(
                    (
                        w
                        for w in self.lexicon.wordnet.words(synset)
                        if w in self.lexicon.nouns.concept
                    ),
                    None,
                )
                if word is not None:
                    best = (steps, self.lexicon.nouns.concept[word])
                    break
        return best


def _add(weights: Tuples, more: Tuples) -> None:
    for key, weight in more.items():
        weights[key] = max(weights.get(key, 0.0), weight)

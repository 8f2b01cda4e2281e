"""A scene graph as a weighted set of tuples, so that what two graphs share is what two sets share.

Words become concepts, so synonyms are equal. What a tuple implies is in the set as well, with less weight: a dog is
an animal, a brown dog is something brown, a skier skis.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from capgrade.pipelines.measures.scene_graph.concepts import Concepts
from capgrade.pipelines.measures.scene_graph.parse import Graph
from capgrade.schemas.params import SceneGraphParams

Tuples = dict[tuple[str, ...], float]  # ("object", dog), ("attribute", dog, brown), ("relation", dog, on, table), ...


@dataclass
class Reader:
    """Turns graphs into tuples. `params` has the weights, of which an object's is 1."""

    concepts: Concepts
    params: SceneGraphParams
    _of_noun: dict[str, Tuples] = field(default_factory=dict)

    def tuples(self, graph: Graph) -> Tuples:
        """The tuples of a graph and what they imply, each with its largest weight; none has weight 0."""
        found: Tuples = {}
        for noun in graph.objects:
            _add(found, self._object(noun))
        for noun, attribute in graph.attributes:
            _add(found, self._attribute(noun, attribute))
        for source, relation, target in graph.relations:
            ends = (self.concepts.object(source)[0], self.concepts.action(relation)[0], self.concepts.object(target)[0])
            _add(found, {("relation", *ends): self.params.relations})
        return {key: weight for key, weight in found.items() if weight > 0}

    def _object(self, noun: str) -> Tuples:
        if noun not in self._of_noun:
            concept, above = self.concepts.object(noun)
            implied: Tuples = {("object", kind): self.params.kinds for kind in above}
            for word in noun.split()[:-1]:
                implied |= self._value(word, self.params.kinds)
            action = self.concepts.deed(noun)
            if action:
                implied["attribute", action] = self.params.attributes
            self._of_noun[noun] = implied | {("object", concept): 1.0}
        return self._of_noun[noun]

    def _attribute(self, noun: str, value: str) -> Tuples:
        owner = self.concepts.object(noun)[0]
        alone = self._value(value, self.params.attributes)
        name = next(iter(alone))[1]
        return alone | {("attribute", owner, name): self.params.attached}

    def _value(self, word: str, weight: float) -> Tuples:
        """What an attribute is by itself: an action, a thing ("tennis" of a tennis court), or a quality."""
        if self.concepts.is_action(word):
            action, above = self.concepts.action(word)
            return {("attribute", action): weight, **{("attribute", a): weight * self.params.kinds for a in above}}
        if self.concepts.is_object(word):
            return {("object", self.concepts.object(word)[0]): weight}
        return {("attribute", word): weight}


def _add(found: Tuples, more: Tuples) -> None:
    for key, weight in more.items():
        found[key] = max(found.get(key, 0.0), weight)

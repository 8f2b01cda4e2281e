"""A caption's scene graph: its objects, their attributes, and the relations between them.

A grammar of captions, read from left to right: noun phrases are objects with attributes; a verb or
preposition relates what stands before it to the noun phrase after it. It is no parser of English.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from capgrade.measures.scene_graph.lexicon import SceneLexicon, scene_lexicon
from capgrade.measures.scene_graph.tags import Tagged, tag

_NEAREST = frozenset(["of", "with", "for"])  # what they add belongs to the noun phrase right before them
_PREPOSITIONS = {
    "atop": "on", "upon": "on", "onto": "on", "into": "in", "inside": "in", "within": "in", "by": "near",
    "beside": "near", "alongside": "near", "at": "near", "around": "near", "underneath": "under", "beneath": "under",
    "below": "under", "above": "over", "across": "over", "have": "with", "toward": "to", "towards": "to",
    "in front of": "near", "against": "near", "behind": "behind", "along": "down", "through": "through",
}  # fmt: skip
_ACTORS = frozenset(["person", "animal", "vehicle"])


@dataclass(frozen=True)
class Graph:
    """Objects, (object, attribute) and (object, relation, object), each once, in caption order."""

    objects: tuple[str, ...]
    attributes: tuple[tuple[str, str], ...]
    relations: tuple[tuple[str, str, str], ...]

    def __str__(self) -> str:
        """A line each for objects, attributes and relations."""
        attributes, relations = (", ".join(map(" ".join, rows)) for rows in (self.attributes, self.relations))
        return f"objects: {', '.join(self.objects)}\nattributes: {attributes}\nrelations: {relations}"


def parse(words: tuple[str, ...]) -> Graph:
    """The scene graph of a caption's lower-case tokens. InputError without METEOR's WordNet."""
    lexicon = scene_lexicon()
    reader = _Reader(lexicon)
    for item in _phrases(tag(words, lexicon)):
        reader.read(item)
    return reader.graph()


@dataclass(frozen=True)
class _NounPhrase:
    head: str
    attributes: tuple[str, ...]


def _phrases(tagged: Sequence[Tagged]) -> list[Tagged | _NounPhrase]:
    """Noun phrases put together; "a black and white cat" is one."""
    parts: list[Tagged | _NounPhrase] = []
    at = 0
    while at < len(tagged):
        end = at
        while end < len(tagged) and (
            tagged[end].tag in ("adjective", "number", "noun") or _joins(tagged, end, at)
            or (tagged[end].tag == "determiner" and end == at)
        ) and not (end > at and tagged[end - 1].tag == "noun" and tagged[end].tag != "noun"):  # fmt: skip
            end += 1
        if end == at:
            parts.append(tagged[at])
            at += 1
            continue
        words = [one for one in tagged[at:end] if one.tag not in ("determiner", "conjunction")]
        if words and words[-1].tag == "noun":
            parts.append(_NounPhrase(words[-1].base, tuple(word.base for word in words[:-1])))
        else:
            parts += words
        at = end
    return parts


def _joins(tagged: Sequence[Tagged], k: int, start: int) -> bool:
    """Whether a conjunction stands between two adjectives of one noun phrase."""
    inside = start < k < len(tagged) - 1 and tagged[k].base == "and"
    return inside and tagged[k - 1].tag == "adjective" and tagged[k + 1].tag == "adjective"


@dataclass
class _Reader:
    """What has been read: the graph, and what the next phrase may relate to."""

    lexicon: SceneLexicon
    objects: dict[str, None] = field(default_factory=dict)
    attributes: dict[tuple[str, str], None] = field(default_factory=dict)
    relations: dict[tuple[str, str, str], None] = field(default_factory=dict)
    subjects: list[str] = field(default_factory=list)  # of the clause
    acting: list[str] = field(default_factory=list)  # what the last verb is about
    last: str = ""  # object read last
    pending: tuple[list[str], str, bool] | None = None  # sources, relation, whether it goes the other way
    done: tuple[list[str], str, bool] | None = None  # by which `last` was related: for what `and` adds
    through: tuple[list[str], str, bool] | None = None  # a relation to a noun that is skipped
    joined: bool = False  # behind `and`
    passive: str = ""  # the verb right before, if it ends in -ed
    finite: bool = False  # behind an auxiliary

    def read(self, item: Tagged | _NounPhrase) -> None:
        if isinstance(item, _NounPhrase):
            self._object(item)
        elif item.tag == "verb":
            self._verb(item)
        elif item.tag == "preposition":
            self._preposition(item.base)
        elif item.tag == "auxiliary":
            self._auxiliary(item.base)
        elif item.tag in ("adjective", "number"):
            told = self.finite or self.last in self.subjects
            for source in self.subjects if told else [self.last][: bool(self.last)]:
                self.attributes[source, item.base] = None
        elif item.tag == "conjunction":
            self.joined = item.base in ("and", "or", "&")
            self.pending, self.passive = None, ""
        elif item.tag == "pronoun":
            self.pending = None

    def graph(self) -> Graph:
        return Graph(tuple(self.objects), tuple(self.attributes), tuple(self.relations))

    def _object(self, phrase: _NounPhrase) -> None:
        head = phrase.head
        if head in self.lexicon.skipped:  # "on the side of a road" is near the road
            self.through, self.pending = self.pending, None
            return
        self.objects[head] = None
        for attribute in phrase.attributes:
            self.attributes[head, attribute] = None
        if self.joined and self.pending is None:
            if self.done:
                self._relate(self.done, head)
            elif not self.acting:
                self.subjects.append(head)
        elif self.pending:
            self._relate(self.pending, head)
            self.done = self.pending
        elif not self.subjects:
            self.subjects = [head]
        self.last, self.pending, self.joined, self.passive, self.finite = head, None, False, "", False

    def _relate(self, relation: tuple[list[str], str, bool], target: str) -> None:
        sources, name, reverse = relation
        for source in sources:
            if source != target:
                self.relations[(target, name, source) if reverse else (source, name, target)] = None

    def _verb(self, verb: Tagged) -> None:
        if self.last and not self.finite and not self.joined and verb.detail in ("ing", "ed") and self._acts(verb):
            self.acting = self.subjects if self.last in self.subjects else [self.last]
        else:
            self.acting = self.acting if self.joined and self.acting else self.subjects
        for source in self.acting:
            self.attributes[source, verb.base] = None
        self.pending = (self.acting, verb.base, False)
        self.passive = verb.base if verb.detail == "ed" else ""
        self.done, self.joined, self.finite = None, False, False

    def _acts(self, verb: Tagged) -> bool:
        """Whether a participle tells of the object right before it."""
        concept = self.lexicon.nouns.concept.get(self.last, self.last)
        return verb.detail == "ed" or bool(_ACTORS & ({concept} | self.lexicon.nouns.ancestors(concept)))

    def _preposition(self, name: str) -> None:
        relation = _PREPOSITIONS.get(name, name)
        if self.pending:
            sources = self.pending[0]
        elif name in _NEAREST or not self.acting or self.done is None:
            sources = [self.last] if self.last else []
        else:
            sources = self.acting
        if not self.acting and self.last in self.subjects:
            sources = self.subjects
        if name == "of" and self.through:
            self.pending = self.through
        elif self.passive and name == "by":
            self.pending = (sources, self.passive, True)
        else:
            self.pending = (sources, relation, False)
        self.through, self.joined, self.passive = None, False, ""

    def _auxiliary(self, word: str) -> None:
        if word in ("has", "have", "had", "having"):
            self.pending = ([self.last] if self.last else [], "with", False)
        else:
            self.pending, self.finite = None, True
        self.done, self.joined = None, False

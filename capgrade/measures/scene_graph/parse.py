"""A caption's scene graph: its objects, their attributes, and the relations between them.

A grammar of captions, read from left to right: noun phrases are objects with attributes; a verb or
preposition relates what stands before it to the noun phrase after it. It is no parser of English.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from capgrade.measures.scene_graph.lexicon import SceneLexicon, scene_lexicon
from capgrade.measures.scene_graph.tags import Tagged, tag

# What these prepositions add belongs to the noun phrase right before them.
_NEAREST = frozenset(["of", "with", "for"])
_PREPOSITIONS = {
    "atop": "on",
    "upon": "on",
    "onto": "on",
    "into": "in",
    "inside": "in",
    "within": "in",
    "by": "near",
    "beside": "near",
    "alongside": "near",
    "at": "near",
    "around": "near",
    "underneath": "under",
    "beneath": "under",
    "below": "under",
    "above": "over",
    "across": "over",
    "have": "with",
    "toward": "to",
    "towards": "to",
    "in front of": "near",
    "against": "near",
    "behind": "behind",
    "along": "down",
    "through": "through",
}
_ACTORS = frozenset(["person", "animal", "vehicle"])


@dataclass(frozen=True)
class Graph:
    """Objects, (object, attribute) and (object, relation, object), each once, in caption order."""

    objects: tuple[str, ...]
    attributes: tuple[tuple[str, str], ...]
    relations: tuple[tuple[str, str, str], ...]

    def __str__(self) -> str:
        """A line each for objects, attributes and relations."""
        attributes, relations = (
            ", ".join(map(" ".join, rows)) for rows in (self.attributes, self.relations)
        )
        return (
            f"objects: {', '.join(self.objects)}\nattributes: {attributes}\nrelations: {relations}"
        )


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
        while (
            end < len(tagged)
            and (
                tagged[end].tag in ("adjective", "number", "noun")
                or _joins(tagged, end, at)
                or (tagged[end].tag == "determiner" and end == at)
            )
            and not (end > at and tagged[end - 1].tag == "noun" and tagged[end].tag != "noun")
        ):
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


@dataclass(frozen=True)
class _Relation:
    """A relation whose target has still to be read."""

    sources: list[str]
    name: str
    reverse: bool = False  # whether it leads from the target to the sources


@dataclass
class _Reader:
    """The graph of what has been read, and what the next phrase may be related to."""

    lexicon: SceneLexicon
    objects: dict[str, None] = field(default_factory=dict)
    attributes: dict[tuple[str, str], None] = field(default_factory=dict)
    relations: dict[tuple[str, str, str], None] = field(default_factory=dict)
    subjects: list[str] = field(default_factory=list)  # of the clause
    acting: list[str] = field(default_factory=list)  # objects that do what the last verb says
    last: str = ""  # object read last
    pending: _Relation | None = None  # to the next object
    done: _Relation | None = None  # to the last object, and to what `and` adds to it
    through: _Relation | None = None  # to a noun that is skipped, and so to what follows its `of`
    joined: bool = False  # the last word was `and`
    passive: str = ""  # the last word, if it is a verb that ends in -ed
    finite: bool = False  # the last verb is an auxiliary

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
            of_subjects = self.finite or self.last in self.subjects
            for source in self.subjects if of_subjects else [self.last][: bool(self.last)]:
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
        self.last, self.pending, self.joined, self.passive, self.finite = (
            head,
            None,
            False,
            "",
            False,
        )

    def _relate(self, relation: _Relation, target: str) -> None:
        for source in relation.sources:
            if source != target:
                ends = (target, source) if relation.reverse else (source, target)
                self.relations[ends[0], relation.name, ends[1]] = None

    def _verb(self, verb: Tagged) -> None:
        participle = verb.detail in ("ing", "ed") and not self.finite and not self.joined
        if self.last and participle and self._acts(verb):
            self.acting = self.subjects if self.last in self.subjects else [self.last]
        else:
            self.acting = self.acting if self.joined and self.acting else self.subjects
        for source in self.acting:
            self.attributes[source, verb.base] = None
        self.pending = _Relation(self.acting, verb.base)
        self.passive = verb.base if verb.detail == "ed" else ""
        self.done, self.joined, self.finite = None, False, False

    def _acts(self, verb: Tagged) -> bool:
        """Whether a participle tells of the object right before it."""
        concept = self.lexicon.nouns.concept.get(self.last, self.last)
        return verb.detail == "ed" or bool(
            _ACTORS & ({concept} | self.lexicon.nouns.ancestors(concept))
        )

    def _preposition(self, name: str) -> None:
        relation = _PREPOSITIONS.get(name, name)
        if self.pending:
            sources = self.pending.sources
        elif name in _NEAREST or not self.acting or self.done is None:
            sources = [self.last] if self.last else []
        else:
            sources = self.acting
        if not self.acting and self.last in self.subjects:
            sources = self.subjects
        if name == "of" and self.through:
            self.pending = self.through
        elif self.passive and name == "by":
            self.pending = _Relation(sources, self.passive, reverse=True)
        else:
            self.pending = _Relation(sources, relation)
        self.through, self.joined, self.passive = None, False, ""

    def _auxiliary(self, word: str) -> None:
        if word in ("has", "have", "had", "having"):
            self.pending = _Relation([self.last] if self.last else [], "with")
        else:
            self.pending, self.finite = None, True
        self.done, self.joined = None, False

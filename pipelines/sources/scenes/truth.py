"""The graded relevance of captions to scenes: how much of what a caption says is true of the picture.

A caption's relevance to a scene is the weighted mean, over the facts it states, of the credit each fact finds at its
best place in the scene:

- a mention (weight 2): the largest credit over the scene's objects, where an object's credit is its kind's, times
  0.65 for a wrong colour and 0.85 for a wrong size. A kind's credit is 1 for the concept or one below it, 0.5 for the
  same group (dog for cat), 0.2 for the same family (cow for cat), else 0;
- a stated number (weight 1): min(m, n) / n for n said and m objects of the concept, with the colour if one was said
  (where there are three dogs there are two);
- a relation (weight 2): the largest product of the two objects' credits over the pairs it holds for;
- the place (weight 1.5): 1 for the same, 0.4 for a place of the same group, 0.1 for the same setting, else 0.

So every caption's relevance to its own scene is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capgrade.pipelines.sources.scenes.backgrounds import BACKGROUNDS
from capgrade.pipelines.sources.scenes.kinds import COLOURS, CONCEPTS, KINDS, SIZES, is_a
from capgrade.pipelines.sources.scenes.scene import PREDICATES, Meaning, Relation, Scene
from capgrade.schemas.compiled import njit
from capgrade.schemas.threads import in_threads

MENTION, NUMBER, RELATION, PLACE = 2.0, 1.0, 2.0, 1.5
WRONG_COLOUR, WRONG_SIZE = 0.35, 0.15


def kind_credit(concept: str, kind: str) -> float:
    """How well an object of `kind` serves as a `concept`, 0..1."""
    if is_a(kind, concept):
        return 1.0
    group, family = _place_of(concept)
    if group and KINDS[kind].group == group:
        return 0.5
    return 0.2 if KINDS[kind].family == family else 0.0


def _place_of(concept: str) -> tuple[str, str]:
    """Group and family of a concept; a family has no group."""
    if concept in KINDS:
        return KINDS[concept].group, KINDS[concept].family
    below = next(kind for kind in KINDS.values() if concept in (kind.group, kind.family))
    return (concept if below.group == concept else ""), below.family


def place_credit(said: str, scene: str) -> float:
    """How well a scene's place serves as the one that was said, 0..1."""
    a, b = BACKGROUNDS[said], BACKGROUNDS[scene]
    if said == scene:
        return 1.0
    return 0.4 if a.group == b.group else 0.1 if a.setting == b.setting else 0.0


@dataclass(frozen=True)
class _Rows:
    """Rows of integers a scene or a meaning, one after the other: ptr int64 [n + 1], values int64 [rows, columns]."""

    ptr: np.ndarray
    values: np.ndarray


def _rows(items: Sequence[Sequence[tuple[int, ...]]], columns: int) -> _Rows:
    ptr = np.concatenate([[0], np.cumsum([len(rows) for rows in items])]).astype(np.int64)
    flat = [row for rows in items for row in rows]
    return _Rows(ptr, np.array(flat, np.int64).reshape(-1, columns))


def _relation_rows(relations: Sequence[Relation]) -> list[tuple[int, ...]]:
    return [(r.subject, PREDICATES.index(r.predicate), r.object) for r in relations]


@njit(cache=True)
def _object_credit(mention, item, kinds):
    credit = kinds[mention[0], item[0]]
    if mention[2] >= 0 and mention[2] != item[1]:
        credit *= 1.0 - WRONG_COLOUR
    if mention[3] >= 0 and mention[3] != item[2]:
        credit *= 1.0 - WRONG_SIZE
    return credit


@njit(cache=True)
def _number_credit(mention, items, kinds):
    found = 0
    for item in items:
        if kinds[mention[0], item[0]] == 1.0 and (mention[2] < 0 or mention[2] == item[1]):
            found += 1
    return min(found, mention[1]) / mention[1]


@njit(nogil=True, cache=True)
def _truth(
    begin,
    end,
    objects,
    object_ptr,
    facts,
    fact_ptr,
    places,
    mentions,
    mention_ptr,
    said,
    said_ptr,
    said_places,
    kinds,
    place_of,
    out,
):
    for s in range(begin, end):
        items = objects[object_ptr[s] : object_ptr[s + 1]]
        holds = facts[fact_ptr[s] : fact_ptr[s + 1]]
        for c in range(out.shape[1]):
            phrases = mentions[mention_ptr[c] : mention_ptr[c + 1]]
            total, weight = 0.0, 0.0
            for mention in phrases:
                best = 0.0
                for item in items:
                    best = max(best, _object_credit(mention, item, kinds))
                total += MENTION * best
                weight += MENTION
                if mention[1] > 0:
                    total += NUMBER * _number_credit(mention, items, kinds)
                    weight += NUMBER
            for relation in said[said_ptr[c] : said_ptr[c + 1]]:
                best = 0.0
                for fact in holds:
                    if fact[1] == relation[1]:
                        a = _object_credit(phrases[relation[0]], items[fact[0]], kinds)
                        b = _object_credit(phrases[relation[2]], items[fact[2]], kinds)
                        best = max(best, a * b)
                total += RELATION * best
                weight += RELATION
            if said_places[c] >= 0:
                total += PLACE * place_of[said_places[c], places[s]]
                weight += PLACE
            out[s, c] = total / weight


def truth(scenes: Sequence[Scene], meanings: Sequence[Meaning]) -> np.ndarray:
    """Relevance of every caption to every scene, 0..1: float32 [len(scenes), len(meanings)], by the rule above."""
    kind_at = {kind: k for k, kind in enumerate(KINDS)}
    colour_at, size_at = {c: k for k, c in enumerate(COLOURS)}, {s: k for k, s in enumerate(SIZES)}
    place_at = {place: k for k, place in enumerate(BACKGROUNDS)}
    objects = _rows([[(kind_at[o.kind], colour_at[o.colour], size_at[o.size]) for o in s.objects] for s in scenes], 3)
    facts = _rows([_relation_rows(s.relations) for s in scenes], 3)
    mentions = _rows(
        [
            [
                (CONCEPTS.index(m.concept), m.count, colour_at.get(m.colour, -1), size_at.get(m.size, -1))
                for m in c.mentions
            ]
            for c in meanings
        ],
        4,
    )
    said = _rows([_relation_rows(c.relations) for c in meanings], 3)
    kinds = np.array([[kind_credit(concept, kind) for kind in KINDS] for concept in CONCEPTS])
    place_of = np.array([[place_credit(a, b) for b in BACKGROUNDS] for a in BACKGROUNDS])
    out = np.empty((len(scenes), len(meanings)), np.float32)
    in_threads(
        _truth, len(out),
        objects.values, objects.ptr, facts.values, facts.ptr, np.array([place_at[s.background] for s in scenes]),
        mentions.values, mentions.ptr, said.values, said.ptr,
        np.array([place_at.get(c.background, -1) for c in meanings]), kinds, place_of, out,
    )  # fmt: skip
    return out

"""The graded relevance of captions to scenes: how much of what a caption says is true of the
picture.

A caption's relevance to a scene is the weighted mean, over the facts it states, of the credit each
fact finds at its best place in the scene:

- a mention (weight 2): the largest credit over the scene's objects, where an object's credit is its
  kind's, times 0.65 for a wrong colour and 0.85 for a wrong size. A kind's credit is 1 for the
  concept or one below it, 0.5 for the same group (dog for cat), 0.2 for the same family (cow for
  cat), else 0;
- a stated number (weight 1): min(m, n) / n for n said and m objects of the concept, with the colour
  if one was said (where there are three dogs there are two);
- a relation (weight 2): the largest product of the two objects' credits over the pairs it holds
  for;
- the place (weight 1.5): 1 for the same, 0.4 for a place of the same group, 0.1 for the same
  setting, else 0.

So every caption's relevance to its own scene is 1.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from capgrade.pipelines.sources.scenes.scene import Meaning, Scene
from capgrade.pipelines.sources.scenes.world import (
    BACKGROUNDS,
    CONCEPTS,
    OBJECT_COLOURS,
    OBJECT_KINDS,
    PREDICATES,
    SIZES,
    is_a,
)

MENTION, _NUMBER, RELATION, _PLACE = 2.0, 1.0, 2.0, 1.5
WRONG_COLOUR, WRONG_SIZE = 0.35, 0.15


def kind_credit(concept: str, kind: str) -> float:
    """How well an object of `kind` serves as a `concept`, 0..1."""
    if is_a(kind, concept):
        return 1.0
    of = OBJECT_KINDS.get(concept)
    if of is None:  # a group or a family, which has no group
        of = next(one for one in OBJECT_KINDS.values() if concept in (one.group, one.family))
    same_group = OBJECT_KINDS[kind].group == of.group and concept != of.family
    return 0.5 if same_group else 0.2 if OBJECT_KINDS[kind].family == of.family else 0.0


def place_credit(said: str, scene: str) -> float:
    """How well a scene's place serves as the one that was said, 0..1."""
    a, b = BACKGROUNDS[said], BACKGROUNDS[scene]
    if said == scene:
        return 1.0
    return 0.4 if a.group == b.group else 0.1 if a.setting == b.setting else 0.0


def truth(scenes: Sequence[Scene], meanings: Sequence[Meaning]) -> np.ndarray:
    """Relevance of every caption to every scene, 0..1: float32 [len(scenes), len(meanings)], by the
    rule above."""
    of_kind, of_size = _numbers(OBJECT_KINDS), {"": -1, **_numbers(SIZES)}
    of_colour = {"": -1, **_numbers(OBJECT_COLOURS)}
    of_place, of_predicate, of_concept = (
        _numbers(BACKGROUNDS),
        _numbers(PREDICATES),
        _numbers(CONCEPTS),
    )
    # of all captions, one after the other: the caption and the weight
    facts: list[tuple[int, float]] = []
    mentions: list[tuple[int, ...]] = []  # of each sort the place among the facts, and what is said
    numbers: list[tuple[int, ...]] = []
    relations: list[tuple[int, ...]] = []
    places: list[tuple[int, ...]] = []
    for c, meaning in enumerate(meanings):
        first = len(mentions)
        for m in meaning.mentions:
            if m.count:
                numbers.append((len(facts) + 1, len(mentions), m.count))
            mentions.append(
                (len(facts), of_concept[m.concept], of_colour[m.colour], of_size[m.size])
            )
            facts += [(c, MENTION), (c, _NUMBER)] if m.count else [(c, MENTION)]
        for r in meaning.relations:
            relations.append(
                (len(facts), first + r.subject, of_predicate[r.predicate], first + r.object)
            )
            facts.append((c, RELATION))
        if meaning.background:
            places.append((len(facts), of_place[meaning.background]))
            facts.append((c, _PLACE))
    caption, weight = np.array([c for c, _ in facts]), np.array([w for _, w in facts])
    at, concept, colour, size = _columns(mentions, 4)
    number_at, counted, count = _columns(numbers, 3)
    relation_at, subject, predicate, other = _columns(relations, 4)
    place_at, said = _columns(places, 2)
    kinds = np.array(
        [[kind_credit(concept, kind) for kind in OBJECT_KINDS] for concept in CONCEPTS]
    )
    of_places = np.array([[place_credit(a, b) for b in BACKGROUNDS] for a in BACKGROUNDS])
    out = np.empty((len(scenes), len(meanings)), np.float32)
    value, total = np.empty(len(facts)), np.bincount(caption, weight)
    for s, scene in enumerate(scenes):
        items = [(of_kind[o.kind], of_colour[o.colour], of_size[o.size]) for o in scene.objects]
        kind, object_colour, object_size = _columns(items, 3)
        own = kinds[np.ix_(concept, kind)]
        right = (colour[:, None] < 0) | (colour[:, None] == object_colour)
        fits = (size[:, None] < 0) | (size[:, None] == object_size)
        credit = (
            own * np.where(right, 1.0, 1.0 - WRONG_COLOUR) * np.where(fits, 1.0, 1.0 - WRONG_SIZE)
        )
        value[at] = credit.max(axis=1)
        value[number_at] = np.minimum(((own == 1.0) & right).sum(axis=1)[counted], count) / count
        holds = [(r.subject, of_predicate[r.predicate], r.object) for r in scene.relations]
        a, holding, b = _columns(holds, 3)
        both = np.where(
            predicate[:, None] == holding,
            credit[np.ix_(subject, a)] * credit[np.ix_(other, b)],
            0.0,
        )
        value[relation_at] = both.max(axis=1, initial=0.0)
        value[place_at] = of_places[said, of_place[scene.background]]
        out[s] = np.bincount(caption, weight * value) / total
    return out


def _numbers(names: Iterable[str]) -> dict[str, int]:
    return {name: k for k, name in enumerate(names)}


def _columns(rows: Sequence[tuple[int, ...]], n: int) -> np.ndarray:
    """int64 [n, rows]."""
    return np.array(rows, np.int64).reshape(-1, n).T

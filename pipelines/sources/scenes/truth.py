"""The graded relevance of captions to scenes: how much of what a caption says is true of the
picture.

A caption's relevance to a scene is the weighted mean, over the facts it states, of the largest
credit that each fact gets anywhere in the scene:

- a mention (weight 2): the largest credit over the scene's objects, where an object's credit is its
  kind's, times 0.65 for a wrong colour and 0.85 for a wrong size. A kind's credit is 1 for the
  concept or one below it, 0.5 for the same group (dog for cat), 0.2 for the same family (cow for
  cat), else 0;
- a stated number (weight 1): min(m, n) / n for n said and m objects of the concept, and of the
  colour if one is said (a picture of three dogs also shows two);
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


def _kind_credit(concept: str, kind: str) -> float:
    """How well an object of `kind` serves as a `concept`, 0..1."""
    if is_a(kind, concept):
        return 1.0
    named = OBJECT_KINDS.get(concept)
    if named is None:  # The concept is a group or a family: any of its kinds stands for it.
        kinds = OBJECT_KINDS.values()
        named = next(member for member in kinds if concept in (member.group, member.family))
    same_group = OBJECT_KINDS[kind].group == named.group and concept != named.family
    return 0.5 if same_group else 0.2 if OBJECT_KINDS[kind].family == named.family else 0.0


def _place_credit(said: str, scene: str) -> float:
    """How well a scene's place serves as the one that was said, 0..1."""
    a, b = BACKGROUNDS[said], BACKGROUNDS[scene]
    if said == scene:
        return 1.0
    return 0.4 if a.group == b.group else 0.1 if a.setting == b.setting else 0.0


def truth(scenes: Sequence[Scene], meanings: Sequence[Meaning]) -> np.ndarray:
    """Relevance of every caption to every scene by this module's rule, 0..1: float32 [len(scenes),
    len(meanings)]."""
    of_kind, of_concept = _number(OBJECT_KINDS), _number(CONCEPTS)
    of_place, of_predicate = _number(BACKGROUNDS), _number(PREDICATES)
    of_size = {"": -1, **_number(SIZES)}
    of_colour = {"": -1, **_number(OBJECT_COLOURS)}
    facts: list[tuple[int, float]] = []  # of all captions in order: the caption and the weight
    # For each kind of fact: its index in `facts`, then the numbers of what it says.
    mentions: list[tuple[int, ...]] = []
    numbers: list[tuple[int, ...]] = []
    relations: list[tuple[int, ...]] = []
    places: list[tuple[int, ...]] = []
    for c, meaning in enumerate(meanings):
        first = len(mentions)
        for m in meaning.mentions:
            if m.count:
                numbers.append((len(facts) + 1, len(mentions), m.count))
            said = of_concept[m.concept], of_colour[m.colour], of_size[m.size]
            mentions.append((len(facts), *said))
            facts += [(c, MENTION), (c, _NUMBER)] if m.count else [(c, MENTION)]
        for r in meaning.relations:
            said = first + r.subject, of_predicate[r.predicate], first + r.object
            relations.append((len(facts), *said))
            facts.append((c, RELATION))
        if meaning.background:
            places.append((len(facts), of_place[meaning.background]))
            facts.append((c, _PLACE))
    caption, weight = np.array([c for c, _ in facts]), np.array([w for _, w in facts])
    mention_at, concept, colour, size = _columns(mentions, 4)
    number_at, counted, count = _columns(numbers, 3)
    relation_at, subject, predicate, other = _columns(relations, 4)
    place_at, place = _columns(places, 2)
    kinds = np.array(
        [[_kind_credit(concept, kind) for kind in OBJECT_KINDS] for concept in CONCEPTS]
    )
    place_credits = np.array([[_place_credit(a, b) for b in BACKGROUNDS] for a in BACKGROUNDS])
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
        value[mention_at] = credit.max(axis=1)
        value[number_at] = np.minimum(((own == 1.0) & right).sum(axis=1)[counted], count) / count
        holds = [(r.subject, of_predicate[r.predicate], r.object) for r in scene.relations]
        a, holding, b = _columns(holds, 3)
        product = credit[np.ix_(subject, a)] * credit[np.ix_(other, b)]
        product = np.where(predicate[:, None] == holding, product, 0.0)
        value[relation_at] = product.max(axis=1, initial=0.0)
        value[place_at] = place_credits[place, of_place[scene.background]]
        out[s] = np.bincount(caption, weight * value) / total
    return out


def _number(names: Iterable[str]) -> dict[str, int]:
    return {name: k for k, name in enumerate(names)}


def _columns(rows: Sequence[tuple[int, ...]], n: int) -> np.ndarray:
    """The columns of `rows`: int64 [n, rows], also of no row."""
    return np.array(rows, np.int64).reshape(-1, n).T

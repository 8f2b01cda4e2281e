"""Captions of a scene: sentences of varied length and synonyms, which mention a part of the scene,
each with its exact meaning."""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from capgrade.pipelines.sources.scenes.sampling import random_stream
from capgrade.pipelines.sources.scenes.scene import (
    Meaning,
    Mention,
    Relation,
    Scene,
    SceneObject,
    Span,
)
from capgrade.pipelines.sources.scenes.world import (
    BACKGROUNDS,
    HYPERNYMS,
    OBJECT_KINDS,
    WORDS,
    is_a,
)

HYPERNYM_SHARE = 0.12
SYNONYM_SHARE = 0.4
COLOUR_SHARE = 0.55
SIZE_SHARE = 0.22
_TRIES = 200


class _Draft:
    """A caption in the making: words, and the facts they state."""

    def __init__(self, rng: np.random.Generator, scene: Scene) -> None:
        self.rng, self.scene = rng, scene
        self.words: list[str] = []
        self.mentions: list[Mention] = []
        self.relations: list[Relation] = []
        self.spans: list[Span] = []
        self.background = ""

    def chance(self, share: float) -> bool:
        """True with this probability."""
        return bool(self.rng.random() < share)

    def one_of(self, options: Sequence[str]) -> str:
        """One of the options, each as likely."""
        return options[int(self.rng.integers(len(options)))]

    def say(self, text: str) -> None:
        """Add words."""
        self.words += text.split()

    def name(self, objects: Sequence[int]) -> int:
        """Say a noun phrase for objects of one kind; returns the index of its mention."""
        items = [self.scene.objects[o] for o in objects]
        kind = items[0].kind
        concept, names = kind, OBJECT_KINDS[kind].names
        hypernyms = [word for word in HYPERNYMS if is_a(kind, word)]
        if hypernyms and self.chance(HYPERNYM_SHARE):
            concept = self.one_of(hypernyms)
            names = HYPERNYMS[concept]
        singular, plural = names[0]
        if len(names) > 1 and self.chance(SYNONYM_SHARE):
            singular, plural = names[1 + int(self.rng.integers(len(names) - 1))]
        colour = size = ""
        if self.chance(COLOUR_SHARE) and len({item.colour for item in items}) == 1:
            colour = items[0].colour
        if self.chance(SIZE_SHARE) and len({item.size for item in items}) == 1:
            size = items[0].size
        person = OBJECT_KINDS[kind].family == "person"
        adjectives = [self.one_of(WORDS["sizes"][size])] if size else []
        if colour and not person:
            adjectives.append(self.one_of(("gray", "grey")) if colour == "gray" else colour)
        noun = " ".join([*adjectives, singular if len(items) == 1 else plural])
        start = len(self.words)
        determiner = "an" if noun[0] in "aeiou" else "a"
        if len(items) > 1:
            determiner = self.one_of(WORDS["numbers"][len(items)])
        self.say(f"{determiner} {noun}")
        if colour and person:
            self.say(self.one_of(WORDS["clothed"]).format(colour))
        count = len(items) if len(items) > 1 else 0
        self.mentions.append(Mention(concept, count, colour, size, tuple(objects)))
        self.spans.append(Span(start, len(self.words), tuple(objects)))
        return len(self.mentions) - 1

    def place(self) -> None:
        """Say where the scene is."""
        self.background = self.scene.background
        self.say(self.one_of(BACKGROUNDS[self.background].adverbials))

    def relate(self, fact: Relation, verb: bool) -> None:
        """Say a relation of two single objects: "a dog (is) to the left of a cat"."""
        subject = self.name([fact.subject])
        if verb and fact.predicate not in ("holding", "riding"):
            self.say("is")
        elif verb:
            self.say("is" if self.chance(0.6) else "")
        phrases = WORDS["relations"][fact.predicate]
        if verb and fact.predicate == "holding":
            phrases = phrases[:2] if self.words[-1] == "is" else phrases
        self.say(self.one_of(phrases))
        other = self.name([fact.object])
        self.relations.append(Relation(subject, fact.predicate, other))

    def finish(self, caption_id: str) -> tuple[str, Meaning]:
        """The text, with a capital and a full stop most of the time, and its meaning."""
        text = " ".join(self.words)
        text = text[0].upper() + text[1:] if self.chance(0.75) else text
        text += "." if self.chance(0.6) else ""
        facts = tuple(self.mentions), tuple(self.relations), self.background, tuple(self.spans)
        return text, Meaning(caption_id, *facts)


def _area(item: SceneObject) -> float:
    return (item.box[2] - item.box[0]) * (item.box[3] - item.box[1]) * item.visible


def _pick_groups(draft: _Draft, n: int) -> list[list[int]]:
    """Up to n groups of one kind each, larger things more often; sometimes one object of a group
    instead of all."""
    objects, of_kind = draft.scene.objects, defaultdict[str, list[int]](list)
    for k, item in enumerate(objects):
        of_kind[item.kind].append(k)
    groups = sorted(of_kind.values(), key=lambda g: -max(_area(objects[o]) for o in g))
    weights = np.array([max(_area(objects[o]) for o in g) for g in groups]) ** 0.5
    chosen = draft.rng.choice(
        len(groups), min(n, len(groups)), replace=False, p=weights / weights.sum()
    )
    return [
        groups[g] if draft.chance(0.75) else [groups[g][int(draft.rng.integers(len(groups[g])))]]
        for g in chosen
    ]


def _pick_relation(draft: _Draft) -> Relation | None:
    """A relation to say. One of contact (holding, riding, on) is three times as likely as one of
    position."""
    facts = draft.scene.relations
    if not facts:
        return None
    weights = np.array([3.0 if f.predicate in ("holding", "riding", "on") else 1.0 for f in facts])
    return facts[int(draft.rng.choice(len(facts), p=weights / weights.sum()))]


# The docstring of each form below is an example of what it says.
def _say_noun(draft: _Draft) -> None:
    """A red ball."""
    draft.name(_pick_groups(draft, 1)[0])


def _say_one_group(draft: _Draft) -> None:
    """Two dogs are sitting on the grass."""
    group = _pick_groups(draft, 1)[0]
    if draft.chance(0.2):
        draft.say("there is" if len(group) == 1 else "there are")
        draft.name(group)
    else:
        draft.name(group)
        items = [draft.scene.objects[o] for o in group]
        verb = OBJECT_KINDS[items[0].kind].doing
        # What the kind does is said only of objects in the kind's usual place.
        fits = verb and all(i.place == OBJECT_KINDS[i.kind].place for i in items)
        if fits and draft.chance(0.7):
            draft.say(f"{'is' if len(items) == 1 else 'are'} {verb}" if draft.chance(0.6) else verb)
    if draft.chance(0.8):
        draft.place()


def _say_groups(draft: _Draft) -> None:
    """A photo of a cow, two trees and a house in a meadow."""
    if draft.chance(0.4):
        draft.say(draft.one_of(WORDS["openings"]))
    groups = _pick_groups(draft, 2 + int(draft.rng.integers(2)))
    for k, group in enumerate(groups):
        if k:
            draft.say("and" if k == len(groups) - 1 else ",")
        draft.name(group)
    if draft.chance(0.6):
        draft.place()


def _say_relation(draft: _Draft) -> None:
    """A boy in red is next to a dog."""
    fact = _pick_relation(draft)
    if fact is None:
        _say_groups(draft)
        return
    draft.relate(fact, draft.chance(0.5))
    if draft.chance(0.5):
        draft.place()


def _say_two_facts(draft: _Draft) -> None:
    """A boy is next to a dog in a meadow, while two clouds are floating; or: with two clouds."""
    _say_relation(draft)
    mentioned = {o for m in draft.mentions for o in m.objects}
    fact = _pick_relation(draft)
    others = [g for g in _pick_groups(draft, 3) if not mentioned & set(g)]
    if fact is not None and not {fact.subject, fact.object} & mentioned:
        draft.say(draft.one_of((", while", ", and", "and")))
        draft.relate(fact, True)
    elif others:
        draft.say("with")
        draft.name(others[0])
    if not draft.background and draft.chance(0.7):
        draft.place()


_FORMS: dict[Callable[[_Draft], None], float] = {
    _say_noun: 0.10,
    _say_one_group: 0.25,
    _say_groups: 0.22,
    _say_relation: 0.28,
    _say_two_facts: 0.15,
}


def make_captions(scene: Scene, seed: int, count: int) -> list[tuple[str, Meaning]]:
    """`count` different captions of a scene with their meanings; caption k does not depend on the
    count."""
    index = int(scene.image_id.rsplit("-", 1)[1])
    rng = random_stream(seed, scene.split, index, 1)
    forms, shares = list(_FORMS), np.array(list(_FORMS.values()))
    captions: dict[str, tuple[str, Meaning]] = {}  # by the text without capitals and full stop
    for _ in range(_TRIES * count):
        if len(captions) == count:
            break
        draft = _Draft(rng, scene)
        forms[int(rng.choice(len(forms), p=shares / shares.sum()))](draft)
        text, meaning = draft.finish(f"{scene.image_id}#{len(captions)}")
        text = text.replace(" ,", ",")
        captions.setdefault(text.lower().rstrip("."), (text, meaning))
    return list(captions.values())

"""Captions of a scene: sentences with synonyms, partial mentions and varied length, each with its
exact meaning."""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from capgrade.pipelines.sources.scenes.sampling import stream
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


class Draft:
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
        """Say a noun phrase for objects of one kind; the number of its mention."""
        items = [self.scene.objects[o] for o in objects]
        kind = items[0].kind
        concept, names = kind, OBJECT_KINDS[kind].names
        above = [word for word in HYPERNYMS if is_a(kind, word)]
        if above and self.chance(HYPERNYM_SHARE):
            concept = self.one_of(above)
            names = HYPERNYMS[concept]
        one, many = names[0]
        if len(names) > 1 and self.chance(SYNONYM_SHARE):
            one, many = names[1 + int(self.rng.integers(len(names) - 1))]
        colour = (
            items[0].colour
            if self.chance(COLOUR_SHARE) and len({i.colour for i in items}) == 1
            else ""
        )
        size = (
            items[0].size if self.chance(SIZE_SHARE) and len({i.size for i in items}) == 1 else ""
        )
        person = OBJECT_KINDS[kind].family == "person"
        adjectives = [self.one_of(WORDS["sizes"][size])] if size else []
        if colour and not person:
            adjectives.append(self.one_of(("gray", "grey")) if colour == "gray" else colour)
        noun = " ".join([*adjectives, one if len(items) == 1 else many])
        start = len(self.words)
        article = "an" if noun[0] in "aeiou" else "a"
        self.say(
            f"{article if len(items) == 1 else self.one_of(WORDS['numbers'][len(items)])} {noun}"
        )
        if colour and person:
            self.say(self.one_of(WORDS["clothed"]).format(colour))
        self.mentions.append(
            Mention(concept, len(items) if len(items) > 1 else 0, colour, size, tuple(objects))
        )
        self.spans.append(Span(start, len(self.words), tuple(objects)))
        return len(self.mentions) - 1

    def place(self) -> None:
        """Say where."""
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

    def finished(self, caption_id: str) -> tuple[str, Meaning]:
        """The text, with capital and full stop as people happen to set them, and its meaning."""
        text = " ".join(self.words)
        text = text[0].upper() + text[1:] if self.chance(0.75) else text
        text += "." if self.chance(0.6) else ""
        facts = tuple(self.mentions), tuple(self.relations), self.background, tuple(self.spans)
        return text, Meaning(caption_id, *facts)


def _area(item: SceneObject) -> float:
    return (item.box[2] - item.box[0]) * (item.box[3] - item.box[1]) * item.visible


def _pick_groups(draft: Draft, n: int) -> list[list[int]]:
    """Up to n groups, larger things rather than smaller ones; sometimes one of a group instead of
    all."""
    objects, of_kind = draft.scene.objects, defaultdict[str, list[int]](list)
    for k, item in enumerate(objects):
        of_kind[item.kind].append(k)
    # most visible kinds first
    groups = sorted(of_kind.values(), key=lambda g: -max(_area(objects[o]) for o in g))
    weights = np.array([max(_area(objects[o]) for o in g) for g in groups]) ** 0.5
    chosen = draft.rng.choice(
        len(groups), min(n, len(groups)), replace=False, p=weights / weights.sum()
    )
    return [
        groups[g] if draft.chance(0.75) else [groups[g][int(draft.rng.integers(len(groups[g])))]]
        for g in chosen
    ]


def _fact(draft: Draft) -> Relation | None:
    """A relation to tell; what is held, ridden or sat on is told three times as readily as where
    things stand."""
    facts = draft.scene.relations
    if not facts:
        return None
    weights = np.array([3.0 if f.predicate in ("holding", "riding", "on") else 1.0 for f in facts])
    return facts[int(draft.rng.choice(len(facts), p=weights / weights.sum()))]


def short(draft: Draft) -> None:
    """A red ball."""
    draft.name(_pick_groups(draft, 1)[0])


def one_thing(draft: Draft) -> None:
    """Two dogs are sitting on the grass."""
    group = _pick_groups(draft, 1)[0]
    if draft.chance(0.2):
        draft.say("there is" if len(group) == 1 else "there are")
        draft.name(group)
    else:
        draft.name(group)
        items = [draft.scene.objects[o] for o in group]
        verb = OBJECT_KINDS[items[0].kind].doing
        # they stand where they do it
        fits = verb and all(i.place == OBJECT_KINDS[i.kind].place for i in items)
        if fits and draft.chance(0.7):
            draft.say(f"{'is' if len(items) == 1 else 'are'} {verb}" if draft.chance(0.6) else verb)
    if draft.chance(0.8):
        draft.place()


def several(draft: Draft) -> None:
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


def related(draft: Draft) -> None:
    """A boy in red is next to a dog."""
    fact = _fact(draft)
    if fact is None:
        return several(draft)
    draft.relate(fact, draft.chance(0.5))
    if draft.chance(0.5):
        draft.place()
    return None


def long(draft: Draft) -> None:
    """A boy is next to a dog in a meadow, while two clouds are floating; or: with two clouds."""
    related(draft)
    used = {o for m in draft.mentions for o in m.objects}
    fact = _fact(draft)
    rest = [g for g in _pick_groups(draft, 3) if not used & set(g)]
    if fact is not None and not {fact.subject, fact.object} & used:
        draft.say(draft.one_of((", while", ", and", "and")))
        draft.relate(fact, True)
    elif rest:
        draft.say("with")
        draft.name(rest[0])
    if not draft.background and draft.chance(0.7):
        draft.place()


_FORMS: dict[Callable[[Draft], None], float] = {
    short: 0.10,
    one_thing: 0.25,
    several: 0.22,
    related: 0.28,
    long: 0.15,
}


def captions(scene: Scene, seed: int, count: int) -> list[tuple[str, Meaning]]:
    """`count` differing captions of a scene with their meanings; caption k is the same whatever the
    count."""
    index = int(scene.image_id.rsplit("-", 1)[1])
    rng = stream(seed, scene.split, index, 1)
    forms, shares = list(_FORMS), np.array(list(_FORMS.values()))
    found: dict[str, tuple[str, Meaning]] = {}
    for _ in range(_TRIES * count):
        if len(found) == count:
            break
        draft = Draft(rng, scene)
        forms[int(rng.choice(len(forms), p=shares / shares.sum()))](draft)
        text, meaning = draft.finished(f"{scene.image_id}#{len(found)}")
        text = text.replace(" ,", ",")
        found.setdefault(text.lower().rstrip("."), (text, meaning))
    return list(found.values())

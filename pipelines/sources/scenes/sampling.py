"""One scene from (seed, split, index): a place, kinds that fit it, and where each object stands."""

from dataclasses import replace

import numpy as np

from capgrade.pipelines.sources.scenes.scene import (
    SPLITS,
    Box,
    Relation,
    Scene,
    SceneObject,
    covered_share,
    find_relations,
)
from capgrade.pipelines.sources.scenes.world import (
    BACKGROUNDS,
    OBJECT_KINDS,
    SIZES,
    Background,
    ObjectKind,
)

_TRIES = 30
_MARGIN = 0.015  # share of the picture's side that is kept free at its border
SCALES = {"small": (0.66, 0.76), "large": (1.02, 1.16)}  # range of sizes, in heights of the kind
_HIDDEN = 0.24  # largest share of the smaller box that two boxes on the ground have in common
_APART = 0.02  # the same for all other pairs
HAND = (0.95, 0.36)  # where the hand is in the box of a person who faces right
_CELLS = 48  # visibility is measured on a grid of this side
LOOKS = 6


Anchor = tuple[str, int]  # the predicate (on, holding or riding) and the other object's index


class _SceneLayout:
    """Objects placed so far, their boxes in shares of the picture's side, and the anchor of each.
    `add` looks for room, and leaves an object out where it finds none."""

    def __init__(self, rng: np.random.Generator, place: Background) -> None:
        self.rng, self.background = rng, place
        self.objects: list[SceneObject] = []
        self.anchors: list[Anchor | None] = []

    def add(self, kind: ObjectKind, colour: str, size: str) -> None:
        anchor = self._choose_anchor(kind)
        for _ in range(_TRIES):
            height = kind.height * self.rng.uniform(*SCALES[size])
            flip, look = bool(self.rng.integers(2)), int(self.rng.integers(LOOKS))
            wide = height * kind.aspect
            if anchor is None:
                box, depth, place = self._place_freely(kind, wide, height)
            else:
                box, depth, place = self._place_on(anchor, wide, height)
            item = SceneObject(kind.name, colour, size, box, depth, place, 1.0, flip, look)
            if self._fits(item, anchor):
                self.objects.append(item)
                self.anchors.append(anchor)
                return

    def finish(self, size: int) -> tuple[tuple[SceneObject, ...], tuple[Relation, ...]]:
        """Objects from back to front with boxes in pixels, and every relation between them."""
        order = sorted(range(len(self.objects)), key=lambda i: self.objects[i].depth)
        ordered = [self.objects[i] for i in order]
        rank = {old: new for new, old in enumerate(order)}
        objects = []
        for i, item in enumerate(ordered):
            x0, y0, x1, y1 = (round(edge * size, 2) for edge in item.box)
            share, depth = _visible_share(ordered, i), round(item.depth, 5)
            objects.append(replace(item, box=(x0, y0, x1, y1), depth=depth, visible=share))
        contacts = []
        for i, old in enumerate(order):
            if anchor := self.anchors[old]:
                predicate, base = anchor[0], rank[anchor[1]]
                # The base is the person who holds the object, or what the object is on or rides.
                pair = (base, i) if predicate == "holding" else (i, base)
                contacts.append(Relation(pair[0], predicate, pair[1]))
        return tuple(objects), find_relations(objects, contacts, size)

    def _choose_anchor(self, kind: ObjectKind) -> Anchor | None:
        """Something free to sit on, ride or be held by, most of the time."""
        taken = [anchor[1] for anchor in self.anchors if anchor and anchor[0] != "on"]
        kinds = [OBJECT_KINDS[item.kind] for item in self.objects]
        hands = [i for i, other in enumerate(kinds) if other.family == "person" and i not in taken]
        mounts = [i for i, other in enumerate(kinds) if other.ridden and i not in taken]
        seats = [i for i, other in enumerate(kinds) if other.seat is not None and not other.ridden]
        chance = self.rng.random()
        if kind.held and hands and chance < 0.75:
            return "holding", int(self.rng.choice(hands))
        if kind.family == "person" and mounts and chance < 0.6:
            return "riding", int(self.rng.choice(mounts))
        if kind.rests and seats and (kind.needs_seat or chance < 0.6):
            return "on", int(self.rng.choice(seats))
        return None

    def _place_freely(self, kind: ObjectKind, wide: float, height: float) -> tuple[Box, float, str]:
        low, high = self.background.ground  # the range of the lower edge
        if kind.place in ("air", "wall"):
            low, high = (edge + kind.height / 2 for edge in self.background.air)
        elif kind.place == "water" and self.background.water is not None:
            low, high = self.background.water
        elif kind.far:
            high = low + 0.35 * (high - low)
        left = self.rng.uniform(_MARGIN, max(1 - _MARGIN - wide, _MARGIN))
        foot = self.rng.uniform(low, high)
        free = (
            item for item, anchor in zip(self.objects, self.anchors, strict=True) if anchor is None
        )
        alike = [item for item in free if item.kind == kind.name]
        if alike and self.rng.random() < 0.7:  # a herd stays together
            last = alike[-1]
            step = (last.box[2] - last.box[0] + wide) / 2 * self.rng.uniform(0.95, 1.5)
            middle = (last.box[0] + last.box[2]) / 2 + step * self.rng.choice((-1, 1))
            left = middle - wide / 2
            foot = float(np.clip(last.box[3] + self.rng.normal(0, 0.03), low, high))
        box = (left, foot - height, left + wide, foot)
        behind = kind.place in ("air", "wall")
        return box, (0.1 * foot if behind else foot), kind.place

    def _place_on(self, anchor: Anchor, wide: float, height: float) -> tuple[Box, float, str]:
        base = self.objects[anchor[1]]
        seat = OBJECT_KINDS[base.kind].seat or 0.0
        x0, y0, x1, y1 = base.box
        if anchor[0] == "holding":
            across = HAND[0] if not base.flip else 1 - HAND[0]
            x, foot, place = x0 + across * (x1 - x0), y0 + HAND[1] * (y1 - y0), "hand"
        elif anchor[0] == "riding":
            x, place = (x0 + x1) / 2, "top"
            foot = min(y0 + (seat + 0.38) * (y1 - y0), y1)
        else:
            room = max((x1 - x0 - wide) / 2, 0.0)
            x, place = (x0 + x1) / 2 + self.rng.uniform(-1, 1) * 0.85 * room, "top"
            foot = y0 + seat * (y1 - y0)
        return (x - wide / 2, foot - height, x + wide / 2, foot), base.depth + 0.001, place

    def _fits(self, item: SceneObject, anchor: Anchor | None) -> bool:
        x0, y0, x1, y1 = item.box
        if x0 < _MARGIN or y0 < _MARGIN or x1 > 1 - _MARGIN or y1 > 1 - _MARGIN:
            return False
        for i, other in enumerate(self.objects):
            if anchor is not None and anchor[1] == i:
                continue
            may_hide = {item.place, other.place} <= {"ground"} and item.kind != other.kind
            if covered_share(item.box, other.box) > (_HIDDEN if may_hide else _APART):
                return False
        return True


def _visible_share(objects: list[SceneObject], index: int) -> float:
    """Share of a box that no later box covers, counted on a grid."""
    x0, y0, x1, y1 = objects[index].box
    middle = (np.arange(_CELLS) + 0.5) / _CELLS
    xs, ys = x0 + (x1 - x0) * middle, y0 + (y1 - y0) * middle
    free = np.ones((_CELLS, _CELLS), dtype=bool)
    for other in objects[index + 1 :]:
        a, b, c, d = other.box
        free[np.ix_((ys >= b) & (ys <= d), (xs >= a) & (xs <= c))] = False
    return float(free.mean())


MOST_OBJECTS = 7
_GROUPS = (0.10, 0.34, 0.34, 0.22)  # probability of 1, 2, 3, 4 different kinds
_COUNTS = (0.66, 0.17, 0.11, 0.06)  # probability of 1, 2, 3, 4 of a kind, up to its `most`
SAME_COLOUR = 0.8  # probability that the objects of a kind share their colour


def random_stream(seed: int, split: str, index: int, purpose: int) -> np.random.Generator:
    """The random generator of one scene (purpose 0) or of its captions (1), independent of all
    others."""
    key = (SPLITS.index(split), index, purpose)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def pick(rng: np.random.Generator, weights: dict[str, float]) -> str:
    """One key, with probability proportional to its weight."""
    total = np.cumsum(list(weights.values()))
    return list(weights)[int(np.searchsorted(total, rng.random() * total[-1], side="right"))]


def sample_scene(seed: int, split: str, index: int, size: int) -> Scene:
    """Scene `index` of `split`: 2..7 objects in a square of `size` pixels. The number of scenes in
    a split does not change it."""
    rng = random_stream(seed, split, index, 0)
    place = BACKGROUNDS[pick(rng, {name: b.weight for name, b in BACKGROUNDS.items()})]
    while True:  # It rarely takes a second layout, because few have too little room.
        layout = _SceneLayout(rng, place)
        for kind, colour, look in _draw_objects(rng, place):
            layout.add(kind, colour, look)
        if len(layout.objects) >= 2:
            break
    objects, facts = layout.finish(size)
    image_id = f"scene-{split}-{index:06d}"
    return Scene(image_id, split, place.name, size, int(rng.integers(2**31)), objects, facts)


def _draw_objects(rng: np.random.Generator, place: Background) -> list[tuple[ObjectKind, str, str]]:
    """Kind, colour and size of each object to place."""
    objects: list[tuple[ObjectKind, str, str]] = []
    remaining = dict(place.kinds)
    chosen: list[str] = []
    for _ in range(1 + int(rng.choice(len(_GROUPS), p=_GROUPS))):
        chosen.append(pick(rng, remaining))
        del remaining[chosen[-1]]
    kinds = [OBJECT_KINDS[name] for name in chosen]
    if any(kind.needs_seat for kind in kinds) and all(kind.seat is None for kind in kinds):
        chosen.append("table")
    for name in sorted(chosen, key=lambda name: _placement_rank(OBJECT_KINDS[name])):
        kind = OBJECT_KINDS[name]
        shares = _COUNTS[: kind.most]
        count = 1 + int(rng.choice(len(shares), p=np.array(shares) / sum(shares)))
        size = SIZES[int(rng.integers(2))]
        colour, same = pick(rng, kind.colours), rng.random() < SAME_COLOUR
        for _ in range(min(count, MOST_OBJECTS - len(objects))):
            objects.append((kind, colour if same else pick(rng, kind.colours), size))
    return objects


def _placement_rank(kind: ObjectKind) -> int:
    """The rank by which kinds are placed: first what others sit on or stand before, then people,
    who may hold others."""
    if kind.seat is not None or kind.far:
        return 0
    if kind.family == "person":
        return 1
    return 3 if kind.held or kind.rests else 2

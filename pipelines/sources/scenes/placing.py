"""Where each object goes: on the ground, in the air, on a seat, in a hand; with little hidden."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capgrade.pipelines.sources.scenes.backgrounds import Background
from capgrade.pipelines.sources.scenes.kinds import Kind
from capgrade.pipelines.sources.scenes.relations import relations
from capgrade.pipelines.sources.scenes.scene import Box, Relation, SceneObject, covered

TRIES = 30
MARGIN = 0.015  # kept free at the picture's border
SCALES = {"small": (0.66, 0.76), "large": (1.02, 1.16)}  # of the kind's height
HIDDEN = 0.24  # the most two boxes may share of the smaller, where both stand on the ground
APART = 0.02  # the same for all others
HAND = (0.95, 0.36)  # of a person's box, as drawn facing right
CELLS = 48  # visibility is measured on a grid of this side
LOOKS = 6


@dataclass(slots=True)
class Spot:
    """A placed object in shares of the picture's side."""

    kind: Kind
    colour: str
    size: str
    box: Box
    depth: float
    place: str
    flip: bool
    look: int
    anchor: tuple[str, int] | None = None  # (on, holding or riding; the other object)


class Layout:
    """Objects placed so far. `add` looks for room and leaves an object out where it finds none."""

    def __init__(self, rng: np.random.Generator, place: Background) -> None:
        self.rng, self.background = rng, place
        self.spots: list[Spot] = []

    def add(self, kind: Kind, colour: str, size: str) -> None:
        anchor = self._anchor(kind)
        for _ in range(TRIES):
            height = kind.height * self.rng.uniform(*SCALES[size])
            flip, look = bool(self.rng.integers(2)), int(self.rng.integers(LOOKS))
            wide = height * kind.aspect
            if anchor is None:
                box, depth, place = self._free(kind, wide, height)
            else:
                box, depth, place = self._joined(anchor, wide, height)
            spot = Spot(kind, colour, size, box, depth, place, flip, look, anchor)
            if self._fits(spot):
                self.spots.append(spot)
                return

    def finish(self, size: int) -> tuple[tuple[SceneObject, ...], tuple[Relation, ...]]:
        """Objects from back to front with boxes in pixels, and every relation between them."""
        order = sorted(range(len(self.spots)), key=lambda i: self.spots[i].depth)
        spots, rank = [self.spots[i] for i in order], {old: new for new, old in enumerate(order)}
        objects = tuple(_object(spot, size, _visible(spots, i)) for i, spot in enumerate(spots))
        held = [_fact(i, rank[spot.anchor[1]], spot.anchor[0]) for i, spot in enumerate(spots) if spot.anchor]
        return objects, relations(objects, held, size)

    def _anchor(self, kind: Kind) -> tuple[str, int] | None:
        """Something free to sit on, ride or be held by, most of the time."""
        taken = [spot.anchor[1] for spot in self.spots if spot.anchor and spot.anchor[0] != "on"]
        hands = [i for i, s in enumerate(self.spots) if s.kind.family == "person" and i not in taken]
        mounts = [i for i, s in enumerate(self.spots) if s.kind.ridden and i not in taken]
        seats = [i for i, s in enumerate(self.spots) if s.kind.seat is not None and not s.kind.ridden]
        chance = self.rng.random()
        if kind.held and hands and chance < 0.75:
            return "holding", int(self.rng.choice(hands))
        if kind.family == "person" and mounts and chance < 0.6:
            return "riding", int(self.rng.choice(mounts))
        if kind.rests and seats and (kind.needs_seat or chance < 0.6):
            return "on", int(self.rng.choice(seats))
        return None

    def _free(self, kind: Kind, wide: float, height: float) -> tuple[Box, float, str]:
        low, high = self._band(kind)
        left = self.rng.uniform(MARGIN, max(1 - MARGIN - wide, MARGIN))
        foot = self.rng.uniform(low, high)
        alike = [spot for spot in self.spots if spot.kind is kind and spot.anchor is None]
        if alike and self.rng.random() < 0.7:  # a herd stays together
            last = alike[-1]
            step = (last.box[2] - last.box[0] + wide) / 2 * self.rng.uniform(0.95, 1.5)
            middle = (last.box[0] + last.box[2]) / 2 + step * self.rng.choice((-1, 1))
            left = middle - wide / 2
            foot = float(np.clip(last.box[3] + self.rng.normal(0, 0.03), low, high))
        box = (left, foot - height, left + wide, foot)
        behind = kind.place in ("air", "wall")
        return box, (0.1 * foot if behind else foot), kind.place

    def _band(self, kind: Kind) -> tuple[float, float]:
        """Range of the lower edge."""
        low, high = self.background.ground
        if kind.place in ("air", "wall"):
            above, below = self.background.air
            return above + kind.height / 2, below + kind.height / 2
        if kind.place == "water" and self.background.water is not None:
            return self.background.water
        return (low, low + 0.35 * (high - low)) if kind.far else (low, high)

    def _joined(self, anchor: tuple[str, int], wide: float, height: float) -> tuple[Box, float, str]:
        base = self.spots[anchor[1]]
        x0, y0, x1, y1 = base.box
        if anchor[0] == "holding":
            across = HAND[0] if not base.flip else 1 - HAND[0]
            x, foot, place = x0 + across * (x1 - x0), y0 + HAND[1] * (y1 - y0), "hand"
        elif anchor[0] == "riding":
            x, place = (x0 + x1) / 2, "top"
            foot = min(y0 + ((base.kind.seat or 0.0) + 0.38) * (y1 - y0), y1)
        else:
            room = max((x1 - x0 - wide) / 2, 0.0)
            x, place = (x0 + x1) / 2 + self.rng.uniform(-1, 1) * 0.85 * room, "top"
            foot = y0 + (base.kind.seat or 0.0) * (y1 - y0)
        return (x - wide / 2, foot - height, x + wide / 2, foot), base.depth + 0.001, place

    def _fits(self, spot: Spot) -> bool:
        x0, y0, x1, y1 = spot.box
        if x0 < MARGIN or y0 < MARGIN or x1 > 1 - MARGIN or y1 > 1 - MARGIN:
            return False
        for i, other in enumerate(self.spots):
            if spot.anchor is not None and spot.anchor[1] == i:
                continue
            loose = {spot.place, other.place} <= {"ground"} and spot.kind is not other.kind
            if covered(spot.box, other.box) > (HIDDEN if loose else APART):
                return False
        return True


def _visible(spots: list[Spot], index: int) -> float:
    """Share of a box that no later box covers, counted on a grid."""
    x0, y0, x1, y1 = spots[index].box
    middle = (np.arange(CELLS) + 0.5) / CELLS
    xs, ys = x0 + (x1 - x0) * middle, y0 + (y1 - y0) * middle
    free = np.ones((CELLS, CELLS), dtype=bool)
    for other in spots[index + 1 :]:
        a, b, c, d = other.box
        free[np.ix_((ys >= b) & (ys <= d), (xs >= a) & (xs <= c))] = False
    return float(free.mean())


def _object(spot: Spot, size: int, visible: float) -> SceneObject:
    x0, y0, x1, y1 = (round(edge * size, 2) for edge in spot.box)
    depth = round(spot.depth, 5)
    return SceneObject(
        spot.kind.name, spot.colour, spot.size, (x0, y0, x1, y1), depth, spot.place, visible, spot.flip, spot.look
    )


def _fact(index: int, base: int, predicate: str) -> Relation:
    """A person holds the thing; a thing is on, and a person rides, the base."""
    return Relation(base, predicate, index) if predicate == "holding" else Relation(index, predicate, base)

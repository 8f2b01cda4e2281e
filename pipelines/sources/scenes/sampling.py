"""One scene from (seed, split, index): a place, kinds that live there, and room for each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capgrade.pipelines.sources.scenes.backgrounds import BACKGROUNDS, Background
from capgrade.pipelines.sources.scenes.kinds import KINDS, SIZES, Kind
from capgrade.pipelines.sources.scenes.placing import Layout
from capgrade.pipelines.sources.scenes.scene import SPLITS, Scene

MOST_OBJECTS = 7
GROUPS = (0.10, 0.34, 0.34, 0.22)  # probability of 1, 2, 3, 4 different kinds
COUNTS = (0.66, 0.17, 0.11, 0.06)  # probability of 1, 2, 3, 4 of a kind, as far as the kind allows
SAME_COLOUR = 0.8  # probability that the objects of a kind share their colour


def stream(seed: int, split: str, index: int, purpose: int) -> np.random.Generator:
    """The random numbers of one scene (purpose 0) or of its captions (1), independent of any other's."""
    key = (SPLITS.index(split), index, purpose)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def pick(rng: np.random.Generator, weights: dict[str, float]) -> str:
    """One key, with probability proportional to its weight."""
    share = np.cumsum(list(weights.values()))
    return list(weights)[int(np.searchsorted(share, rng.random() * share[-1], side="right"))]


def sample_scene(seed: int, split: str, index: int, size: int) -> Scene:
    """Scene `index` of `split`, 2..7 objects in a square of `size` pixels; the same for any other sizes."""
    rng = stream(seed, split, index, 0)
    place = BACKGROUNDS[pick(rng, {name: b.weight for name, b in BACKGROUNDS.items()})]
    while True:  # a layout is rarely too empty
        layout = Layout(rng, place)
        for wish in _wishes(rng, place):
            layout.add(KINDS[wish.kind], wish.colour, wish.size)
        if len(layout.spots) >= 2:
            break
    objects, facts = layout.finish(size)
    image_id = f"scene-{split}-{index:06d}"
    return Scene(image_id, split, place.name, size, int(rng.integers(2**31)), objects, facts)


@dataclass(frozen=True, slots=True)
class _Wish:
    kind: str
    colour: str
    size: str


def _wishes(rng: np.random.Generator, place: Background) -> list[_Wish]:
    wishes: list[_Wish] = []
    for name in sorted(_kinds(rng, place), key=lambda name: _turn(KINDS[name])):
        kind = KINDS[name]
        shares = COUNTS[: kind.most]
        count = 1 + int(rng.choice(len(shares), p=np.array(shares) / sum(shares)))
        size = SIZES[int(rng.integers(2))]
        colour, same = pick(rng, kind.colours), rng.random() < SAME_COLOUR
        for _ in range(min(count, MOST_OBJECTS - len(wishes))):
            wishes.append(_Wish(name, colour if same else pick(rng, kind.colours), size))
    return wishes


def _kinds(rng: np.random.Generator, place: Background) -> list[str]:
    left = dict(place.kinds)
    chosen: list[str] = []
    for _ in range(1 + int(rng.choice(len(GROUPS), p=GROUPS))):
        chosen.append(pick(rng, left))
        del left[chosen[-1]]
    if any(KINDS[name].needs_seat for name in chosen) and not any(KINDS[name].seat is not None for name in chosen):
        chosen.append("table")
    return chosen


def _turn(kind: Kind) -> int:
    """What others sit on, are held by or stand before comes first."""
    if kind.seat is not None or kind.far:
        return 0
    if kind.family == "person":
        return 1
    return 3 if kind.held or kind.rests else 2

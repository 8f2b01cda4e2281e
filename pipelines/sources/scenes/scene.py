"""A scene: its objects with boxes, what holds between them, and the place."""

from __future__ import annotations

from dataclasses import dataclass

SPLITS = ("train", "val", "test")
PREDICATES = (
    "left of",
    "right of",
    "above",
    "below",
    "on",
    "under",
    "next to",
    "in front of",
    "behind",
    "holding",
    "riding",
)
Box = tuple[float, float, float, float]  # x0, y0, x1, y1


@dataclass(frozen=True, slots=True)
class SceneObject:
    """One object. `box` is in pixels; `visible` is the share of the box that no nearer box covers."""

    kind: str
    colour: str
    size: str
    box: Box
    depth: float  # 0 at the back .. 1 in front: the order of painting
    place: str  # ground, water, air, wall, top (on another object) or hand
    visible: float
    flip: bool
    look: int  # 0..5, details that captions never mention, such as skin and hair


@dataclass(frozen=True, slots=True)
class Relation:
    """`subject` and `object` are indices: of a scene's objects, or of a meaning's mentions."""

    subject: int
    predicate: str
    object: int


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture as facts; `size` is the side of the square image in pixels."""

    image_id: str
    split: str
    background: str
    size: int
    variant: int  # seeds the texture of the background
    objects: tuple[SceneObject, ...]
    relations: tuple[Relation, ...]


def overlap(a: Box, b: Box) -> tuple[float, float]:
    """Width and height of the intersection; negative where there is a gap."""
    return min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])


def covered(a: Box, b: Box) -> float:
    """Intersection over the area of the smaller box."""
    wide, high = overlap(a, b)
    smaller = min((a[2] - a[0]) * (a[3] - a[1]), (b[2] - b[0]) * (b[3] - b[1]))
    return max(wide, 0.0) * max(high, 0.0) / smaller

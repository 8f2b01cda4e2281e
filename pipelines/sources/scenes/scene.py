"""A scene: its objects with boxes, what holds between them, the place, and what a caption says of
it."""

from collections.abc import Sequence
from dataclasses import dataclass

SPLITS = ("train", "val", "test")
Box = tuple[float, float, float, float]  # x0, y0, x1, y1


@dataclass(frozen=True, slots=True)
class SceneObject:
    """One object. `box` is in pixels; `visible` is the share of the box that no nearer box
    covers."""

    kind: str
    colour: str
    size: str
    box: Box
    depth: float  # 0 at the back .. 1 in front: the order of painting
    place: str  # ground, water, air, wall, top (on another object) or hand (of a person)
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


def covered_share(a: Box, b: Box) -> float:
    """Intersection over the area of the smaller box."""
    wide, high = overlap(a, b)
    smaller = min((a[2] - a[0]) * (a[3] - a[1]), (b[2] - b[0]) * (b[3] - b[1]))
    return max(wide, 0.0) * max(high, 0.0) / smaller


STANDING = ("ground", "water")
_SIDE = 0.25  # boxes side by side share at most this much of the narrower one's width
STACKED = 0.40  # boxes one behind the other share at least this much of it
# The widest gap and the largest difference of the lower edges for "next to", as shares of the
# picture's side.
_NEAR = 0.10


def _geometric_predicates(a: SceneObject, b: SceneObject, side: float) -> list[str]:
    """Predicates true of (a, b) in a picture of `side` pixels.

    - left of, right of: the boxes share <= 25 % of the narrower width, and their centres are
      farther apart across than down;
    - next to: they share as little, with a gap and lower edges within 0.1 side;
    - in front of, behind: both stand, share >= 40 % of that width, and differ in depth;
    - above, below: one does not stand, they share some width and <= 10 % of the lesser height, and
      their centres are farther apart down than across."""
    wide, high = overlap(a.box, b.box)
    width = min(a.box[2] - a.box[0], b.box[2] - b.box[0])
    height = min(a.box[3] - a.box[1], b.box[3] - b.box[1])
    across = (b.box[0] + b.box[2] - a.box[0] - a.box[2]) / 2
    down = (b.box[1] + b.box[3] - a.box[1] - a.box[3]) / 2
    standing = a.place in STANDING and b.place in STANDING
    predicates = []
    if wide <= _SIDE * width and abs(across) > abs(down):
        predicates.append("left of" if across > 0 else "right of")
    level = abs(a.box[3] - b.box[3]) <= _NEAR * side
    if wide <= _SIDE * width and -wide <= _NEAR * side and level:
        predicates.append("next to")
    if standing and wide >= STACKED * width and a.depth != b.depth:
        predicates.append("in front of" if a.depth > b.depth else "behind")
    if not standing and wide > 0 and high <= 0.1 * height and abs(down) > abs(across):
        predicates.append("above" if down > 0 else "below")
    return predicates


def find_relations(
    objects: Sequence[SceneObject], contacts: Sequence[Relation], side: float
) -> tuple[Relation, ...]:
    """`contacts` (on, holding, riding: true by construction) and what they entail, then the
    geometric relations of every other ordered pair. "on" entails the inverse "under", and "riding"
    entails "on"."""
    facts = list(contacts)
    for fact in contacts:
        if fact.predicate == "riding":
            facts.append(Relation(fact.subject, "on", fact.object))
        if fact.predicate in ("riding", "on"):
            facts.append(Relation(fact.object, "under", fact.subject))
    touching = {frozenset((fact.subject, fact.object)) for fact in contacts}
    for i, a in enumerate(objects):
        for j, b in enumerate(objects):
            if i != j and frozenset((i, j)) not in touching:
                facts += [
                    Relation(i, predicate, j) for predicate in _geometric_predicates(a, b, side)
                ]
    return tuple(facts)


@dataclass(frozen=True, slots=True)
class Mention:
    """A noun phrase. `concept` is a kind or a hypernym; `count` is 0 unless a number was said;
    `colour` and `size` are empty unless said. `objects` are the scene's objects it speaks of."""

    concept: str
    count: int
    colour: str
    size: str
    objects: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """Words `start` to `end` (exclusive) of `caption.split()` speak of these objects of the
    scene."""

    start: int
    end: int
    objects: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Meaning:
    """The facts of one caption. Relations join indices of `mentions`; `background` is empty unless
    said."""

    caption_id: str
    mentions: tuple[Mention, ...]
    relations: tuple[Relation, ...]
    background: str
    spans: tuple[Span, ...]

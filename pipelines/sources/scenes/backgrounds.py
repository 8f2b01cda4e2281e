"""The places: how often they occur, where things stand in them, and which kinds live there."""

from __future__ import annotations

from dataclasses import dataclass

Band = tuple[float, float]  # from, to: shares of the picture's side, downwards


@dataclass(frozen=True, slots=True)
class Background:
    """One place. `weight` is how often it is drawn, `kinds` how often each kind appears in it."""

    name: str
    group: str  # backgrounds of one group look alike
    setting: str  # "outdoors" or "indoors"
    weight: float
    ground: Band  # where the feet of standing objects are
    air: Band  # where the middle of flying and hanging objects is
    water: Band | None
    kinds: dict[str, float]
    nouns: tuple[str, ...]
    adverbials: tuple[str, ...]


def _kinds(text: str) -> dict[str, float]:
    """Read "cow 8, teddy bear 2" into weights."""
    pairs = [entry.strip().rsplit(" ", 1) for entry in text.split(",")]
    return {name: float(weight) for name, weight in pairs}


_ALL = (
    Background(
        "meadow", "green", "outdoors", 10, (0.66, 0.97), (0.10, 0.30), None,
        _kinds("cow 12, sheep 8, horse 8, dog 6, tree 8, flower 6, sun 5, cloud 5, house 4, boy 4, girl 4, man 3,"
               " woman 3, rabbit 3, butterfly 3, kite 3, ball 2, bicycle 2, balloon 2, bird 2, tent 1, elephant 1"),
        ("a meadow", "a green field", "a grassy pasture"),
        ("in a meadow", "in a green field", "on the grass", "in the pasture"),
    ),
    Background(
        "street", "town", "outdoors", 9, (0.68, 0.97), (0.08, 0.26), None,
        _kinds("car 14, bus 7, man 7, woman 7, bicycle 6, truck 5, tower 6, house 5, dog 5, tree 4, bench 3, boy 3,"
               " girl 3, cloud 3, balloon 2, umbrella 2, sun 2, airplane 1, cat 1"),
        ("a street", "a town road", "a paved road"),
        ("on a street", "on the road", "along a town street", "in the street"),
    ),
    Background(
        "room", "home", "indoors", 8, (0.76, 0.97), (0.12, 0.34), None,
        _kinds("sofa 12, cat 9, table 8, lamp 7, chair 6, teddy bear 5, dog 5, girl 4, woman 4, man 4, boy 3, clock 5,"
               " ball 3, cup 3, bed 4, balloon 2, cake 2"),
        ("a living room", "a cosy room", "a lounge"),
        ("in a living room", "in a cosy room", "in the lounge", "on a wooden floor"),
    ),
    Background(
        "beach", "shore", "outdoors", 7, (0.76, 0.97), (0.10, 0.28), (0.52, 0.62),
        _kinds("umbrella 8, woman 7, boat 7, ball 7, sun 7, man 5, girl 5, boy 5, bird 4, dog 4, cloud 4, kite 4,"
               " chair 3, horse 1, airplane 1, bicycle 1"),
        ("a beach", "a sandy shore", "the seaside"),
        ("on a beach", "on the sand", "by the sea", "at the seaside"),
    ),
    Background(
        "kitchen", "home", "indoors", 5, (0.80, 0.97), (0.12, 0.32), None,
        _kinds("table 12, chair 8, cup 8, apple 8, cake 6, clock 5, woman 4, man 4, banana 4, cat 4, dog 3, girl 3,"
               " boy 3, lamp 1, balloon 1"),
        ("a kitchen", "a tiled kitchen"),
        ("in a kitchen", "in the kitchen", "on the kitchen tiles"),
    ),
    Background(
        "forest", "green", "outdoors", 5, (0.68, 0.97), (0.12, 0.32), None,
        _kinds("pine 10, tree 10, rabbit 6, bird 5, tent 5, flower 4, butterfly 4, horse 3, man 3, boy 3, girl 3,"
               " woman 2, dog 3, house 2, bicycle 2, bench 1, sun 1"),
        ("a forest", "the woods", "a shady wood"),
        ("in a forest", "in the woods", "in a forest clearing"),
    ),
    Background(
        "lake", "shore", "outdoors", 4, (0.86, 0.97), (0.08, 0.28), (0.52, 0.78),
        _kinds("duck 11, boat 9, fish 5, sun 4, cloud 4, bird 4, man 4, boy 3, dog 3, bench 3, woman 2, tent 2,"
               " flower 2, girl 2, airplane 1"),
        ("a lake", "a calm lake", "a lakeside"),
        ("at a lake", "by the lake", "at the lakeside", "by the water"),
    ),
    Background(
        "snow", "bare", "outdoors", 3.5, (0.66, 0.97), (0.10, 0.30), None,
        _kinds("snowman 10, pine 9, boy 6, girl 6, house 5, dog 4, man 4, woman 3, cloud 3, moon 2, rabbit 3, truck 1,"
               " bird 2"),
        ("a snowy field", "a winter landscape"),
        ("in the snow", "on a snowy field", "in a winter landscape"),
    ),
    Background(
        "night city", "town", "outdoors", 3, (0.72, 0.97), (0.10, 0.26), None,
        _kinds("tower 9, car 9, moon 8, bus 5, man 5, woman 5, cat 4, umbrella 3, bicycle 3, airplane 2, truck 2,"
               " bench 2, dog 2"),
        ("a city at night", "a dark city street", "a town after dark"),
        ("in a city at night", "on a dark city street", "in town after dark"),
    ),
    Background(
        "desert", "bare", "outdoors", 2.5, (0.68, 0.97), (0.10, 0.28), None,
        _kinds("cactus 11, sun 7, elephant 4, truck 4, tent 4, horse 4, man 4, bird 3, airplane 3, woman 2, cloud 1,"
               " car 2"),
        ("a desert", "a dry desert", "a sandy wasteland"),
        ("in a desert", "in the desert", "among the dunes"),
    ),
)  # fmt: skip
BACKGROUNDS: dict[str, Background] = {place.name: place for place in _ALL}

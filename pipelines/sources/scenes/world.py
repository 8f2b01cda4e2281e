"""The typed content of world.yaml: the kinds of object, their names and looks, and the places where
they stand."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Names = Sequence[tuple[str, str]]  # (singular, plural), the usual word first
Band = tuple[float, float]  # upper and lower edge, as shares of the picture's side


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """One kind of object. `height` is a share of the picture's side, `aspect` is width over
    height."""

    name: str
    group: str  # the closest kinds, such as "pet"
    family: str  # the wider circle, such as "animal"
    names: Names
    colours: dict[str, float]  # the frequency of each; a person's colour is that of the clothes
    height: float
    aspect: float
    place: str = "ground"  # ground, water, air or wall
    far: bool = False  # stands near the horizon
    most: int = 1  # how many a picture has at most
    doing: str = ""  # participle of what it does in the drawing
    seat: float | None = None  # others may sit on it, at this share of its height from the top
    rests: bool = False  # may stand on a seat
    needs_seat: bool = False  # looks wrong on the floor
    held: bool = False  # may be in a person's hand
    ridden: bool = False  # a person may sit on it


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
    adverbials: Sequence[str]


_WORLD = yaml.safe_load(Path(__file__).with_name("world.yaml").read_text(encoding="utf-8"))
OBJECT_COLOURS: dict[str, tuple[int, int, int]] = {
    name: tuple(rgb) for name, rgb in _WORLD["colours"].items()
}
OBJECT_KINDS = {name: ObjectKind(name, **facts) for name, facts in _WORLD["kinds"].items()}
BACKGROUNDS = {name: Background(name, **facts) for name, facts in _WORLD["backgrounds"].items()}
HYPERNYMS: dict[str, Names] = _WORLD["hypernyms"]
CONCEPTS = (*OBJECT_KINDS, *HYPERNYMS)  # what a caption's noun may mean
WORDS: dict[str, Any] = _WORLD["words"]
SIZES = tuple(WORDS["sizes"])
PREDICATES = tuple(WORDS["relations"])


def is_a(kind: str, concept: str) -> bool:
    """Whether every object of `kind` is also a `concept` (a kind or a hypernym)."""
    return concept in (kind, OBJECT_KINDS[kind].group, OBJECT_KINDS[kind].family)

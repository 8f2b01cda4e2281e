"""What a caption says, as facts: mentions with attributes, relations between them, the place."""

from __future__ import annotations

from dataclasses import dataclass

from capgrade.pipelines.sources.scenes.scene import Relation


@dataclass(frozen=True, slots=True)
class Mention:
    """A noun phrase. `concept` is a kind or a hypernym; `count` is 0 unless a number was said; `colour` and `size`
    are empty unless said. `objects` are the scene's objects it speaks of."""

    concept: str
    count: int
    colour: str
    size: str
    objects: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """Words `start` to `end` (exclusive) of `caption.split()` speak of these objects of the scene."""

    start: int
    end: int
    objects: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Meaning:
    """The facts of one caption. Relations join indices of `mentions`; `background` is empty unless said."""

    caption_id: str
    mentions: tuple[Mention, ...]
    relations: tuple[Relation, ...]
    background: str
    spans: tuple[Span, ...]

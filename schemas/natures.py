"""What a parameter is, said by the type of its field: a place, how the work is done, or how far a
run goes. Every other parameter decides the result.

The type is all that a nature needs, so a block may stand in any file, also of another package.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from capgrade.schemas.errors import InputError


@dataclass(frozen=True)
class Place:
    """A path: in a file of parameters it is relative to that file, and its content is the input."""

    # what a value that is no path names: a model or dataset of the hub, or something else
    name: Literal["model", "dataset", "other"] | None = None
    pictures: bool = False  # a list or table there may name further files


@dataclass(frozen=True)
class Manner:
    """How the work is done: processes, sizes of blocks, timeouts, a device. No result depends on
    it, but for what another device rounds."""

    path: bool = False  # of a folder to write to, or to keep things in


@dataclass(frozen=True)
class Reach:
    """It decides which parts a result has or how they lie in files, and none of the parts: a
    stopped run goes on under another value."""


@dataclass(frozen=True)
class PartOf:
    """A mapping of some keys of a block."""

    block: type[BaseModel]


@dataclass(frozen=True)
class As:
    """Where it is not given, it is as another key, `block.key`."""

    key: str


@dataclass(frozen=True)
class OfSplit:
    """The name of a split of the captions, or of several: val+test."""


@dataclass(frozen=True)
class OfMeasures:
    """Names of measures: a stage that has such also depends on these measures' parameters."""


Nature = Place | Manner | Reach
_T = TypeVar("_T")
_M = TypeVar("_M")
Split = Annotated[str, OfSplit()]
OneMeasure = Annotated[str, OfMeasures()]
Measures = Annotated[tuple[str, ...], OfMeasures(), Field(min_length=1)]
How = Annotated[_T, Manner()]
Extent = Annotated[_T, Reach()]
Where = Annotated[str, Place()]
WhereOrName = Annotated[str, Place(name="other")]
ModelAt = Annotated[str, Place(name="model")]
DatasetAt = Annotated[str, Place(name="dataset")]
PicturesAt = Annotated[str, Place(name="dataset", pictures=True)]
Scratch = Annotated[str, Manner(path=True)]

LEFT_OUT: Any = object()  # what a change returns for a parameter that is left out
# From a key, its nature and its value to another value.
Change = Callable[[str, Nature | None, Any], Any]


def nature_of(field: FieldInfo) -> Nature | None:
    """What a field is; None: it decides the result, or is a block of its own."""
    return next(
        (mark for one in get_args(Nature) if (mark := mark_of(field, one)) is not None), None
    )


def mark_of(field: FieldInfo, kind: type[_M]) -> _M | None:
    """The mark of this kind that a field's type has, at any depth but within blocks."""
    return _mark(field.annotation, field.metadata, kind)


def _mark(annotation: Any, metadata: list[Any] | tuple[Any, ...], kind: type[_M]) -> _M | None:
    for one in metadata:
        if isinstance(one, kind):
            return one
    if get_origin(annotation) is Annotated:
        annotation, *inner = get_args(annotation)
        return _mark(annotation, inner, kind)
    if get_origin(annotation) is Literal:
        return None
    return next(filter(None, (_mark(arg, (), kind) for arg in get_args(annotation))), None)


def measure_names(params: BaseModel) -> list[str]:
    """The measures that a block names."""
    marked = [key for key, field in type(params).model_fields.items() if mark_of(field, OfMeasures)]
    named = [getattr(params, key) for key in marked]
    return [name for one in named for name in ([one] if isinstance(one, str) else one or ())]


def keys_of(block: type[BaseModel], nature: type[Nature]) -> list[str]:
    """The names of a block's own fields of this nature."""
    return [
        name for name, field in block.model_fields.items() if isinstance(nature_of(field), nature)
    ]


def leaves_of(block: type[BaseModel], above: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every key with its field, those of blocks within it by dotted keys.

    A block that a mapping or list holds several of has `*` in its place.
    """
    for name, field in block.model_fields.items():
        inner = list(_blocks(field.annotation, field.metadata))
        for kind, several in inner:
            yield from leaves_of(kind, f"{above}{name}{'.*' if several else ''}.")
        if not inner:
            yield f"{above}{name}", field


def has_blocks(field: FieldInfo) -> bool:
    """Whether a field is a block, or holds blocks."""
    return any(_blocks(field.annotation, field.metadata))


def _blocks(
    kind: Any, metadata: list[Any] | tuple[Any, ...] = (), several: bool = False
) -> Iterator[tuple[type[BaseModel], bool]]:
    """The blocks that a type has, and whether it has several of each."""
    if (own := _own_block(kind, metadata)) is not None:
        yield own, several
    elif get_origin(kind) is Annotated:
        kind, *inner = get_args(kind)
        yield from _blocks(kind, inner, several)
    elif get_origin(kind) is not Literal:
        several |= get_origin(kind) in (dict, tuple, list)
        for arg in get_args(kind):
            yield from _blocks(arg, (), several)


def _own_block(kind: Any, metadata: list[Any] | tuple[Any, ...]) -> type[BaseModel] | None:
    for one in metadata:
        if isinstance(one, PartOf):
            return one.block
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def changed(
    block: type[BaseModel], tree: Mapping[str, Any], change: Change, above: str = ""
) -> dict[str, Any]:
    """A block's values, as YAML has them or `model_dump`, each as `change` gives it.

    Keys that the block does not have, and values where it has a block, stay: its model refuses
    them.
    """
    values = {}
    for name, value in tree.items():
        field, key = block.model_fields.get(name), f"{above}{name}"
        if field is not None:
            if has_blocks(field):
                value = _within(field.annotation, field.metadata, value, change, key)
            else:
                value = change(key, nature_of(field), value)
        if value is not LEFT_OUT:
            values[name] = value
    return values


def _within(
    kind: Any, metadata: list[Any] | tuple[Any, ...], value: Any, change: Change, key: str
) -> Any:
    """The same of a value whose type has blocks."""
    origin, args = get_origin(kind), get_args(kind)
    if (own := _own_block(kind, metadata)) is not None:
        return changed(own, value, change, f"{key}.") if isinstance(value, Mapping) else value
    if origin is Annotated:
        return _within(args[0], args[1:], value, change, key)
    if origin in (Union, UnionType):
        arm = next(arg for arg in args if any(_blocks(arg)))
        return _within(arm, (), value, change, key)
    if origin is dict and isinstance(value, Mapping):
        return {
            name: _within(args[1], (), one, change, f"{key}.{name}") for name, one in value.items()
        }
    if origin in (tuple, list) and isinstance(value, list | tuple):
        return [_within(args[0], (), one, change, f"{key}.{k}") for k, one in enumerate(value)]
    return value


def each(value: Any, change: Callable[[str], Any]) -> Any:
    """A value of places, which is one, a list, a mapping or None, with each of them changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: each(one, change) for name, one in value.items()}
    return [each(one, change) for one in value] if isinstance(value, list | tuple) else value


def is_path(place: Place, value: str) -> bool:
    """Whether a value is a path, and not the name of something."""
    if place.name is None:
        return True
    if "://" in value:
        return False
    return value[:1] in ("/", ".", "~") or "{" in value or exists(value)


def resolved(
    block: type[BaseModel], tree: Mapping[str, Any], folder: Path, file: Path | None = None
) -> dict[str, Any]:
    """A block's values with every path seen from the current folder, where `folder` is what they
    are relative to.

    InputError, naming `file`, for a name of something that is a path in the current folder alone.
    """
    if folder.resolve() == Path.cwd():
        return dict(tree)

    def resolve(key: str, nature: Nature | None, value: Any) -> Any:
        if isinstance(nature, Place) or (isinstance(nature, Manner) and nature.path):
            return each(value, lambda one: _seen_from_here(key, nature, one, folder, file))
        return value

    return changed(block, tree, resolve)


def _seen_from_here(
    key: str, nature: Place | Manner, value: str, folder: Path, file: Path | None
) -> str:
    if "://" in value:
        return value
    there = os.path.normpath(folder.resolve() / Path(value).expanduser())
    may_be_name = isinstance(nature, Place) and nature.name is not None
    if not may_be_name or value[:1] in ("/", ".", "~") or "{" in value or exists(there):
        return there
    if exists(value):
        problem = f"{key} is '{value}', which lies in the current folder and not beside this file"
        remedy = "write its path relative to this file, or an absolute one"
        raise InputError(problem, file=file, remedy=remedy)
    return value


def exists(path: str | Path) -> bool:
    """Whether something is there; nothing is at what no path can be."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # a name that is too long, a NUL
        return False


def _last_name(value: str) -> str:
    """The last name of a path: FOLDER#split of a document frequency keeps its split."""
    folder, hash_, split = value.partition("#")
    return f"{Path(folder).name}{hash_}{split}"


def of_parts(params: BaseModel) -> dict[str, Any]:
    """What of a block decides a part of the result, beside the content of its places."""

    def keep(key: str, nature: Nature | None, value: Any) -> Any:
        if isinstance(nature, Place):
            # That there is a path tells how the rest is read; a name tells what is used.
            return each(value, lambda one: None if is_path(nature, one) else one)
        return LEFT_OUT if isinstance(nature, Manner | Reach) else value

    return changed(type(params), params.model_dump(mode="json"), keep)


def recorded(params: BaseModel) -> dict[str, Any]:
    """What a manifest says of a block: what decides the result, and places by their last names."""

    def record(key: str, nature: Nature | None, value: Any) -> Any:
        if isinstance(nature, Place):
            return each(value, lambda one: _last_name(one) if is_path(nature, one) else one)
        return LEFT_OUT if isinstance(nature, Manner) else value

    return changed(type(params), params.model_dump(mode="json"), record)

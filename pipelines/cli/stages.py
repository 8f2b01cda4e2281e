"""The command of a stage, made of its block of parameters and of what it reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from typer import Option

from capgrade.pipelines.options import (
    COMMON_OPTIONS,
    FILE,
    FOLDER,
    NAME,
    PATH,
    TEXT,
    CommonOptions,
    OptionalOut,
    Out,
    beam_options,
    load,
    parse_measures,
    parse_pairs,
    print_result,
    require_all,
)
from capgrade.schemas.block import listed
from capgrade.schemas.keys import block_of, note_of
from capgrade.schemas.natures import (
    OfMeasures,
    OfSplit,
    Place,
    has_blocks,
    mark_of,
    measure_names,
    nature_of,
)
from capgrade.schemas.say import first_process
from capgrade.schemas.stage import Reads, Stage

_FEW = 3  # choices that stand for the value in help
_WORDS = {int: "N", float: "NUMBER", bool: "true|false", str: TEXT}


def make_command(stage: Stage[Any]) -> Callable[..., None]:
    """The command as Typer takes it: options for the folders that it reads, `--out`, and its knobs;
    those of every command come last."""
    knobs = knobs_of(stage)
    of_measures = [name for name, field in knobs.items() if _names_measures(field)]
    options: dict[str, tuple[Any, Any]] = {"context": (typer.Context, inspect.Parameter.empty)}
    options |= {name: _read_option(name, reads) for name, reads in stage.reads.items()}
    options["out"] = (Out, inspect.Parameter.empty) if stage.needs_out else (OptionalOut, None)
    hidden = {name for name in knobs if stage.told and name not in stage.told}
    options |= {name: _option(name, field, name in hidden) for name, field in knobs.items()}
    options["common"] = (CommonOptions, COMMON_OPTIONS)

    def run(context: typer.Context, out: Path | None, common: CommonOptions, **values: Any) -> None:
        given: dict[str, Any] = {}
        for name, field in knobs.items():
            given |= _given(name, field, values[name])
        named = [text for name in of_measures for text in listed(values[name]) or ()]
        loaded = load(common.params, common.sets, ",".join(named), **{stage.name: given})
        params = getattr(loaded, stage.name)
        more: dict[str, Any] = {}
        if of_measures:
            more["measures"] = loaded.measures
        words = beam_options(context) if stage.on_beam else []
        beam = ["apache_beam"] if words else []
        require_all(*stage.modules, *beam, measures=measure_names(params), params=loaded.measures)
        if words:
            from capgrade.pipelines.execution.runners import BeamRunner

            more["runner"] = BeamRunner(words)
        read = {name: _folder(reads, values[name]) for name, reads in stage.reads.items()}
        done = stage.imported()(**read, out=out, params=params, **more)
        if not first_process():
            return
        if common.as_json:
            print_result(done if isinstance(done, dict) else done.json(), True)
            return
        line, *further = stage.line(done, params).split("\n")
        typer.echo("\n".join([line if out is None else f"{line} -> {out}", *further]))

    run.__doc__ = stage.about
    if hidden:
        keys = f"Every other key of the block `{stage.name}` is an option, too"
        run.__doc__ += f"\n\n{keys}: `capgrade list parameters`."
    run.__annotations__ = {name: annotation for name, (annotation, _) in options.items()}
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
            )
            for name, (annotation, default) in options.items()
        ]
    )
    return run


def knobs_of(stage: Stage[Any]) -> dict[str, FieldInfo]:
    """The keys of a stage's block that are options of its command, too: values, lists of them, and
    what maps names to them. What is nested deeper is left to `--set`, and a key that is called as
    a folder that the stage reads."""

    def is_flat(field: FieldInfo) -> bool:
        mappings = [kind for kind in _kinds(field.annotation) if get_origin(kind) is dict]
        return _is_of_pairs(field) or not (mappings or has_blocks(field))

    fields = stage.params.model_fields.items()
    return {name: field for name, field in fields if is_flat(field) and name not in stage.reads}


def _read_option(name: str, reads: Reads) -> tuple[Any, Any]:
    what, metavar = ("File", FILE) if reads.file else ("Folder", FOLDER)
    more = ", or its URL" * reads.at_url + "; repeat for several" * reads.several
    help_text = f"{what} that `capgrade {reads.stage}` wrote{more}."
    kind: Any = str if reads.at_url else Path
    kind = list[kind] if reads.several else kind
    metavar = f"{metavar}_OR_URL" if reads.at_url else metavar
    option = Option(f"--{name}", metavar=metavar, help=help_text)
    if reads.needed:
        return Annotated[kind, option], inspect.Parameter.empty
    return Annotated[kind | None, option], None


def _option(name: str, field: FieldInfo, hidden: bool) -> tuple[Any, Any]:
    """Of a knob, its type as Typer takes it, and that it is not given."""
    option, said = _option_of(name), " ".join(note_of(field)).rstrip(".")
    choices, help_text = _choices(field), f"{said[:1].upper()}{said[1:]}."
    if _is_flag(field):
        return Annotated[bool, Option(option, help=help_text, hidden=hidden)], False
    if len(choices) > _FEW:
        help_text = f"{help_text[:-1]}: {', '.join(choices)}."
    if not _is_of_pairs(field) and field.default not in (None, (), ""):
        help_text += f" Default: {_as_typed(field.default)}."
    kind: Any = list[str] if _is_of_pairs(field) or _is_list(field.annotation) else str
    metavar = _metavar(field)
    made = Option(option, metavar=metavar, help=help_text, hidden=hidden)
    return Annotated[kind | None, made], None


def _option_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _as_typed(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _metavar(field: FieldInfo) -> str:
    """What stands for the value in help."""
    place, choices, kinds = nature_of(field), _choices(field), _kinds(field.annotation)
    if _is_of_pairs(field):
        return f"NAME={PATH if isinstance(place, Place) else 'VALUE'}"
    if mark_of(field, OfSplit):
        return "SPLIT"
    if _names_measures(field):
        return "NAME,..." if _is_list(field.annotation) else NAME
    if isinstance(place, Place):
        return PATH
    word = _WORDS.get(kinds[0], TEXT)
    if choices:
        word = "|".join(choices) if len(choices) <= _FEW else NAME
    return f"{word},..." if _is_list(field.annotation) else word


def _choices(field: FieldInfo) -> list[str]:
    """The names that a value may have; none where it is no such name."""
    kinds = [kind for kind in _kinds(field.annotation) if get_origin(kind) is Literal]
    return [str(name) for kind in kinds for name in get_args(kind)]


def _kinds(annotation: Any) -> list[Any]:
    """The types that a value, or each value of a list, may have."""
    if get_origin(annotation) in (Annotated, tuple):
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for arm in _arms(annotation) for kind in _kinds(arm)]
    return [annotation]


def _arms(annotation: Any) -> list[Any]:
    """What a union is of, without None; the type itself where it is no union."""
    if get_origin(annotation) not in (Union, UnionType):
        return [annotation]
    return [arm for arm in get_args(annotation) if arm is not type(None)]


def _is_list(annotation: Any) -> bool:
    return any(get_origin(kind) is tuple for kind in _arms(annotation))


def _is_of_pairs(field: FieldInfo) -> bool:
    """Whether a value is given as NAME=VALUE: of a mapping to values, or a block of values."""
    if (block := block_of(field.annotation)) is not None:
        return not any(map(has_blocks, block.model_fields.values()))
    return get_origin(field.annotation) is dict and get_args(field.annotation)[1] is not Any


def _is_flag(field: FieldInfo) -> bool:
    """Whether the option alone says true; of a key that is true by default it takes a value."""
    return field.annotation is bool and field.default is False


def _names_measures(field: FieldInfo) -> bool:
    return mark_of(field, OfMeasures) is not None


def _given(name: str, field: FieldInfo, value: Any) -> dict[str, Any]:
    """What an option says, by dotted key. A list of places is given by repeating the option, as
    their names may have commas."""
    if not value:
        return {}
    if _is_of_pairs(field):
        pairs = parse_pairs(value, _option_of(name))
        if block_of(field.annotation) is None:
            return {name: pairs}
        return {f"{name}.{key}": text for key, text in pairs.items()}
    if _names_measures(field):
        names = parse_measures(",".join(listed(value)))
        return {name: names if _is_list(field.annotation) else names[0]}
    if not _is_list(field.annotation):
        return {name: value}
    if isinstance(nature_of(field), Place):
        texts = value
    else:
        texts = [text.strip() for given in value for text in given.split(",")]
    takes_one = any(get_origin(kind) is not tuple for kind in _arms(field.annotation))
    return {name: texts[0] if takes_one and len(texts) == 1 else texts}


def _folder(reads: Reads, given: Any) -> Path | list[Path] | None:
    if reads.several:
        return given or []
    if not reads.at_url:
        return given
    from capgrade.pipelines.execution.folder import local_folder

    return local_folder(given)

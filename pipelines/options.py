"""Options that several commands share, how they are read, and what a command needs of the
extras."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup

from capgrade.schemas.errors import InputError, choose_from, nearest
from capgrade.schemas.extras import require

if TYPE_CHECKING:  # `capgrade --help` does not load numpy
    from capgrade.measures.params import MeasuresParams
    from capgrade.params import Params

ENCODER = "sentence_transformers"
_TABLES = "pycocoevalcap"
BEAM = {"allow_extra_args": True}  # what follows `--` goes to Apache Beam
_CAPTIONS = "Folder that `capgrade captions` wrote"
_REGIONS = "Folder that `capgrade regions` wrote."
# What an option takes, as its help names it.
FILE, FOLDER, PATH, NAME, N, SHARE, TEXT = "FILE", "FOLDER", "PATH", "NAME", "N", "SHARE", "TEXT"

# How a command takes arguments that errors of the library name.
_OPTIONS = {
    "above": "--set evaluate.above.MEASURE=VALUE",
    "captions": "--captions FOLDER",
    "classes": "--set evaluate.instances=FILE",
    "positives.accepted": "--positives FILE",
    "relevance": "--relevance FOLDER",
    "unknown": "--set train.unknown",
}
# Where parameters stand in params.yaml that errors name by the library's argument.
_BLOCKS = {"parameters": "measures", "sample": "shards"}


def option_of(argument: str) -> str:
    """How a command takes an argument of the library: --split, or --set measures.sbert.model."""
    if argument in _OPTIONS:
        return _OPTIONS[argument]
    name, dot, key = argument.partition(".")
    return f"--set {_BLOCKS.get(name, name)}.{key}" if dot else f"--{name}"


ParamsFile = Annotated[
    Path | None,
    Option("--params", metavar=FILE, help="File of parameters, a params.yaml."),
]
SetOptions = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="KEY=VALUE",
        help="One of `capgrade list parameters`; repeat for several.",
    ),
]
Force = Annotated[bool, Option("--force", help="Write over files that are there.")]
AsJson = Annotated[bool, Option("--json", help="Print the result as JSON.")]
Out = Annotated[Path, Option(metavar=FOLDER, help="Folder to write.")]
OptionalOut = Annotated[
    Path | None, Option("--out", metavar=FOLDER, help="Folder to write. Default: none.")
]
CaptionsDir = Annotated[Path, Option("--captions", metavar=FOLDER, help=f"{_CAPTIONS}.")]
OptionalCaptions = Annotated[
    Path | None, Option("--captions", metavar=FOLDER, help=f"{_CAPTIONS}.")
]
RegionsDir = Annotated[Path, Option("--regions", metavar=FOLDER, help=_REGIONS)]
OptionalRegions = Annotated[Path | None, Option("--regions", metavar=FOLDER, help=_REGIONS)]
Split = Annotated[str | None, Option(metavar="SPLIT", help="Split to use, if there are several.")]
Measures = Annotated[
    str | None,
    Option(
        metavar="NAME,...",
        help=(
            "Measures of `capgrade list measures`, and NAME=FILE for a matrix or judgements of"
            " others. Default: cider,rouge_l,sbert."
        ),
        show_default=False,
    ),
]
ImagesOption = Annotated[
    str | None,
    Option(
        metavar="PATH_OR_URL",
        help="Images: a folder, a zip, or a URL template like https://HOST/{file}.",
    ),
]


@dataclass(frozen=True)
class CommonOptions:
    """The options of nearly every command."""

    params: ParamsFile = None
    sets: SetOptions = None
    as_json: AsJson = False


COMMON_OPTIONS = CommonOptions()


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer takes it: each field of a dataclass parameter becomes an option."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            options = get_type_hints(groups[name], include_extras=True)
            defaults = {field.name: field.default for field in fields(groups[name])}
        else:
            options, defaults = {name: hints[name]}, {name: parameter.default}
        parameters += [
            inspect.Parameter(
                option, inspect.Parameter.KEYWORD_ONLY, default=defaults[option], annotation=hint
            )
            for option, hint in options.items()
        ]

    @wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


class CheckedOptions:
    """A mixin for commands: what is wrong with the words of a command line is one InputError.

    Beside what Typer refuses, these are an empty value, as of `--out ""`, which a path would take
    for the current folder, and an option of one value, or a key of --set, that is given twice, of
    which Typer would take the last."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options and arguments. Help names an argument as its metavar alone, and not also by
        its type in Python."""
        parameters = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if parameter.param_type_name == "argument":
                parameter.display_type_rich = lambda ctx: None
        return parameters

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        command: Any = self
        if not args and command.no_args_is_help:
            return super().parse_args(ctx, args)  # type: ignore[misc]
        options = {text: one for one in command.get_params(ctx) for text in one.opts}
        try:
            # `values` holds one value an option, `order` each parameter as often as it was given.
            values, _, order = command.make_parser(ctx).parse_args(list(args))
            if not ctx.resilient_parsing:  # as it is for the completion of half a line
                _refuse_empty(order, values)
                _refuse_twice(order, values)
            return super().parse_args(ctx, args)  # type: ignore[misc]
        except _USAGE_ERROR as error:
            unknown = getattr(error, "option_name", None)
            problem, remedy = error.format_message().rstrip("."), f"see {ctx.command_path} --help"
            if unknown is not None and unknown not in options:
                names = [text for text in options if text.startswith("--")]
                problem = f"no option '{unknown}'"
                remedy = "; ".join([*_near_option(unknown, names), remedy])
            raise InputError(f"{problem[0].lower()}{problem[1:]}", remedy=remedy) from None


# What Typer raises of words that it does not take. It exports no name for it but this one below it.
_USAGE_ERROR: Any = typer.BadParameter.__base__


def _near_option(unknown: str, names: Sequence[str]) -> list[str]:
    near = nearest(unknown, names)
    return [f"near it: {', '.join(near)}"] if near else []


def _refuse_empty(order: Sequence[Any], values: Mapping[str, Any]) -> None:
    for parameter in order:
        value = values.get(parameter.name)
        texts = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(text, str) and not text.strip() for text in texts):
            name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar
            raise InputError(f"{name} is empty", remedy="give it a value, or leave it out")


def _refuse_twice(order: Sequence[Any], values: Mapping[str, Any]) -> None:
    single = (
        parameter.opts[0]
        for parameter in order
        if parameter.param_type_name == "option" and not (parameter.multiple or parameter.is_eager)
    )
    keys = (f"--set {text.partition('=')[0]}" for text in values.get("sets") or ())
    for name, count in Counter([*single, *keys]).items():
        if count > 1:
            raise InputError(f"{name} is given {count} times", remedy="give it once")


class Command(CheckedOptions, TyperCommand):
    """A command of capgrade."""


class Group(CheckedOptions, TyperGroup):
    """A command of capgrade with commands below it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names. InputError for an unknown one."""
        if args and not ctx.resilient_parsing and args[0] not in self.commands:
            remedy = choose_from(args[0], self.list_commands(ctx), f"{ctx.command_path} --help")
            raise InputError(f"no command '{args[0]}'", remedy=remedy)
        return super().resolve_command(ctx, args)


def parse_pairs(items: Sequence[str] | None, option: str) -> dict[str, str]:
    """NAME=VALUE options by name. InputError for another form, an empty name or value, and for a
    name that comes twice."""
    pairs = dict(item.split("=", 1) for item in items or [] if "=" in item)
    if len(pairs) != len(items or []) or not all(
        text.strip() for pair in pairs.items() for text in pair
    ):
        raise InputError(f"{option} {' '.join(items or [])}: not NAME=VALUE, each once")
    return pairs


def refuse_half(texts: Iterable[str], option: str) -> None:
    """InputError for NAME= without the path that has to follow."""
    for text in texts:
        if "=" in text and not text.partition("=")[2].strip():
            raise InputError(
                f"{option} {text}: nothing follows the =", remedy="give a path after it"
            )


def parse_measures(measures: str | None, default: Sequence[str] = ()) -> tuple[str, ...]:
    """The measures asked for, else the default ones; NAME=FILE is called NAME."""
    return (
        tuple(default)
        if measures is None
        else tuple(name.partition("=")[0].strip() for name in measures.split(","))
    )


def load(
    params: Path | None,
    sets: Sequence[str] | None,
    measures: str | None = None,
    **options: Mapping[str, Any],
) -> Params:
    """The parameters of --params, overruled by those of --set and then by a stage's own options
    (None: not given), with the matrices of --measures. InputError as `load_params`."""
    from capgrade.params import load_params

    typed = (
        (f"{stage}.{key}", value)
        for stage, values in options.items()
        for key, value in values.items()
    )
    loaded = load_params(
        params, sets or [], {key: value for key, value in typed if value is not None}
    )
    files = [measure.strip() for measure in (measures or "").split(",") if "=" in measure]
    imported = {**loaded.measures.imported, **parse_pairs(files, "--measures")}
    return loaded.model_copy(
        update={"measures": loaded.measures.model_copy(update={"imported": imported})}
    )


def refuse_options(
    beside: str, remedy: str = "leave one of them out", /, **options: object
) -> None:
    """InputError for a given option that would have no effect."""
    if unused := [name for name, value in options.items() if value is not None]:
        raise InputError(f"--{unused[0].replace('_', '-')} {beside}", remedy=remedy)


def beam_options(context: typer.Context) -> list[str]:
    """The options for Apache Beam. InputError for a stray word: Beam would ignore it."""
    if context.args and not context.args[0].startswith("-"):
        remedy = f"see capgrade {context.command.name} --help; options of Apache Beam follow `--`"
        raise InputError(f"unexpected '{context.args[0]}'", remedy=remedy)
    return context.args


def print_result(result: dict[str, Any], as_json: bool, text: str = "") -> None:
    """Print a result as JSON, or else a text about it."""
    typer.echo(json.dumps(result, indent=2) if as_json else text)


def require_all(
    *modules: str, measures: Iterable[str] = (), params: MeasuresParams | None = None
) -> None:
    """MissingExtraError that names those of the modules that are not installed, and what the
    measures, or parts of one, need. A mixture has its parts in `params`."""
    from capgrade.measures import MEASURES, parts_of
    from capgrade.measures.params import MeasuresParams

    parts = parts_of(measures, params or MeasuresParams())
    needed = [
        module for name in sorted(parts & MEASURES.keys()) for module in MEASURES[name].modules
    ]
    require(*dict.fromkeys([*modules, *needed]))

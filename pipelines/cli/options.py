"""Options that several commands share, and how they are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from capgrade.schemas.errors import InputError

if TYPE_CHECKING:  # `capgrade --help` loads neither numpy nor pydantic
    from capgrade.schemas.params import Block, Params

ParamsFile = Annotated[Path | None, typer.Option("--params", help="params.yaml to read. Default: none.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One parameter of docs/reference.md.")
]
Out = Annotated[Path, typer.Option(help="Folder to write.")]
CaptionsDir = Annotated[Path, typer.Option("--captions", help="Folder that `capgrade captions` wrote.")]
CaptionsAt = Annotated[str, typer.Option("--captions", help="Folder that `capgrade captions` wrote, or its URL.")]
RegionsDir = Annotated[Path, typer.Option("--regions", help="Folder that `capgrade regions` wrote.")]
Split = Annotated[str | None, typer.Option(help="Split to use, if there are several.")]
Measures = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,...",
        help="Of docs/measures.md, and NAME=FILE for a matrix or judgements of others. Default: cider,rouge_l,sbert.",
        show_default=False,
    ),
]
Images = Annotated[
    str | None,
    typer.Option(help="Pictures: a folder, a zip, or a URL template like https://HOST/{file}, by the image file."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
_B = TypeVar("_B", bound="Block")
COEFFICIENTS = ("pearson", "spearman")
BEAM = {"allow_extra_args": True}  # what follows `--` goes to Apache Beam


def pairs(items: list[str] | None, option: str) -> dict[str, str]:
    """NAME=VALUE options by name. InputError for another form, and for a name that comes twice."""
    pairs = dict(item.split("=", 1) for item in items or [] if "=" in item)
    if len(pairs) != len(items or []):
        raise InputError(f"{option} {' '.join(items or [])}: not NAME=VALUE, each once")
    return pairs


def names_of(measures: str | None, default: Sequence[str] = ()) -> tuple[str, ...]:
    """The measures asked for, else the default ones; NAME=FILE is called NAME."""
    return tuple(default) if measures is None else tuple(one.partition("=")[0].strip() for one in measures.split(","))


def load(params: Path | None, sets: list[str] | None, measures: str | None = None) -> Params:
    """The parameters of --params, then those of --set, then matrices of --measures. InputError as `load_params`."""
    from capgrade.schemas.params import load_params

    loaded = load_params(params, sets or [])
    files = [one.strip() for one in (measures or "").split(",") if "=" in one]
    imported = {**loaded.measures.imported, **pairs(files, "--measures")}
    return loaded.model_copy(update={"measures": loaded.measures.model_copy(update={"imported": imported})})


def overrides(stage: str, given: dict[str, Any]) -> list[str]:
    """The options that were given on the command line, as `--set` takes them (JSON is YAML)."""
    return [f"{stage}.{key}={json.dumps(value)}" for key, value in given.items() if value is not None]


def refuse(beside: str, **given: object) -> None:
    """InputError for an option that would be passed over."""
    if unused := [name for name, value in given.items() if value is not None]:
        raise InputError(f"--{unused[0].replace('_', '-')} with {beside}", remedy="leave one of them out")


def beam_options(context: typer.Context) -> list[str]:
    """The options for Apache Beam. InputError for a stray word: Beam would ignore it."""
    if context.args and not context.args[0].startswith("-"):
        remedy = f"see capgrade {context.command.name} --help; options of Apache Beam follow `--`"
        raise InputError(f"unexpected '{context.args[0]}'", remedy=remedy)
    return context.args


def agreement_of(path: Path) -> dict[str, Any]:
    """What `capgrade agree --out` wrote. InputError when it is something else."""
    from capgrade.schemas.files import read_json

    found = read_json(path)
    if not are_agreement(found):
        raise InputError("not agreement figures", file=path, remedy="give what capgrade agree --out wrote")
    return found


def are_agreement(found: Any) -> bool:
    """Whether it is what `capgrade agree --out` writes: who judged, and the coefficients of each measure."""
    try:
        judged = {"by", "file", "pairs", "split", "captions"} <= found["judgements"].keys()
        return judged and all({"pearson", "spearman"} <= row.keys() for row in found["measures"].values())
    except (AttributeError, KeyError, TypeError):
        return False


def with_given(block: _B, **given: Any) -> _B:
    """The block with the options that were given on the command line, checked again."""
    from capgrade.schemas.params import validated

    values = {k: v for k, v in given.items() if v is not None}
    return validated(type(block), {**block.model_dump(), **values})


def say(result: dict[str, Any], as_json: bool, text: str) -> None:
    """Print the result as JSON, or as text."""
    typer.echo(json.dumps(result, indent=2) if as_json else text)

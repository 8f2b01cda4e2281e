"""docs/reference.md, which `python -m tests.tools.reference` writes: every key of params.yaml."""

import inspect
import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from capgrade.params import Params
from capgrade.schemas.keys import block_of, kind_and_default, note_of
from capgrade.trainer.models import DECIDED, MODELS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"
HEAD = """# Every parameter

`--params FILE` reads these keys from a YAML file, a block a stage, as `params.yaml` has them. `--set KEY=VALUE` sets
one key, and wins over the file; an option of the command wins over both. A misspelt key and a value out of range are
errors. Each line has the key, its type and range, and the default in brackets. Keys of a stage's block are options of its
command, too: `--block-images` is `shards.block_images`.
"""


def page() -> str:
    """The whole page."""
    properties, parts, rest = Params.model_json_schema()["properties"], [HEAD], list[str]()
    for name, field in Params.model_fields.items():
        block = block_of(field.annotation)
        if block is None:
            rest.append(_row(name, properties[name], field))
        else:
            told = " ".join(inspect.cleandoc(block.__doc__ or "").split())
            parts += [f"## {name}\n\n{told}\n", _list(_rows(block, name))]
    return "\n".join([*parts, OPTIONS, _list(_options()), "## The rest\n", _list(iter(rest))])


OPTIONS = """## train.model.options

What each model takes, with defaults; `trainer/models` says more.
"""


def _options() -> Iterator[str]:
    """A line for the models that have the same options; what the data decide is no option."""
    models: dict[str, list[str]] = {}
    for name, model in MODELS.items():
        kind = get_type_hints(model.__init__)["config"]
        known = [field for field in fields(kind) if field.name not in DECIDED]
        values = ", ".join(f"`{field.name}={json.dumps(field.default)}`" for field in known)
        models.setdefault(values, []).append(f"`{name}`")
    yield from (f"- {', '.join(names)}: {values}" for values, names in models.items())


def _rows(block: type[BaseModel], above: str) -> Iterator[str]:
    """A line for each key, blocks within this one after it."""
    schema = block.model_json_schema()
    for name, field in block.model_fields.items():
        inner = block_of(field.annotation)
        if inner is not None:
            yield from _rows(inner, f"{above}.{name}")
        else:
            yield _row(f"{above}.{name}", schema["properties"][name], field)


def _row(key: str, schema: dict[str, Any], field: FieldInfo) -> str:
    kind, default = kind_and_default(schema)
    return "; ".join([f"- `{key}`: {kind} (`{default}`)", *note_of(field)])


def _list(rows: Iterator[str]) -> str:
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

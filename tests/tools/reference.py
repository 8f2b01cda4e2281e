"""docs/reference.md, which `python -m tests.tools.reference` writes: every key of params.yaml."""

import ast
import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel

from capgrade import params
from capgrade.measures import params as measure_params
from capgrade.measures.params import OWNERS
from capgrade.params import Params
from capgrade.schemas import params as schemas_params
from capgrade.schemas.keys import block_of, kind_and_default
from capgrade.trainer.models import DECIDED, MODELS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"
HEAD = """# Every parameter

`--params FILE` reads these keys from a YAML file, a block a stage, as `params.yaml` has them. `--set KEY=VALUE` sets
one key, and wins over the file; an option of the command wins over both. A misspelt key and a value out of range are
errors. Each line has the key, its type and range, and the default in brackets.
"""


def page() -> str:
    """The whole page."""
    schema, comments = Params.model_json_schema(), _comments()
    parts = [HEAD]
    plain = {
        name: field
        for name, field in Params.model_fields.items()
        if block_of(field.annotation) is None
    }
    for name, field in Params.model_fields.items():
        block = block_of(field.annotation)
        if block is not None:
            told = " ".join(inspect.cleandoc(block.__doc__ or "").split())
            parts += [f"## {name}\n\n{told}\n", _list(_rows(block, name, schema, comments))]
    rows = [
        _row(name, schema["properties"][name], schema, comments.get(("Params", name), ""))
        for name in plain
    ]
    return "\n".join([*parts, OPTIONS, _list(_options()), "## The rest\n", _list(iter(rows))])


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


def _rows(
    block: type[BaseModel], above: str, schema: dict[str, Any], comments: dict
) -> Iterator[str]:
    """A line for each key, blocks within this one after it."""
    found = block.model_json_schema()
    for name, field in block.model_fields.items():
        inner = block_of(field.annotation)
        if inner is not None:
            yield from _rows(inner, f"{above}.{name}", schema, comments)
        else:
            # A field may be one of a class that the block derives from.
            of = (comments.get((kind.__name__, name)) for kind in block.__mro__)
            comment = next(filter(None, of), "")
            yield _row(f"{above}.{name}", found["properties"][name], found, comment)


def _row(key: str, field: dict[str, Any], schema: dict[str, Any], comment: str) -> str:
    kind, default = kind_and_default(field)
    return f"- `{key}`: {kind} (`{default}`)" + (f"; {comment}" if comment else "")


def _comments() -> dict[tuple[str, str], str]:
    """(class, field) -> what stands behind the field in the source."""
    blocks = {
        block
        for kind in OWNERS.values()
        for block in kind.parameters.__mro__
        if issubclass(block, BaseModel) and block is not BaseModel
    }
    modules = {schemas_params, params, measure_params, *map(inspect.getmodule, blocks)}
    found: dict[tuple[str, str], str] = {}
    for module in modules:
        found |= _comments_in(inspect.getsource(module))
    return found


def _comments_in(source: str) -> dict[tuple[str, str], str]:
    lines, found = source.splitlines(), {}
    for node in ast.parse(source).body:
        for item in node.body if isinstance(node, ast.ClassDef) else []:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                name = "MeasuresParams" if node.name == "_Shared" else node.name
                comment = _comment_of(lines, item.lineno, item.end_lineno or item.lineno)
                found[name, item.target.id] = re.sub(r"\bNone\b", "null", comment)
    return found


def _comment_of(lines: list[str], first: int, last: int) -> str:
    """The comment behind a field, or the lines of comments above it."""
    _, mark, behind = lines[last - 1].rpartition("  # ")
    if mark:
        return behind
    above = first - 1
    while lines[above - 1].strip().startswith("# "):
        above -= 1
    return " ".join(line.strip().removeprefix("# ") for line in lines[above : first - 1])


def _list(rows: Iterator[str]) -> str:
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

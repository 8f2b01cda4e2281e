"""What the keys of params.yaml take, in words."""

import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def describe_keys(block: type[BaseModel], above: str = "") -> Iterator[tuple[str, str]]:
    """Each key of a block and of those within it, `relevance.split`, with its type, range, default
    and meaning."""
    schema = block.model_json_schema()
    for name, field in block.model_fields.items():
        key, inner = f"{above}{name}", block_of(field.annotation)
        if inner is not None:
            yield from describe_keys(inner, f"{key}.")
        else:
            kind, default = kind_and_default(schema["properties"][name])
            yield key, "; ".join([f"{kind} ({default})", *note_of(field)])


def note_of(field: FieldInfo) -> list[str]:
    """What stands below a field, as YAML calls its values; nothing where nothing stands there."""
    text = " ".join((field.description or "").split())
    return [re.sub(r"\bNone\b", "null", text)] if text else []


def block_of(annotation: Any) -> type[BaseModel] | None:
    """The block that a field is of; None for a field of a value."""
    is_block = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if is_block else None


def kind_and_default(field: dict[str, Any]) -> tuple[str, str]:
    """What a value may be, in words, and the default as JSON."""
    default = json.dumps(field.get("default"), ensure_ascii=False)
    kind = value_kind(field).removesuffix(", or null") if default == "null" else value_kind(field)
    return kind, default if len(default) < 60 else "see the source"


def value_kind(field: dict[str, Any]) -> str:
    """What a value may be, in words, by the JSON schema of its field."""
    if "anyOf" in field:
        return ", or ".join(value_kind(one) for one in field["anyOf"])
    if "enum" in field or "const" in field:
        return ", ".join(f"`{one}`" for one in field.get("enum", [field.get("const")]))
    kind = field.get("type", "any")
    if kind == "array":
        return f"list of {value_kind(field['items'])}" if field.get("items") else "list"
    words = {"string": "text", "object": "mapping"}
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign}{field[name]:g}" for name, sign in bounds.items() if name in field]
    limits += [f"as `{field['pattern']}`"] if "pattern" in field else []
    return " ".join([words.get(kind, kind), ", ".join(limits)]).strip()

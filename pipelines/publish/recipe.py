"""The commands and parameters that make a published folder again, byte for byte, from its source."""

from __future__ import annotations

import json
import shlex
from typing import Any

import yaml

from capgrade.agreement.calibration import SHIPPED
from capgrade.labels.named import base_names
from capgrade.labels.published import measures_block
from capgrade.pipelines.publish.contents import Contents


def parameters(contents: Contents) -> str:
    """params.yaml: every parameter of every stage; the shards of further splits are told apart by `--set`."""
    made = _params(contents.splits[0].shards.metadata["params"])
    blocks = {"captions": contents.captions_params, "measures": made["measures"], "shards": made["shards"]}
    if contents.relevance_params:
        blocks["relevance"] = contents.relevance_params["relevance"]
    blocks["publish"] = contents.params.model_dump(mode="json")
    return yaml.safe_dump(blocks, sort_keys=False, allow_unicode=True)


def commands(contents: Contents) -> list[str]:
    """The command lines, folders named after what they hold."""
    lines = ["capgrade captions --params params.yaml --out captions"]
    shards, first = [], _params(contents.splits[0].shards.metadata["params"])
    for split in contents.splits:
        folder = f"shards-{split.name}"
        sets = _set_options(first, _params(split.shards.metadata["params"]))
        lines.append(f"capgrade shards --params params.yaml --captions captions{sets} --out {folder}")
        shards.append(f"--shards {folder}")
    publish = f"capgrade publish --params params.yaml --captions captions {' '.join(shards)}"
    if contents.relevance_params:
        dense = measures_block(contents.relevance_params["measures"])
        sets = _set_options({"measures": first["measures"]}, {"measures": dense})
        lines.append(f"capgrade relevance --params params.yaml --captions captions{sets} --out relevance")
        publish += " --relevance relevance"
    if contents.agreement:
        lines.append("# agreement.json: what `capgrade agree --out agreement.json` wrote for the judgements")
        publish += " --agreement agreement.json"
    if contents.calibrated:
        file = contents.calibrated.file
        if contents.calibrated.shipped:
            file = SHIPPED.stem
        else:
            lines.append(f"# {file}: what `capgrade agree --calibrate` wrote, with the SHA-256 above")
        publish += f" --calibration {shlex.quote(file)}"
    return [*lines, f"{publish} --out dataset"]


def _params(made: dict[str, Any]) -> dict[str, Any]:
    made = base_names(made)
    return {"shards": made["shards"], "measures": measures_block(made["measures"])}


def _set_options(first: dict[str, Any], other: dict[str, Any]) -> str:
    before = dict(_leaves(first))
    changed = [(key, value) for key, value in _leaves(other) if key not in before or before[key] != value]
    return "".join(f" --set {shlex.quote(f'{key}={json.dumps(value)}')}" for key, value in changed)


def _leaves(tree: dict[str, Any], above: str = "") -> list[tuple[str, Any]]:
    """Dotted keys and their values, as `--set` takes them."""
    found: list[tuple[str, Any]] = []
    for key, value in tree.items():
        inside = isinstance(value, dict) and value
        found += _leaves(value, f"{above}{key}.") if inside else [(f"{above}{key}", value)]
    return found

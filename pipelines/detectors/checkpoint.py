"""The bottom-up model as one safetensors file: its tensors, its configuration, and the names of what it knows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from pipelines.detectors.bottom_up import BottomUp, BottomUpConfig
from schemas.errors import InputError
from schemas.files import atomic

LAYOUT = "capgrade"
NAMED = 5  # tensors named in one message


def save_bottom_up(
    model: BottomUp,
    path: Path,
    *,
    classes: Sequence[str] | None = None,
    attributes: Sequence[str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write the model; `classes` and `attributes` name its numbers, background and none left out."""
    facts = {"format": LAYOUT, "config": json.dumps(dataclasses.asdict(model.config), sort_keys=True)}
    for key, names in (("classes", classes), ("attributes", attributes)):
        if names is not None:
            facts[key] = json.dumps(list(names))
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    with atomic(path) as temporary:
        save_file(tensors, temporary, metadata={**(metadata or {}), **facts})


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Every tensor by name, and the file's metadata. InputError for a damaged file."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"not a whole safetensors file ({error})", file=path, remedy="fetch or convert it again"
        ) from error


def read_checkpoint(path: Path) -> tuple[BottomUp, dict[str, Any]]:
    """A file of `save_bottom_up` as a model in eval mode, and its names. InputError for every other file."""
    tensors, facts = read_safetensors(path)
    if facts.get("format") != LAYOUT:
        raise InputError("no configuration in this file", file=path, remedy="make it with `capgrade regions convert`")
    try:
        config = TypeAdapter(BottomUpConfig).validate_json(facts["config"])
        names = {key: json.loads(facts[key]) for key in ("classes", "attributes") if key in facts}
    except (KeyError, ValueError, ValidationError) as error:
        raise InputError(f"a configuration that cannot be read ({type(error).__name__})", file=path) from error
    return built(config, tensors, path), {"layout": LAYOUT, **names}


def built(config: BottomUpConfig, tensors: Mapping[str, Tensor], path: Path) -> BottomUp:
    """The model of these tensors, in float32 and eval mode.

    InputError names tensors that are missing, left over, of another shape, or not finite.
    """
    with torch.device("meta"):
        shapes = {name: tuple(tensor.shape) for name, tensor in BottomUp(config).state_dict().items()}
    _refuse("missing", sorted(shapes.keys() - tensors.keys()), path)
    _refuse("not of this model", sorted(tensors.keys() - shapes.keys()), path)
    _refuse(
        "misshapen",
        [
            f"{n} is {tuple(tensors[n].shape)}, not {shape}"
            for n, shape in shapes.items()
            if tuple(tensors[n].shape) != shape
        ],
        path,
    )
    _refuse("not finite", [name for name in shapes if not torch.isfinite(tensors[name]).all()], path)
    model = BottomUp(config)
    model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, assign=True)
    return model.requires_grad_(False).eval()


def _refuse(what: str, names: Sequence[str], path: Path) -> None:
    if names:
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        problem = f"{len(names)} tensors {what}: {', '.join(names[:NAMED])}{more}"
        raise InputError(problem, file=path, remedy="fetch the file again, or one of a known layout (docs/regions.md)")

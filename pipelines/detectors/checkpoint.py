"""The bottom-up model as one safetensors file: its tensors, its configuration, and the names of
what it knows."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from capgrade.pipelines.detectors.bottom_up import BottomUp, BottomUpConfig
from capgrade.schemas.errors import InputError, first_of
from capgrade.schemas.files import atomic, canonical
from capgrade.schemas.output import refuse_file

CHECKPOINT_LAYOUT = "capgrade"
_NAMED = 5  # tensors named in one message
MOST_BLOCKS = 64  # of a stage; ResNet-152 has 36


def refuse_weights(path: Path) -> None:
    """InputError when a file is there that `save_bottom_up` did not write."""

    def is_ours(there: Path) -> bool:
        try:
            return read_safetensors(there)[1].get("format") == CHECKPOINT_LAYOUT
        except InputError:
            return False

    refuse_file(path, "detector of capgrade", is_ours)


def save_bottom_up(
    model: BottomUp,
    path: Path,
    *,
    classes: Sequence[str] | None = None,
    attributes: Sequence[str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write the model; `classes` and `attributes` name its numbers, background and none left out.

    The same model and names give the same bytes: the safetensors library would order metadata at
    random. Source of the format: https://huggingface.co/docs/safetensors.
    """
    facts = {
        "format": CHECKPOINT_LAYOUT,
        "config": json.dumps(dataclasses.asdict(model.config), sort_keys=True),
    }
    names = {"classes": classes, "attributes": attributes}
    facts |= {key: json.dumps(list(value)) for key, value in names.items() if value is not None}
    whole = save(
        {
            name: tensor.detach().cpu().float().contiguous()
            for name, tensor in model.state_dict().items()
        }
    )
    start = 8 + int.from_bytes(whole[:8], "little")
    text = canonical(
        json.loads(whole[8:start]) | {"__metadata__": {**(metadata or {}), **facts}}
    ).encode()
    text += b" " * (-len(text) % 8)
    with atomic(path) as temporary, temporary.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text + whole[start:])


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Every tensor by name, and the file's metadata. InputError for a damaged file."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"not a whole safetensors file ({error})", file=path, remedy="fetch or convert it again"
        ) from error


def read_checkpoint(
    tensors: Mapping[str, Tensor], facts: Mapping[str, str], path: Path
) -> tuple[BottomUp, dict[str, Any]]:
    """What `save_bottom_up` wrote as a model in eval mode, and its names. InputError for a damaged
    configuration."""
    try:
        config = TypeAdapter(BottomUpConfig).validate_json(facts["config"])
        stored = {key: json.loads(facts[key]) for key in ("classes", "attributes") if key in facts}
        names = TypeAdapter(dict[str, list[str]]).validate_python(stored)
        if not all(1 <= count <= MOST_BLOCKS for count in config.blocks):
            raise ValueError(f"stages of {config.blocks} blocks")
        shapes_of(config)
    except Exception as error:  # a configuration that no model can have makes torch raise anything
        reason = type(error).__name__
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            reason = f"{'.'.join(map(str, first['loc']))} {first['msg']}".strip()
        remedy = "convert it again, with the version of capgrade that reads it"
        raise InputError(
            f"a configuration that cannot be read ({reason})", file=path, remedy=remedy
        ) from error
    for key, count in (("classes", config.n_classes), ("attributes", config.n_attributes)):
        if key in names and len(names[key]) != count:
            raise InputError(
                f"{len(names[key])} names of {count} {key}", file=path, remedy="convert it again"
            )
    return built(config, tensors, path), {"layout": CHECKPOINT_LAYOUT, **names}


def shapes_of(config: BottomUpConfig) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of such a model, by name; nothing is allocated."""
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in BottomUp(config).state_dict().items()}


def built(config: BottomUpConfig, tensors: Mapping[str, Tensor], path: Path) -> BottomUp:
    """The model of these tensors, in float32 and eval mode. InputError as in `check_tensors`."""
    check_tensors(shapes_of(config), tensors, path)
    model = BottomUp(config)
    model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, assign=True)
    return model.requires_grad_(False).eval()


def check_tensors(
    shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, Tensor], path: Path
) -> None:
    """InputError that names tensors which are missing, left over, of another shape, not numbers, or
    not finite."""

    def refuse(what: str, names: Sequence[str]) -> None:
        if names:
            problem = f"{len(names)} tensors {what}: {first_of(names, _NAMED)}"
            remedy = "fetch the file again, or one of a known layout (docs/regions.md)"
            raise InputError(problem, file=path, remedy=remedy)

    refuse("missing", sorted(shapes.keys() - tensors.keys()))
    refuse("not of this model", sorted(tensors.keys() - shapes.keys()))
    given = {name: tuple(tensors[name].shape) for name in shapes}
    refuse(
        "misshapen",
        [
            f"{name} is {given[name]}, not {shape}"
            for name, shape in shapes.items()
            if given[name] != shape
        ],
    )
    refuse(
        "not of real numbers", [name for name in shapes if not tensors[name].is_floating_point()]
    )
    refuse("not finite", [name for name in shapes if not torch.isfinite(tensors[name]).all()])

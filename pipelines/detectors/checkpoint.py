"""Checkpoints of the bottom-up model: our own files, and those that others have published.

Ours are safetensors with the tensors, the configuration, and the names of what the model knows. The
content of a file tells its layout, not its ending.
"""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from capgrade.pickles import read_pickle, read_torch
from capgrade.pipelines.detectors.bottom_up import BottomUp, BottomUpConfig, load_tensors
from capgrade.pipelines.detectors.caffemodel import read_caffemodel
from capgrade.pipelines.detectors.layouts import REMEDY, build_published, layout_of
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic, digest
from capgrade.schemas.lines import open_bytes, read_lines
from capgrade.schemas.out_files import refuse_file
from capgrade.schemas.reading import reading

CHECKPOINT_LAYOUT = "capgrade"
# Tensors in checkpoints of detectron2 that are not weights.
_NO_WEIGHTS = re.compile(r"(.*\.num_batches_tracked|pixel_(mean|std))")
# The pickled number that begins a file of torch.save before torch 1.6.
OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


@dataclasses.dataclass(frozen=True)
class StoredFacts:
    """What our file says of its model. Keys of older versions are passed over."""

    config: BottomUpConfig
    classes: list[str] | None = None
    attributes: list[str] | None = None


def save_bottom_up(
    model: BottomUp,
    path: Path,
    *,
    classes: Sequence[str] | None = None,
    attributes: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write the model; `classes` and `attributes` name its numbers, background and none left out.

    `metadata` is what else the file says, in values of JSON. Equal models and facts give equal
    bytes.
    """
    facts = {**(metadata or {}), "config": dataclasses.asdict(model.config)}
    names = {"classes": classes, "attributes": attributes}
    facts |= {key: list(value) for key, value in names.items() if value is not None}
    tensors = {
        name: tensor.detach().cpu().float().contiguous()
        for name, tensor in model.state_dict().items()
    }
    # The library writes several keys in random order, so there is one.
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False)
    with atomic(path) as temporary:
        save_file(tensors, temporary, {CHECKPOINT_LAYOUT: text})


def _is_ours(metadata: Mapping[str, str]) -> bool:
    """Whether the metadata of a safetensors file are those of `save_bottom_up`.

    Older versions wrote a key for each fact, one of which was the format.
    """
    return CHECKPOINT_LAYOUT in metadata or metadata.get("format") == CHECKPOINT_LAYOUT


def load_bottom_up(path: Path) -> tuple[BottomUp, dict[str, Any]]:
    """A model in eval mode, and facts about it: layout, digest, n_classes, n_attributes, classes,
    attributes.

    InputError for a file of no known layout, and for tensors that are missing, of a wrong shape or
    not finite.
    """
    if not path.is_file():
        remedy = "give --weights a checkpoint of the bottom-up model"
        raise InputError("no such file", file=path, remedy=remedy)
    tensors, metadata = _read_tensors(path)
    names: dict[str, Any] = {"classes": None, "attributes": None}
    if _is_ours(metadata):
        name = CHECKPOINT_LAYOUT
        model, facts = read_checkpoint(tensors, metadata, path)
        names = {"classes": facts.classes, "attributes": facts.attributes}
    else:
        layout = layout_of(tensors, path)
        name, model = layout.name, build_published(layout, tensors, path)
    counts = {"n_classes": model.config.n_classes, "n_attributes": model.config.n_attributes}
    return model, {"layout": name, **names, **counts, "digest": digest(path)}


def read_checkpoint(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str], path: Path
) -> tuple[BottomUp, StoredFacts]:
    """What `save_bottom_up` wrote: a model in eval mode, and its facts. InputError for a damaged
    configuration."""
    try:
        if CHECKPOINT_LAYOUT in metadata:
            stored = json.loads(metadata[CHECKPOINT_LAYOUT])
        else:
            keys = metadata.keys() & {"config", "classes", "attributes"}
            stored = {key: json.loads(metadata[key]) for key in keys}
        facts = TypeAdapter(StoredFacts).validate_python(stored)
        with torch.device("meta"):
            model = BottomUp(facts.config)
    except Exception as error:  # a configuration that no model can have makes torch raise anything
        reason = type(error).__name__
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            reason = f"{'.'.join(map(str, first['loc']))} {first['msg']}".strip()
        remedy = "convert it again, with the version of capgrade that reads it"
        raise InputError(
            f"a configuration that cannot be read ({reason})", file=path, remedy=remedy
        ) from error
    for key, names, count in (
        ("classes", facts.classes, facts.config.n_classes),
        ("attributes", facts.attributes, facts.config.n_attributes),
    ):
        if names is not None and len(names) != count:
            problem = f"{len(names)} names of {count} {key}"
            raise InputError(problem, file=path, remedy="convert it again")
    return load_tensors(model, tensors, path), facts


def _read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file by name, and its metadata, which only a safetensors has. The content
    decides the kind of file, not the ending."""
    with open_bytes(path) as file:
        start = file.read(9)
    if start[8:] == b"{":
        return read_safetensors(path)
    return _collect_tensors(read_content(path), path), {}


def read_content(path: Path) -> Any:
    """The content of a torch, pickle or Caffe file, whatever its ending. No code in it is run."""
    with open_bytes(path) as file:
        start = file.read(len(OLD_TORCH))
    if start.startswith(b"PK") or start == OLD_TORCH:
        return read_torch(path)
    if start.startswith(b"\x80"):
        return read_pickle(path)
    if start.startswith(b"\n"):
        return read_caffemodel(path)
    problem = "neither a safetensors, torch, pickle nor Caffe file"
    raise InputError(problem, file=path, remedy=REMEDY)


def _collect_tensors(content: Any, path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint, which are under "model" or at the top. A layer of Caffe may have
    a list of blobs."""
    state = content.get("model", content) if isinstance(content, Mapping) else None
    if not isinstance(state, Mapping) or not state:
        raise InputError("no tensors by name in this file", file=path, remedy=REMEDY)
    tensors: dict[str, Tensor] = {}
    for name, value in state.items():
        values = {str(name): value}
        if isinstance(value, list | tuple):
            values = {f"{name}.{i}": blob for i, blob in enumerate(value)}
        for key, tensor in values.items():
            if isinstance(tensor, np.ndarray | np.generic) and tensor.dtype.kind in "fiu":
                tensor = torch.from_numpy(np.array(tensor, tensor.dtype.newbyteorder("=")))
            if not isinstance(tensor, Tensor):
                problem = f"{name} is no tensor but {type(tensor).__name__}"
                raise InputError(problem, file=path, remedy=REMEDY)
            if not _NO_WEIGHTS.fullmatch(key):
                tensors[key] = tensor
    return tensors


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Every tensor by name, and the file's metadata. InputError for a damaged file."""
    open_bytes(path).close()
    with (
        reading(path, "safetensors file", remedy="fetch or convert it again"),
        safe_open(path, framework="pt") as file,
    ):
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


def convert(
    source: Path,
    out: Path,
    *,
    classes_file: Path | None = None,
    attributes_file: Path | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Write a checkpoint that `load_bottom_up` reads in our layout, with the names of classes and
    attributes; returns its layout, n_classes and n_attributes.

    The names are those of Visual Genome's objects_vocab.txt and attributes_vocab.txt, in the
    model's order. InputError also where a file is at `out`, but with `force`.
    """
    refuse_file(out, force)
    model, facts = load_bottom_up(source)
    classes, attributes = facts["classes"], facts["attributes"]
    if classes_file:
        classes = read_names(classes_file, facts["n_classes"])
    if attributes_file:
        attributes = read_names(attributes_file, facts["n_attributes"])
    origin = {
        "source": source.name,
        "source_layout": facts["layout"],
        "source_sha256": facts["digest"],
    }
    save_bottom_up(model, out, classes=classes, attributes=attributes, metadata=origin)
    return {key: facts[key] for key in ("layout", "n_classes", "n_attributes")}


def read_names(path: Path, count: int) -> list[str]:
    """One name per line, the first of its synonyms (`shirt,tee shirt`). InputError unless there are
    `count` of them."""
    names = [line.split(",")[0].strip() for _, line in read_lines(path)]
    if "" in names:
        raise InputError("a line without a name", file=path, row=names.index("") + 1)
    if len(names) != count:
        problem = f"{len(names)} names where the model has {count}"
        raise InputError(problem, file=path, remedy="give one name per line")
    return names

"""Checkpoints of the bottom-up model by what is in them: ours, and the layouts that others have published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from capgrade.pipelines.detectors.bottom_up import BottomUp
from capgrade.pipelines.detectors.checkpoint import LAYOUT, read_checkpoint, refuse_weights, save_bottom_up
from capgrade.pipelines.detectors.published import layout_of, published, read_tensors
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digest

__all__ = ["convert", "load_bottom_up", "save_bottom_up"]


def load_bottom_up(path: Path) -> tuple[BottomUp, dict[str, Any]]:
    """A model in eval mode, and what is known of it: layout, digest, n_classes, n_attributes, classes, attributes.

    InputError for a file of no known layout, and for tensors that are missing, misshapen or not finite.
    """
    if not path.is_file():
        raise InputError("no such file", file=path, remedy="give --weights a checkpoint of the bottom-up model")
    tensors, metadata = read_tensors(path)
    if metadata.get("format") == LAYOUT:
        model, facts = read_checkpoint(tensors, metadata, path)
    else:
        layout = layout_of(tensors, path)
        model, facts = published(layout, tensors, path), {"layout": layout.name}
    config = model.config
    counts = {"n_classes": config.n_classes, "n_attributes": config.n_attributes}
    return model, {"classes": None, "attributes": None, **facts, **counts, "digest": digest(path)}


def convert(
    source: Path, out: Path, *, classes_file: Path | None = None, attributes_file: Path | None = None
) -> dict[str, Any]:
    """Any checkpoint that `load_bottom_up` reads as one of ours, with names: layout, n_classes, n_attributes.

    The names are those of Visual Genome's objects_vocab.txt and attributes_vocab.txt, in the model's order.
    InputError also for a file at `out` that is something else.
    """
    refuse_weights(out)
    model, facts = load_bottom_up(source)
    classes = read_names(classes_file, facts["n_classes"]) if classes_file else facts["classes"]
    attributes = read_names(attributes_file, facts["n_attributes"]) if attributes_file else facts["attributes"]
    origin = {"source": source.name, "source_layout": facts["layout"], "source_sha256": facts["digest"]}
    save_bottom_up(model, out, classes=classes, attributes=attributes, metadata=origin)
    return {key: facts[key] for key in ("layout", "n_classes", "n_attributes")}


def read_names(path: Path, count: int) -> list[str]:
    """One name per line, the first of its synonyms (`shirt,tee shirt`). InputError unless there are `count` of them."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"names that cannot be read ({error})", file=path) from error
    names = [line.split(",")[0].strip() for line in lines]
    if "" in names:
        raise InputError("a line without a name", file=path, row=names.index("") + 1)
    if len(names) != count:
        raise InputError(f"{len(names)} names where the model has {count}", file=path, remedy="give one name per line")
    return names

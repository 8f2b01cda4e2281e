"""A run's job: blocks of images and groups of captions, and the parts and receipts that workers write for them."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from capgrade.pipelines.execution.exchange import Remote, whole_json, with_digest
from capgrade.pipelines.execution.tables import Batches, Tables
from capgrade.pipelines.measures.base import CHUNK
from capgrade.schemas.files import digest, open_arrow, write_arrow, write_json

BLOCK = 64  # images together


@dataclass(frozen=True, kw_only=True)
class Job:
    """Blocks of images to score: where the fitted measures and the parts are, and what to make of a block."""

    work: Path
    kinds: dict[str, str]  # measure -> class of its fitted form
    tables: Tables
    n_images: int
    block_images: int
    n_captions: int
    group_captions: int | None = None  # None: all together
    device: str = "cpu"
    remote: str | None = None  # URL that workers on other machines exchange files by; None: they see `work`

    @property
    def n_blocks(self) -> int:
        """Blocks of images; the last one may be smaller."""
        return -(-self.n_images // self.block_images)

    @property
    def groups(self) -> list[tuple[int, int]]:
        """Start and stop of each group of captions, in whole chunks."""
        size = self.n_captions if self.group_captions is None else -(-self.group_captions // CHUNK) * CHUNK
        return [(at, min(at + size, self.n_captions)) for at in range(0, self.n_captions, size)]

    def images(self, block: int) -> np.ndarray:
        """Image numbers of a block, int64."""
        return np.arange(block * self.block_images, min((block + 1) * self.block_images, self.n_images))

    def part(self, block: int, table: str, group: int | None = None) -> Path:
        """The file of one of a block's tables; of a group of captions, before the groups are merged."""
        name = f"{block:06d}" if group is None else f"{block:06d}/{group:04d}"
        return self.work / "parts" / f"{name}-{table}.arrow"

    def groups_folder(self, block: int) -> Path:
        """Where the parts of a block's groups are until they are merged."""
        return self.work / "parts" / f"{block:06d}"

    def receipt(self, block: int, group: int | None = None) -> Path:
        """Written after a block's parts, with their digests: a block without a whole one is computed again."""
        return self.part(block, "", group).with_suffix(".json")

    def finished(self, block: int, group: int | None = None) -> bool:
        """Its receipt and its parts are here, and they fit."""
        try:
            parts = self.digests(block, group)
            return all(digest(self.part(block, table, group)) == sha for table, sha in parts.items())
        except OSError:
            return False

    def digests(self, block: int, group: int | None = None) -> dict[str, str]:
        """Table -> SHA-256, of a receipt; OSError for one that is not there or not whole."""
        try:
            found = json.loads(self.receipt(block, group).read_text(encoding="utf-8"))
            return {str(table): str(sha) for table, sha in found.items()}
        except (ValueError, AttributeError) as error:
            raise OSError("not a receipt") from error

    def done(self, block: int, group: int | None = None) -> bool:
        """It needs no second time: finished here, or its receipt, which is written last, is at the URL."""
        if self.remote:
            return Remote(self.remote).has(self.name(self.receipt(block, group)))
        return self.finished(block, group)

    def write(self, batches: Batches, block: int, group: int | None = None) -> None:
        """Write a block's tables, then its receipt, here or to the URL."""
        if self.remote:  # by way of a folder of its own: another worker may be at the same block
            with tempfile.TemporaryDirectory(dir=self.work / "parts") as folder:
                there = replace(self, work=Path(folder), remote=None)
                there.write(batches, block, group)
                files = [*(there.part(block, table, group) for table in batches), there.receipt(block, group)]
                Remote(self.remote).put(there.work, [there.name(file) for file in files])
            return
        receipt = {}
        for table, batch in batches.items():
            part = self.part(block, table, group)
            write_arrow(part, batch.schema, [batch])
            receipt[table] = digest(part)
        write_json(self.receipt(block, group), receipt)

    def read(self, block: int, group: int) -> Batches:
        """A group's tables. OSError when they are not there, or not as they were written."""
        if self.remote:
            with tempfile.TemporaryDirectory(dir=self.work / "parts") as folder:
                return replace(self, work=Path(folder)).fetched(block, group)._read(block, group)
        return self._read(block, group)

    def _read(self, block: int, group: int) -> Batches:
        if not self.finished(block, group):
            raise OSError("not as it was written")
        return {t: open_arrow(self.part(block, t, group)).get_batch(0) for t in self.digests(block, group)}

    def fetched(self, block: int, group: int | None = None) -> Job:
        """Itself, with a block's parts brought here from the URL. OSError when they are not there."""
        remote = Remote(cast(str, self.remote))
        remote.get(self.name(self.receipt(block, group)), self.work, whole_json)
        for table, sha in self.digests(block, group).items():
            remote.get(self.name(self.part(block, table, group)), self.work, with_digest(sha))
        return self

    def drop(self, file: Path) -> None:
        """Delete a file or folder of parts, here or at the URL, if it is there."""
        if self.remote:
            Remote(self.remote).delete(self.name(file))
        elif file.is_dir():
            shutil.rmtree(file, ignore_errors=True)
        else:
            file.unlink(missing_ok=True)

    def name(self, file: Path) -> str:
        """A file of the work folder as the URL names it."""
        return file.relative_to(self.work).as_posix()

    def done_elsewhere(self) -> set[str]:
        """Names of the blocks' receipts at the URL."""
        names = Remote(self.remote).names("parts", depth=1) if self.remote else set()
        return {name for name in names if name.endswith(".json")}

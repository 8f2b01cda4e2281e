"""A run over blocks of images, and the parts and receipts of its blocks."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from capgrade.pipelines.execution.remote import Remote, whole_json, with_digest
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digest, open_arrow, write_arrow, write_json

if TYPE_CHECKING:
    from capgrade.pipelines.execution.worker import Batches, Tables


@dataclass(frozen=True, kw_only=True)
class Job:
    """Blocks of images to score: where the fitted measures and the parts are, and what to make of a block."""

    work: Path
    kinds: dict[str, str]  # measure -> class of its fitted form
    tables: Tables
    n_images: int
    block_images: int
    device: str = "cpu"
    url: str | None = None  # of a folder that workers on other machines exchange files by; None: they see `work`

    @property
    def n_blocks(self) -> int:
        """Blocks of images; the last one may be smaller."""
        return -(-self.n_images // self.block_images)

    @property
    def remote(self) -> Remote | None:
        """The folder at the URL, if there is one."""
        return Remote(self.url) if self.url else None

    def images(self, block: int) -> np.ndarray:
        """Image numbers of a block, int64."""
        return np.arange(block * self.block_images, min((block + 1) * self.block_images, self.n_images))

    def part(self, block: int, table: str) -> Path:
        """The file of one of a block's tables."""
        return self.work / "parts" / f"{block:06d}-{table}.arrow"

    def receipt(self, block: int) -> Path:
        """Written after a block's parts, with their digests: a block without a whole one is computed again."""
        return self.work / "parts" / f"{block:06d}-.json"

    def name(self, file: Path) -> str:
        """A file of the work folder as the URL names it."""
        return file.relative_to(self.work).as_posix()

    def digests(self, block: int) -> dict[str, str]:
        """Table -> SHA-256, of a receipt; OSError for one that is not there or not whole."""
        try:
            found = json.loads(self.receipt(block).read_text(encoding="utf-8"))
            return {str(table): str(sha) for table, sha in found.items()}
        except (ValueError, AttributeError) as error:
            raise OSError("not a receipt") from error

    def finished(self, block: int) -> bool:
        """Its receipt and its parts are here, and they fit."""
        try:
            return all(digest(self.part(block, table)) == sha for table, sha in self.digests(block).items())
        except OSError:
            return False

    def done(self, block: int) -> bool:
        """It needs no second time: finished here, or its receipt, which is written last, is at the URL."""
        return self.remote.has(self.name(self.receipt(block))) if self.remote else self.finished(block)

    def write(self, batches: Batches, block: int) -> None:
        """Write a block's tables, then its receipt, here or to the URL."""
        with ExitStack() as stack:
            here = self
            if self.remote:  # by way of a folder of its own: another worker may be at the same block
                folder = stack.enter_context(tempfile.TemporaryDirectory(dir=self.work / "parts"))
                here = replace(self, work=Path(folder))
            for table, batch in batches.items():
                write_arrow(here.part(block, table), batch.schema, [batch])
            write_json(here.receipt(block), {table: digest(here.part(block, table)) for table in batches})
            if self.remote:
                files = [*(here.part(block, table) for table in batches), here.receipt(block)]
                self.remote.put(here.work, [here.name(file) for file in files])

    def fetch(self, block: int) -> bool:
        """Bring a block's parts here from the URL. False where they are not as they were written: their receipt is
        deleted there, so that they are computed again."""
        assert self.remote is not None
        with suppress(OSError):
            self.remote.get(self.name(self.receipt(block)), self.work, whole_json)
            for table, sha in self.digests(block).items():
                self.remote.get(self.name(self.part(block, table)), self.work, with_digest(sha))
            return True
        self.remote.delete(self.name(self.receipt(block)))
        return False

    def done_elsewhere(self) -> set[int]:
        """The blocks whose receipts are at the URL."""
        names = self.remote.names("parts", depth=1) if self.remote else set()
        return {int(Path(name).name.removesuffix("-.json")) for name in names if name.endswith("-.json")}

    def receipts(self) -> int:
        """How many are here or at the URL; a store that does not answer now has none: workers say so where it
        matters."""
        try:
            return max(sum(1 for _ in (self.work / "parts").glob("*-.json")), len(self.done_elsewhere()))
        except InputError:
            return 0

    def joined(self, table: str, blocks: range | None = None) -> Iterator[pa.RecordBatch]:
        """The parts of one table in image order, memory-mapped."""
        for block in blocks or range(self.n_blocks):
            yield open_arrow(self.part(block, table)).get_batch(0)

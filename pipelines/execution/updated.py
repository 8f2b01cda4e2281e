"""The table of a block of images under `shards --update`: what an image kept before, joined with new captions.

A sample keeps the captions of the lowest keys. Those that an image kept before have all keys up to the highest of each
sample; of the others is known that their keys are above. So if a sample has enough of those that stay and of the new
ones up to the old highest key, nothing else can be in it. An image with a sample of which that cannot be said (one of
its best captions is gone, and nothing as good came) is scored anew, as are new images and those of other captions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.pipelines.execution.changes import Changes
from capgrade.pipelines.execution.nearest import SCORED, counted
from capgrade.pipelines.execution.sampled import Found, Sampled
from capgrade.pipelines.execution.tables import Batches, Opened
from capgrade.pipelines.measures import FITTED
from capgrade.pipelines.measures.base import CHUNK
from capgrade.pipelines.measures.cider import FittedCider
from capgrade.pipelines.measures.mixture import FittedMixture
from capgrade.pipelines.measures.tops.cider import CiderTops
from capgrade.pipelines.measures.tops.find import Finder
from capgrade.pipelines.measures.tops.listed import listed_values
from capgrade.pipelines.sampling.among import SomeSamples
from capgrade.pipelines.sampling.plan import Kept
from capgrade.schemas.files import open_arrow
from capgrade.schemas.shards import WINDOW_COUNTS
from capgrade.schemas.ties import Ties

UPDATE = "update"  # in the work folder: `Changes`, and the measures fitted on the old captions
COLUMNS = 2048  # new captions offered together


class Before(NamedTuple):
    """What some images kept before."""

    ptr: np.ndarray  # int64 [images + 1]
    rows: np.ndarray  # int64 [kept]: of the old captions
    values: np.ndarray  # float32 [measures, kept]
    members: np.ndarray  # int64 [images, measures, windows]; none where they are not counted


@dataclass(frozen=True)
class Updated:
    """As `fresh`, given what it made of the old captions."""

    fresh: Sampled
    old: tuple[Path, ...]  # shards, in image order
    kinds: Mapping[str, str]  # measure -> class of its fitted form, of the old captions; none where nothing is to do
    block_images: int  # of each batch of the old shards
    among: bool  # whether windows draw from a share
    _opened: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def whole(self, images: np.ndarray, opened: Opened) -> Batches:
        found = self._found(images, opened)
        return {**self.fresh.table(images, opened.folder, found), SCORED: counted(found.scored)}

    def _found(self, images: np.ndarray, opened: Opened) -> Found:
        changed = Changes.load(opened.folder / UPDATE)
        known = images[changed.old_image[images] >= 0]
        if not len(known):
            return self.fresh.found(images, opened)
        joined, sure = self._joined(known, changed, opened)
        anew = np.setdiff1d(images, known[sure])
        parts = [joined, *([self.fresh.found(anew, opened)] if len(anew) else [])]
        numbers = np.concatenate([known, anew])
        some = np.flatnonzero(np.concatenate([sure, np.ones(len(anew), bool)]))
        order = some[np.argsort(numbers[some])]
        scored = {name: sum(part.scored[name] for part in parts) for name in self.fresh.measures}
        members = np.concatenate([part.members for part in parts])[order]
        return Found(gather([part.kept for part in parts], order), members, scored)

    def _joined(self, images: np.ndarray, changed: Changes, opened: Opened) -> tuple[Found, np.ndarray]:
        """What these images keep of old and new captions, and of which that is certain, bool [images]."""
        n_captions, before = len(changed.new_union), self._before(changed.old_image[images])
        place = changed.old_union[before.rows]
        old, new = self._samples(images, changed, opened.folder), self._samples(images, changed, opened.folder)
        old.offer_some(changed.keys, old.marked(changed.keys, before.ptr, place), before.values)
        stay = changed.new_of_union[place] >= 0
        ptr = np.concatenate([[0], np.cumsum(stay)])[before.ptr]
        listed = new.marked(changed.keys, ptr, place[stay])
        new.offer_listed(changed.keys, listed, np.ascontiguousarray(before.values[:, stay]))
        new.count_from(before.members)
        ties = self.fresh.ties(opened.folder)
        finders = [opened.finder(name, ties) for name in self.fresh.measures]
        _offer(new, finders, images, changed.added, changed.new_union, changed.keys)
        if self.kinds:
            left, now = self._samples(images, changed, opened.folder), self._old(opened.folder)
            ties = Ties(np.empty(0, np.uint64), changed.keys[changed.old_union])  # no tops are asked for
            finders = [now.finder(name, ties) for name in self.fresh.measures]
            _offer(left, finders, changed.old_image[images], changed.gone, changed.old_union, changed.keys)
            new.count_from(new.members - left.members)
        kept = new.kept_of(changed.keys, n_captions) if self.among else new.kept(n_captions)
        rows = changed.new_of_union[kept.caption]
        kept = Kept(kept.ptr, rows, kept.reasons, kept.weight, kept.values)
        columns = len(changed.added) + len(changed.gone) * bool(self.kinds)
        scored = dict.fromkeys(self.fresh.measures, len(images) * columns)
        return Found(kept, new.members, scored), new.no_further(old)

    def _samples(self, images: np.ndarray, changed: Changes, folder: Path) -> SomeSamples:
        arrays = {path.stem: np.load(path, mmap_mode="c") for path in (folder / "keys").glob("*.npy")}
        ptr, refs = arrays["ref_ptr"], arrays["refs"]
        own = [changed.new_union[refs[ptr[i] : ptr[i + 1]]] for i in images]
        return SomeSamples(self.fresh.plan, arrays["images"][images], own, len(self.fresh.measures))

    def _before(self, images: np.ndarray) -> Before:
        """Rows of the old shards, by image number."""
        if "batches" not in self._opened:
            files = [open_arrow(path) for path in self.old]
            self._opened["batches"] = [(file, k) for file in files for k in range(file.num_record_batches)]
        blocks = {int(block): self._opened["batches"][block] for block in np.unique(images // self.block_images)}
        read = {block: file.get_batch(k) for block, (file, k) in blocks.items()}
        rows = [read[i // self.block_images].slice(i % self.block_images, 1) for i in images]
        table = pa.Table.from_batches(rows, self.fresh.schema).combine_chunks()
        flat = {name: table[name].combine_chunks().flatten().to_numpy() for name in table.schema.names[2:]}
        ptr = np.concatenate([[0], np.cumsum(pc.list_value_length(table["captions"]).to_numpy())])
        values = np.stack([flat[name] for name in self.fresh.measures])
        windows = len(self.fresh.plan.windows(0))
        counts = flat.get(WINDOW_COUNTS, np.ones(len(images) * len(values) * windows, np.int64))
        return Before(ptr, flat["captions"].astype(np.int64), values, counts.reshape(-1, len(values), windows))

    def _old(self, folder: Path) -> Opened:
        """The measures fitted on the old captions."""
        if "old" not in self._opened:
            fitted = {name: FITTED[kind].load(folder / UPDATE / "fit" / name) for name, kind in self.kinds.items()}
            self._opened["old"] = Opened(fitted, folder)
        found: Opened = self._opened["old"]
        return found


def _offer(
    samples: SomeSamples, finders: Sequence[Finder], images: np.ndarray, rows: np.ndarray, union: np.ndarray,
    keys: np.ndarray,
) -> None:  # fmt: skip
    """Offer captions `rows` of the finders' table to every image, some at a time."""
    for at in range(0, len(rows) if len(images) else 0, COLUMNS):
        some = rows[at : at + COLUMNS]
        values = np.stack([column_values(find, images, some, len(union)).ravel() for find in finders])
        ptr = np.arange(len(images) + 1) * len(some)
        samples.offer_some(keys, samples.marked(keys, ptr, np.tile(union[some], len(images))), values)


def column_values(find: Finder, images: np.ndarray, columns: np.ndarray, n_captions: int) -> np.ndarray:
    """float32 [images, columns]: what `Fitted.chunks` gives these captions, ascending rows, to the last bit."""
    if isinstance(find, CiderTops):
        ptr = np.arange(len(images) + 1) * len(columns)
        return listed_values(find, images, ptr, np.tile(columns, len(images))).reshape(len(images), -1)
    if not isinstance(find.fitted, FittedCider | FittedMixture):
        found: np.ndarray = find.fitted.score(images, columns)
        return found
    out, chunk = np.empty((len(images), len(columns)), np.float32), np.empty((len(images), CHUNK), np.float32)
    for first in np.unique(columns // CHUNK) * CHUNK:
        here = (columns >= first) & (columns < first + CHUNK)
        for _ in find.fitted.chunks(images, int(first), min(int(first) + CHUNK, n_captions), chunk):
            out[:, here] = chunk[:, columns[here] - first]
    return out


def gather(parts: Sequence[Kept], order: np.ndarray) -> Kept:
    """Rows of these tables, one after the other, in an order of images."""
    sizes = np.concatenate([np.diff(part.ptr) for part in parts])
    start, ptr = np.cumsum(sizes) - sizes, np.concatenate([[0], np.cumsum(sizes[order])])
    at = np.arange(ptr[-1]) + np.repeat(start[order] - ptr[:-1], sizes[order])
    caption, reasons, weight = (
        np.concatenate([getattr(part, name) for part in parts])[at] for name in ("caption", "reasons", "weight")
    )
    return Kept(ptr, caption, reasons, weight, np.concatenate([part.values for part in parts], axis=1)[:, at])

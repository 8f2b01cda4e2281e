"""What is between two tables of captions: which came, which went, and which images are as they were."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np

from capgrade.pipelines.sampling.plan import id_keys
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError

GONE = -1


@dataclass(frozen=True)
class Changes:
    """Captions of both tables stand in one order, the union, that each table's own order agrees with: so what an image
    keeps is in the order of either table."""

    old_union: np.ndarray  # int64 [old captions]: place of each in the union
    new_union: np.ndarray  # int64 [new captions]
    new_of_union: np.ndarray  # int64 [union]: row of each in the new table, GONE
    keys: np.ndarray  # uint64 [union]: hashes of the ids
    added: np.ndarray  # int64: rows of the new table
    gone: np.ndarray  # int64: rows of the old table
    old_image: np.ndarray  # int64 [new images]: number in the old table; GONE: new, or of other captions than before

    def save(self, folder: Path) -> None:
        """For workers, a file per array."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in asdict(self).items():
            np.save(folder / f"{name}.npy", array)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """What `save` wrote, by memory map."""
        return cls(**{name: np.load(folder / f"{name}.npy", mmap_mode="c") for name in cls.__dataclass_fields__})


def changes(old: Captions, new: Captions) -> Changes:
    """Captions are told apart by their ids. InputError when one has another text, other tokens or another image than
    before, or when those that stay stand in another order."""
    if old.tokenizer != new.tokenizer:
        raise _refused(f"tokenizer {new.tokenizer}, where it was {old.tokenizer}")
    row_of = {caption: row for row, caption in enumerate(old.caption_ids)}
    before = np.array([row_of.get(caption, GONE) for caption in new.caption_ids], np.int64)
    stay = np.flatnonzero(before >= 0)
    _same(old, new, before[stay], stay)
    gone = np.setdiff1d(np.arange(old.n_captions), before[stay])
    added = np.flatnonzero(before < 0)
    old_union, new_union = _union(before[stay], stay, gone, added)
    new_of_union = np.full(len(stay) + len(gone) + len(added), GONE)
    new_of_union[new_union] = np.arange(new.n_captions)
    keys = np.empty(len(new_of_union), np.uint64)
    keys[old_union], keys[new_union] = id_keys(old.caption_ids), id_keys(new.caption_ids)
    return Changes(old_union, new_union, new_of_union, keys, added, gone, _images_as_they_were(old, new, before))


def _same(old: Captions, new: Captions, was: np.ndarray, rows: np.ndarray) -> None:
    for what, column in (("text", "caption"), ("tokens", "tokens"), ("image", "image_id")):
        one, other = old.table[column].take(was).to_pylist(), new.table[column].take(rows).to_pylist()
        if one != other:
            k = next(k for k, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
            problem = f"caption '{new.caption_ids[rows[k]]}' has another {what} than before"
            raise _refused(problem, f"captions[{rows[k]}]", "give what changed a new caption id")
    if (np.diff(was) < 0).any():
        k = int(np.flatnonzero(np.diff(was) < 0)[0]) + 1
        problem = f"caption '{new.caption_ids[rows[k]]}' and '{new.caption_ids[rows[k - 1]]}' have changed places"
        raise _refused(problem, f"captions[{rows[k]}]", "keep the order of the captions that stay")


def _refused(problem: str, row: str | None = None, remedy: str = "") -> InputError:
    anew = "make the shards from the start, without --update"
    return InputError(problem, row=row, remedy=f"{remedy}, or {anew}" if remedy else anew)


def _union(was: np.ndarray, stay: np.ndarray, gone: np.ndarray, added: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of the old and of the new rows: what came or went stands before the next caption that stays, what came
    first."""
    staying = np.arange(len(stay))
    after = np.concatenate([staying, np.searchsorted(stay, added), np.searchsorted(was, gone)])
    kind = np.repeat([2, 0, 1], [len(stay), len(added), len(gone)])
    place = np.empty(len(after), np.int64)
    place[np.lexsort((np.concatenate([staying, added, gone]), kind, after))] = np.arange(len(after))
    of_stay, of_added, of_gone = np.split(place, [len(stay), len(stay) + len(added)])
    old, new = np.empty(len(stay) + len(gone), np.int64), np.empty(len(stay) + len(added), np.int64)
    old[was], old[gone], new[stay], new[added] = of_stay, of_gone, of_stay, of_added
    return old, new


def _images_as_they_were(old: Captions, new: Captions, before: np.ndarray) -> np.ndarray:
    number_of = {image: number for number, image in enumerate(old.image_ids)}
    was = np.array([number_of.get(image, GONE) for image in new.image_ids], np.int64)
    stayed = np.bincount(new.owner[before >= 0], minlength=new.n_images)
    sizes = np.append(np.diff(old.ref_ptr), GONE)[was]
    return np.where((stayed == np.diff(new.ref_ptr)) & (stayed == sizes), was, GONE)

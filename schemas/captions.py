"""The captions table: one row per caption, in the order of the source, with its tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.schemas.arrow import ArrowFile, metadata_of
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.files import file_digest, read_manifest
from capgrade.schemas.image_matching import by_name

CAPTIONS_FILE = "captions.arrow"
MOST_ROWS = 2**31 - 1
SCHEMA = pa.schema(
    [
        pa.field("image_id", pa.string(), nullable=False),
        pa.field("caption_id", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("caption", pa.string(), nullable=False),
        pa.field("tokens", pa.list_(pa.string()), nullable=False),
        pa.field("image_file", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Caption:
    """One caption as a source gives it.

    `row` says where it stands in `file`, for error messages (see `InputError`). `image_file` is the
    image's file name when the source knows it, else None.
    """

    image_id: str
    caption_id: str
    split: str
    text: str
    file: str
    row: int | str
    image_file: str | None = None


@dataclass(frozen=True)
class Captions:
    """The captions of one split, and which image each belongs to.

    Images are numbered in order of first appearance, captions in the order of the table; every
    relevance matrix has these as its rows and columns. Image i's reference set is the captions
    `refs[ref_ptr[i]:ref_ptr[i + 1]]`.
    """

    table: pa.Table
    split: str
    tokenizer: str
    digest: str  # SHA-256 of the captions file it came from

    @cached_property
    def _image_codes(self) -> pa.DictionaryArray:
        # Chunk by chunk, as the ids in one array may take over 2 GiB.
        return self.table["image_id"].dictionary_encode().combine_chunks()

    @cached_property
    def image_ids(self) -> list[str]:
        """In order of first appearance."""
        return self._image_codes.dictionary.to_pylist()

    @cached_property
    def image_files(self) -> dict[str, str | None]:
        """The file of each image, by its id in their order; None where the source knew none."""
        files = self.table["image_file"].take(self.refs[self.ref_ptr[:-1]])  # of its first caption
        return dict(zip(self.image_ids, files.to_pylist(), strict=True))

    @cached_property
    def caption_ids(self) -> list[str]:
        """In the order of the table."""
        return self.table["caption_id"].to_pylist()

    @cached_property
    def texts(self) -> list[str]:
        """InputError as `require_texts`."""
        self.require_texts()
        return self.table["caption"].to_pylist()

    def require_texts(self, file: Path | str | None = None) -> None:
        """InputError where texts are not known, of a dataset that was published without them."""
        if missing := self.table["caption"].null_count:
            problem = f"{missing:,} of {self.n_captions:,} captions have no text here, but ids"
            remedy = "give {captions}: what `capgrade captions` wrote, with these texts"
            raise InputError(problem, file=file, remedy=remedy, keys=["captions"])

    @cached_property
    def owner(self) -> np.ndarray:
        """int64 [n_captions]: the image of each caption."""
        return self._image_codes.indices.to_numpy(zero_copy_only=False).astype(np.int64)

    @cached_property
    def ref_ptr(self) -> np.ndarray:
        """int64 [n_images + 1]: where each image's reference set starts in `refs`."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.owner, minlength=self.n_images))])

    @cached_property
    def refs(self) -> np.ndarray:
        """int64 [n_captions]: caption rows grouped by image, in table order within an image."""
        return np.argsort(self.owner, kind="stable")

    def rows_of(self, image: int) -> list[int]:
        """The captions of an image's reference set."""
        return self.refs[self.ref_ptr[image] : self.ref_ptr[image + 1]].tolist()

    @cached_property
    def image_numbers(self) -> Mapping[str, int]:
        """By image id, as `by_name` compares them."""
        return by_name({key: k for k, key in enumerate(self.image_ids)})

    @cached_property
    def caption_numbers(self) -> Mapping[str, int]:
        """By caption id, as `by_name` compares them."""
        return by_name({key: k for k, key in enumerate(self.caption_ids)})

    @property
    def n_images(self) -> int:
        return len(self.image_ids)

    @property
    def n_captions(self) -> int:
        return self.table.num_rows

    def of_rows(self, rows: np.ndarray) -> Captions:
        """These captions alone, int64, rising. The digest stays that of the file."""
        return self if len(rows) == self.n_captions else replace(self, table=self.table.take(rows))

    def require_rows_of(self, others: Captions, file: Path | str) -> None:
        """InputError unless these captions, which labels in `file` have, are the others by their
        ids, row for row."""
        ids = ["image_id", "caption_id"]
        if not self.table.select(ids).equals(others.table.select(ids)):
            problem = f"labels of other rows than the captions of split '{others.split}'"
            remedy = "give captions with the same ids in the same order"
            raise InputError(problem, file=file, remedy=remedy)

    def tokens(self) -> tuple[pa.DictionaryArray, np.ndarray]:
        """All tokens in one array, and int64 [n_captions + 1] saying where each caption starts.

        Different tokens are numbered in the order in which they come. InputError as
        `require_texts`.
        """
        self.require_texts()
        tokens = self.table["tokens"]
        sizes = pc.list_value_length(tokens).to_numpy().astype(np.int64)
        flat = pa.chunked_array([chunk.flatten() for chunk in tokens.chunks], pa.string())
        return flat.dictionary_encode().combine_chunks(), np.concatenate([[0], np.cumsum(sizes)])


def read_corpus(source: str) -> Captions | None:
    """The captions of FOLDER or FOLDER#SPLIT; None where the source is no folder. InputError as
    `read_captions`."""
    folder, _, split = source.partition("#")
    return read_captions(Path(folder), split or None) if Path(folder).is_dir() else None


def corpus_digest(source: str) -> str:
    """SHA-256 of the captions file of FOLDER or FOLDER#SPLIT, with the split, or of a file.

    InputError where it is not there.
    """
    folder, hash_, split = source.partition("#")
    if Path(folder).is_dir():
        return f"{file_digest(Path(folder) / CAPTIONS_FILE)}{hash_}{split}"
    return file_digest(Path(source))


def read_captions(folder: Path, split: str | None = None) -> Captions:
    """Read one split of a captions folder, or several joined by `+` (train+restval) as one.

    `split` may be left out when there is only one. Raises InputError for an unfinished folder, an
    unknown split, or a choice that is not made.
    """
    manifest = read_manifest(folder, "captions")
    if CAPTIONS_FILE not in manifest["files"]:
        problem = f"its manifest does not list {CAPTIONS_FILE}"
        raise InputError(problem, file=folder, remedy="run `capgrade captions` again")
    file = ArrowFile(folder / CAPTIONS_FILE)
    file.need(SCHEMA, ["tokenizer"])
    tokenizer = metadata_of(file.schema)["tokenizer"]
    # In chunks, as Arrow's 32-bit offsets reach 2 GiB of text in one.
    table = file.read_all()
    if table.num_rows > MOST_ROWS:
        problem = f"{table.num_rows:,} captions; their rows are numbers of 32 bits"
        remedy = f"at most {MOST_ROWS:,} in a table: divide the corpus"
        raise InputError(problem, file=folder / CAPTIONS_FILE, remedy=remedy)
    known = pc.unique(table["split"]).to_pylist()
    if split is None and len(known) > 1:
        raise InputError(
            f"several splits: {', '.join(known)}",
            file=folder,
            remedy="choose one by {split}",
            keys=("split",),
        )
    split = known[0] if split is None else split
    parts = parts_of_split(split, known, folder)
    if len(known) > 1:
        table = table.filter(pc.is_in(table["split"], pa.array(parts)))
    return Captions(table, split, tokenizer, manifest["files"][CAPTIONS_FILE]["sha256"])


def parts_of_split(split: str, known: Sequence[str], file: str | Path) -> list[str]:
    """The splits that `train+restval` names, or the one that is itself called so.

    InputError for one not known.
    """
    parts = [split] if split in known else split.split("+")
    for part in parts:
        if part not in known:
            raise InputError(f"no split '{part}'", file=file, remedy=choose_from(part, known))
    return parts


def splits_of(folder: Path) -> list[str]:
    """Names of the splits of a captions folder, in order of first appearance.

    InputError as `read_captions`.
    """
    read_manifest(folder, "captions")
    return pc.unique(ArrowFile(folder / CAPTIONS_FILE).read_all()["split"]).to_pylist()

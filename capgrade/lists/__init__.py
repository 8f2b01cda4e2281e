"""Lists of likely positives that come with the package: what is right beside a benchmark's own
pairs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from capgrade.metrics.positives import Positives
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.files import file_digest
from capgrade.schemas.out_files import refuse_file
from capgrade.schemas.pairs import Pairs

_FOLDER = Path(__file__).parent
LIKELY = 0.5  # P from which a pair counts as likely right, where nobody says otherwise
_KEYS = (b"image_ids", b"caption_ids", b"owner")
HUNDREDTHS = "hundredths"  # what the values of its pairs are called


@dataclass(frozen=True)
class LikelyList:
    """Ids of a split in its usual order, and the pairs of an image with another's caption that are
    likely right."""

    image_ids: np.ndarray  # int64 [n_images]
    caption_ids: np.ndarray  # int64 [n_captions]
    owner: np.ndarray  # int64 [n_captions], the row of each caption's image
    pairs: Pairs  # with P in hundredths, rounded down, uint8

    def positives(self, likely: float = LIKELY) -> tuple[Positives, Positives]:
        """Of images and of captions: own pairs, and those with a P of `likely` or more. InputError
        for a P below the list's least or above 1."""
        least = int(self.pairs.value.min()) / 100 if len(self.pairs) else 0.0
        if not least <= likely <= 1:
            problem = f"P {likely:g} of a list that holds pairs from {least:g} on"
            raise InputError(problem, remedy=f"give a P from {least:g} to 1")
        kept = self.pairs.take(self.pairs.value >= round(likely * 100))
        own = np.arange(len(self.owner))
        image = np.concatenate([self.owner, kept.image])
        caption = np.concatenate([own, kept.caption])
        return _grouped(image, caption, len(self.image_ids)), _grouped(caption, image, len(own))


def _grouped(query: np.ndarray, item: np.ndarray, size: int) -> Positives:
    """The items of each query, in ascending order."""
    order = np.lexsort((item, query))
    starts = np.searchsorted(query[order], np.arange(1, size))
    return Positives.from_lists(np.split(item[order], starts))


def list_file(name: str | Path) -> Path:
    """The file of a list; or the one that comes with capgrade, by its name, where no such file
    is. InputError for an unknown name."""
    path, shipped = Path(name), _FOLDER / f"{name}.parquet"
    if path.is_file():
        return path
    if not shipped.is_file():
        known = sorted(one.stem for one in _FOLDER.glob("*.parquet"))
        remedy = f"give a file; or {choose_from(name, known)}"
        raise InputError("no such list", file=path, remedy=remedy)
    return shipped


def write_list(path: Path, found: LikelyList, force: bool = False) -> None:
    """One row a pair, sorted by image and caption; the ids and owners are in the file's metadata.
    InputError where a file is, but with `force`."""
    refuse_file(path, force)
    pairs = found.pairs.take(np.lexsort((found.pairs.caption, found.pairs.image)))
    columns = {
        "image": pairs.image.astype(np.uint16),
        "caption": pairs.caption.astype(np.uint16),
        HUNDREDTHS: pairs.value.astype(np.uint8),
    }
    ids = (found.image_ids, found.caption_ids, found.owner)
    facts = {
        key: " ".join(map(str, values.tolist())).encode()
        for key, values in zip(_KEYS, ids, strict=True)
    }
    table = pa.table(columns).replace_schema_metadata(facts)
    pq.write_table(table, path, compression="zstd", compression_level=19)


def read_list(path: Path) -> LikelyList:
    """InputError for a file that `write_list` did not write."""
    try:
        table = pq.read_table(path)
        image_ids, caption_ids, owner = (
            np.array(table.schema.metadata[key].split(), np.int64) for key in _KEYS
        )
        image, caption = (table[name].to_numpy().astype(np.int64) for name in ("image", "caption"))
        p = {HUNDREDTHS: table[HUNDREDTHS].to_numpy()}
    except (pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
        problem = f"not a list of likely pairs ({type(error).__name__}: {error})"
        raise InputError(
            problem, file=path, remedy="give what `python -m research.studies.coco_lists` wrote"
        ) from error
    pairs = Pairs(image, caption, np.ones(len(image)), p)
    return LikelyList(image_ids, caption_ids, owner, pairs)


def table_of_ids(found: LikelyList, path: Path) -> Captions:
    """The split of a list as a captions table without texts: ids and owners are all that scores are
    read by."""
    images = pa.array(found.image_ids[found.owner].astype(str).tolist(), pa.string())
    captions = pa.array(found.caption_ids.astype(str).tolist(), pa.string())
    files = pa.nulls(len(captions), pa.string())
    table = pa.table({"image_id": images, "caption_id": captions, "image_file": files})
    return Captions(table, path.stem, "", file_digest(path))

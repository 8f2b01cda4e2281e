"""What is explored: the captions of a split and the pairs whose labels were kept, from either form they come in."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from capgrade.explorer.pairs import Pairs, joined
from capgrade.pipelines.measures import choose
from capgrade.pipelines.sampling.plan import Plan, id_keys, keep
from capgrade.schemas.captions import SCHEMA, Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import read_manifest
from capgrade.schemas.params import MeasuresParams, validated
from capgrade.schemas.progress import progress
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.shards import pair_columns, read_shards

CAPTION_COLUMNS = ["image_id", "caption_id", "caption", "tokens", "image_file"]
PAIR_COLUMNS = ["image_id", "caption_id", "original"]
TOP, UNIFORM = 16, 16  # captions an image, where pairs are sampled here
NOT_MEASURES = {*PAIR_COLUMNS, "reasons", "weight"}


@dataclass(frozen=True)
class Corpus:
    """Captions, kept pairs with their labels, and the parameters that the labels were made with."""

    captions: Captions
    pairs: Pairs
    params: MeasuresParams
    folder: Path

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over ids and texts: what a review was made on, whichever form it was read from."""
        parts = (self.captions.table[name].to_pylist() for name in ("image_id", "caption_id", "caption"))
        return hashlib.sha256("\0".join(text for column in parts for text in column).encode()).hexdigest()


def read_dataset(folder: Path, split: str | None = None) -> Corpus:
    """A split of a folder that `capgrade publish` wrote, or of its copy from the hub.

    Raises InputError for an unfinished or damaged folder, an unknown split, or a choice that is not made.
    """
    manifest = read_manifest(folder, "publish")
    if "tokenizer" not in manifest:
        raise InputError("its manifest has no tokenizer", file=folder, remedy="publish it again: capgrade publish")
    splits = sorted({Path(name).name.rsplit("-", 3)[0] for name in manifest["files"] if name.startswith("captions/")})
    split = _chosen(split, splits, folder)
    table = _parquet(folder, manifest, f"captions/{split}", CAPTION_COLUMNS)
    split_column = pa.array([split] * table.num_rows, pa.string())
    table = table.append_column("split", split_column).select(SCHEMA.names)
    captions = _captions(table, split, manifest, folder)
    pairs = joined(_published_pairs(folder, manifest, split, captions))
    return Corpus(captions, pairs, _params(manifest["measures"], folder), folder)


def read_folders(captions_dir: Path, shards_dir: Path, split: str | None = None) -> Corpus:
    """A captions folder with its sampled shards. InputError when they do not belong together."""
    shards = read_shards(shards_dir)
    captions = read_captions(captions_dir, split or shards.metadata["split"])
    shards.require(captions)
    parts = []
    for batch in shards.batches():
        row, columns = pair_columns(batch)
        image, caption = batch["image"].to_numpy()[row], columns["captions"].to_numpy()
        values = {name: columns[name].to_numpy() for name in shards.measures}
        parts.append(Pairs(image, caption, values, captions.owner[caption] == image))
    params = _params(shards.metadata["params"]["measures"], shards_dir)
    return Corpus(captions, joined(parts), params, captions_dir)


def read_captions_only(
    captions_dir: Path, params: MeasuresParams, names: Sequence[str], relevance: Path | None, split: str | None = None
) -> Corpus:
    """A captions folder without shards: pairs are sampled here, from a folder of dense relevance where it is given,
    else from the named measures, computed now."""
    captions = read_captions(captions_dir, split)
    scorers: dict[str, Callable[[np.ndarray], np.ndarray]] = {}
    if relevance is not None:
        scorers = {path.stem: _dense(path, captions) for path in sorted(relevance.glob("*.arrow"))}
    else:
        scorers = {name: measure.fit(captions).score for name, measure in choose(names, params).items()}
    if not scorers:
        raise InputError("no relevance file", file=relevance, remedy="make them: capgrade relevance")
    return Corpus(captions, sampled(captions, scorers), params, captions_dir)


def _dense(path: Path, captions: Captions) -> Callable[[np.ndarray], np.ndarray]:
    found = read_relevance(path)
    found.require(captions)
    return found.rows


def sampled(captions: Captions, scorers: Mapping[str, Callable[[np.ndarray], np.ndarray]], block: int = 64) -> Pairs:
    """Of each image: its own captions, the TOP of each measure and UNIFORM others, drawn by a hash of their ids."""
    keys, caption_keys = id_keys(captions.image_ids), id_keys(captions.caption_ids)
    bounds = (0.0,) * len(scorers), (1.0,) * len(scorers)
    plan = Plan(*bounds, top=TOP, width=1.0, stride=1.0, per_window=0, uniform=UNIFORM, seed=0)
    parts = []
    with progress("sampling pairs", captions.n_images) as advance:
        for at in range(0, captions.n_images, block):
            images = np.arange(at, min(at + block, captions.n_images))
            own = [captions.refs[captions.ref_ptr[i] : captions.ref_ptr[i + 1]] for i in images]
            values = np.stack([score(images) for score in scorers.values()])
            kept = keep(plan, keys[images], caption_keys, own, values)
            image = np.repeat(images, np.diff(kept.ptr))
            labels = dict(zip(scorers, kept.values, strict=True))
            parts.append(Pairs(image, kept.caption, labels, captions.owner[kept.caption] == image))
            advance(len(images))
    return joined(parts)


def _chosen(split: str | None, known: list[str], folder: Path) -> str:
    if split is None and len(known) > 1:
        raise InputError(f"several splits: {', '.join(known)}", file=folder, remedy="choose one with --split")
    if not known or (split is not None and split not in known):
        raise InputError(f"no split '{split}'", file=folder, remedy=f"choose from: {', '.join(known)}")
    return known[0] if split is None else split


def _files(folder: Path, manifest: dict[str, Any], prefix: str) -> list[Path]:
    return [folder / name for name in sorted(manifest["files"]) if name.rsplit("-", 3)[0] == prefix]


def _parquet(folder: Path, manifest: dict[str, Any], prefix: str, columns: list[str]) -> pa.Table:
    tables = []
    for path in _files(folder, manifest, prefix):
        try:
            tables.append(pq.read_table(path, columns=columns))
        except (pa.ArrowException, OSError, ValueError) as error:
            problem = f"not a whole Parquet file ({' '.join(str(error).split())})"
            raise InputError(problem, file=path, remedy="publish it again: capgrade publish") from error
        missing = set(columns) - set(tables[-1].column_names)
        if missing:
            raise InputError(f"no column '{min(missing)}'", file=path, remedy="publish it again: capgrade publish")
    return pa.concat_tables(tables).combine_chunks()


def _captions(table: pa.Table, split: str, manifest: dict[str, Any], folder: Path) -> Captions:
    try:
        table = table.cast(SCHEMA)
    except (pa.ArrowException, ValueError) as error:
        raise InputError(f"not a captions table ({error})", file=folder / "captions") from error
    if not table.num_rows:
        raise InputError("no captions", file=folder / "captions")
    return Captions(table, split, str(manifest["tokenizer"]), manifest["inputs"]["captions"])


def _published_pairs(folder: Path, manifest: dict[str, Any], split: str, captions: Captions) -> Iterator[Pairs]:
    image_ids, caption_ids = pa.array(captions.image_ids), captions.table["caption_id"].combine_chunks()
    for path in _files(folder, manifest, f"relevance/{split}"):
        names = [name for name in manifest["measures"] if name not in NOT_MEASURES]
        table = _parquet(
            folder, {"files": {str(path.relative_to(folder)): None}}, f"relevance/{split}", [*PAIR_COLUMNS, *names]
        )
        image, caption = pc.index_in(table["image_id"], image_ids), pc.index_in(table["caption_id"], caption_ids)
        if image.null_count or caption.null_count:
            raise InputError("a pair of an image or caption that the captions lack", file=path)
        values = {name: table[name].to_numpy().astype(np.float32, copy=False) for name in names}
        yield Pairs(image.to_numpy(), caption.to_numpy(), values, table["original"].to_numpy())


def _params(measures: dict[str, Any], folder: Path) -> MeasuresParams:
    """From what `MeasuresParams.used` wrote. Imported matrices are left out, and mixtures with them: their labels are
    in the pairs."""
    found: dict[str, Any] = {"mixtures": {}}
    _collect(measures, found)
    return validated(MeasuresParams, found, file=folder)


def _collect(measures: dict[str, Any], found: dict[str, Any]) -> None:
    for name, values in measures.items():
        if "weights" in values:
            if not any("imported" in part for part in values["measures"].values()):
                found["mixtures"][name] = values["weights"]
            _collect(values["measures"], found)
        elif name == "sbert_mean":  # not a block of its own: `sbert` with another `references`
            found.setdefault("sbert", {**values, "references": "max"})
        elif "imported" not in values:
            found[name] = values

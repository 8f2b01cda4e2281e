"""Opening labels: which kind of folder it is, whose ids its rows have, and how to compute what it does not hold."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from capgrade.labels.computed import Computed
from capgrade.labels.named import EXACT, as_named
from capgrade.labels.published import params_of, published_captions, published_pairs, published_reasons
from capgrade.labels.stored import Dense, Part, RelevanceBlock, Sampled, Stored
from capgrade.measures import require_read
from capgrade.measures.embeddings import cache_folder
from capgrade.pretrained import EMBEDDED
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    CACHE,
    MANIFEST,
    digest,
    metadata_of,
    open_arrow,
    package_version,
    parse_manifest,
    read_manifest,
    write_arrow,
)
from capgrade.schemas.params import CiderParams, CiderPlainParams, MeasuresParams, SbertParams
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.say import warn
from capgrade.schemas.shards import Shards, pair_columns, read_shards, shard_schema

_GIVE = "give Labels.load(..., captions=FOLDER), what `capgrade captions` wrote"
IMAGES = 1024  # of a batch, where published pairs are laid out as shards


@dataclass(frozen=True)
class Opened:
    """Labels and whose they are. What a folder does not say is None."""

    file: Path | str
    stored: Stored
    image_ids: list[str]  # the id of each image row
    n_captions: int  # how many captions there are
    owners: np.ndarray | None = None  # int64 [n_captions]: the image of each caption
    captions: Captions | None = None
    made_with: dict[str, Any] | None = None  # the parameters of each measure
    inputs: Mapping[str, Any] = field(default_factory=dict)  # digests of the files that they were made from
    computed: Mapping[str, Any] | None = None  # what `Labels.exact` was given
    calibrated: Mapping[str, str] = field(default_factory=dict)  # columns of meaning to people -> their measure

    @property
    def measures(self) -> list[str]:
        """Names of the measures, in the order of the files."""
        return list(self.stored.measures)

    @property
    def caption_ids(self) -> list[str]:
        """The id of each caption row. InputError where no captions table is there."""
        return self.table.caption_ids

    @property
    def texts(self) -> list[str]:
        """The text of each caption row. InputError where no captions table is there."""
        return self.table.texts

    @property
    def table(self) -> Captions:
        """The captions table. InputError where it is not there."""
        if self.captions is None:
            raise InputError("these labels have rows of captions, not ids", file=self.file, remedy=_GIVE)
        return self.captions

    @property
    def owner(self) -> np.ndarray:
        """The image row of each caption row, int64 [n_captions]. InputError where it is not known."""
        if self.owners is None:
            raise InputError("whose each caption is stands in the captions table", file=self.file, remedy=_GIVE)
        return self.owners

    def chosen(self, measure: str | None) -> str:
        """The measure, or the only one there is. InputError otherwise, listing them."""
        if measure is None and len(self.measures) == 1:
            return self.measures[0]
        if measure not in self.measures:
            problem = "no measure chosen" if measure is None else f"no measure '{measure}' in these labels"
            raise InputError(problem, file=self.file, remedy=f"choose from: {', '.join(self.measures)}")
        return measure

    def known_of(self, image: int, measure: str) -> tuple[np.ndarray, np.ndarray]:
        """The caption rows whose relevance to an image row is known, and it: float32 [n]."""
        return self.stored.of_image(image, measure)

    def with_computed(self, measure: str, device: str, model: str | None, document_frequency: str | None) -> Self:
        """As `Labels.exact`."""
        if not self.stored.sampled:
            return self
        if self.captions is None or self.made_with is None:
            problem = "the rest is computed from the captions, which are not here"
            raise InputError(problem, file=self.file, remedy=_GIVE)
        if measure in self.calibrated:
            remedy = f"ask for {self.calibrated[measure]}, and publish with the pairs that you need"
            raise InputError(f"{measure} is known of published pairs alone", file=self.file, remedy=remedy)
        params = self._params(measure, model, document_frequency)
        require_read([measure], params, self.inputs, Path(self.file))
        stored = Computed.of(measure, params, self.captions, device)
        how = {"measure": measure, "device": device, "model": model, "document_frequency": document_frequency}
        return replace(self, stored=stored, computed=how)

    def _params(self, measure: str, model: str | None, document_frequency: str | None) -> MeasuresParams:
        """Those that the measure was made with, whose encoder and files the user names."""
        assert self.made_with is not None
        given = MeasuresParams(
            sbert=SbertParams(model=model or EMBEDDED),
            cider=CiderParams(document_frequency=document_frequency),
            cider_plain=CiderPlainParams(document_frequency=document_frequency),
        )
        made = params_of({measure: self.made_with[measure]}, Path(self.file))
        params = as_named(made, given, Path(self.file), EXACT)
        for name in ("cider", "cider_plain"):
            file = getattr(params, name).document_frequency
            if file is not None and not Path(file.partition("#")[0]).exists():
                problem = f"{measure} was made with the document frequencies of '{file}', which is not here"
                remedy = "call this in a folder where it lies under this name, or exact(..., document_frequency=FILE)"
                raise InputError(problem, file=self.file, remedy=remedy)
        return params

    def stored_on(self, device: Any, images: np.ndarray, captions: np.ndarray, measure: str) -> RelevanceBlock | None:
        """Tensors that are computed where they are wanted; None for labels that come from a file."""
        return self.stored.on_device(device, images, captions) if isinstance(self.stored, Computed) else None


def opened(
    where: str | Path, measures: Sequence[str] | None, split: str | None, captions: str | Path | None,
    revision: str | None,
) -> Opened:  # fmt: skip
    """As `Labels.load`."""
    folder = Path(where)
    if not folder.is_dir():
        folder = _from_hub(str(where), revision)
    elif revision is not None:
        raise InputError("a folder has no revision", file=folder, remedy="leave revision out")
    if not (folder / MANIFEST).is_file():
        remedy = "give a folder of capgrade shards, relevance or publish, or USER/NAME of the hub"
        raise InputError(f"no {MANIFEST}: no labels", file=folder, remedy=remedy)
    kind = parse_manifest(folder / MANIFEST)["kind"]
    if kind not in KINDS:
        raise InputError(f"a {kind} folder", file=folder, remedy=f"give a folder of capgrade {', '.join(KINDS)}")
    return KINDS[kind](folder, measures, split, captions)


def _from_hub(where: str, revision: str | None) -> Path:
    from capgrade.labels.hub import Repository

    name, _, at = where.partition("@")
    if name.count("/") != 1 or name.startswith((".", "/")):
        raise InputError("no such folder, nor a dataset USER/NAME", file=where, remedy="check the path")
    repository = Repository(name)
    return repository.download(repository.head(revision or at or None))


def _chosen(measures: Sequence[str] | None, known: Sequence[str], folder: Path) -> list[str]:
    for name in measures or ():
        if name not in known:
            raise InputError(f"no measure '{name}'", file=folder, remedy=f"choose from: {', '.join(known)}")
    return list(known if measures is None else measures)


def _published(folder: Path, measures: Sequence[str] | None, split: str | None, source: str | Path | None) -> Opened:
    manifest, captions = published_captions(folder, split)
    if source is not None:
        _require_same(captions, read_captions(Path(source), split or captions.split), folder)
    calibrated = manifest.get("calibration", {}).get("columns", {})
    names = _chosen(measures, [*manifest["measures"], *calibrated], folder)
    batches, reasons = _pairs(folder, manifest, captions, [*manifest["measures"], *calibrated])
    stored = _sampled(batches, names, captions.n_captions, reasons)
    found = _of_captions(folder, stored, captions, manifest["measures"], manifest["inputs"])
    return replace(found, calibrated=calibrated)


def _pairs(
    folder: Path, manifest: dict[str, Any], captions: Captions, names: Sequence[str]
) -> tuple[list[pa.RecordBatch], list[str]]:
    """The pairs of a published split as batches of shards, and the names of their reasons. They are kept in
    `$CAPGRADE_CACHE/published` and mapped by every process; in memory, with a warning, where nothing may be written.
    """
    name = hashlib.sha256(f"{digest(folder / MANIFEST)} {captions.split} {package_version()}".encode()).hexdigest()
    path = cache_folder().with_name("published") / f"{name[:32]}.arrow"
    with suppress(InputError):  # none, or a damaged one
        return _mapped(path)
    schema, batches = _as_shards(folder, manifest, captions, names)
    try:
        write_arrow(path, schema, batches, CACHE)
    except InputError as error:
        warn(f"the pairs of {folder} cannot be kept, so every process reads them anew: {error}")
        return batches, metadata_of(schema)["reasons"]
    return _mapped(path)


def _mapped(path: Path) -> tuple[list[pa.RecordBatch], list[str]]:
    file = open_arrow(path)
    return [file.get_batch(k) for k in range(file.num_record_batches)], metadata_of(file.schema)["reasons"]


def _as_shards(
    folder: Path, manifest: dict[str, Any], captions: Captions, names: Sequence[str]
) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """The pairs of a published split, laid out as shards are. InputError for damaged ones."""
    pairs = list(published_pairs(folder, manifest, captions, names))
    image = np.concatenate([part.image for part in pairs])
    if (np.diff(image) < 0).any():
        raise InputError("pairs are not in the order of images", file=folder, remedy="publish it again")
    weight = np.concatenate([part.weight for part in pairs])
    values = {name: np.concatenate([part.values[name] for part in pairs]) for name in names}
    _finite({**values, "weight": weight}, folder)
    reasons, (why,) = published_reasons(folder, manifest, captions.split)
    flat = {"captions": np.concatenate([part.caption for part in pairs]), "reasons": why, "weight": weight, **values}
    schema = shard_schema(names, {"reasons": reasons})
    start, batches = np.searchsorted(image, np.arange(captions.n_images + 1)), []
    for at in range(0, captions.n_images, IMAGES):
        ptr = start[at : at + IMAGES + 1]
        lists = {name: pa.array(column[ptr[0] : ptr[-1]]) for name, column in flat.items()}
        offsets = pa.array(ptr - ptr[0], pa.int32())
        images = pa.array(np.arange(at, at + len(ptr) - 1), pa.int32())
        columns = [captions.image_ids[at : at + len(images)], images]
        columns += [pa.ListArray.from_arrays(offsets, lists[name]) for name in flat]
        batches.append(pa.record_batch(columns, schema=schema))
    return schema, batches


def _require_same(published: Captions, given: Captions, folder: Path) -> None:
    """InputError unless both tables have the same captions of the same images in the same rows."""
    columns = ["image_id", "caption_id", "caption"]
    if not published.table.select(columns).equals(given.table.select(columns)):
        remedy = f"give the captions it was published from, or choose its split '{published.split}' of them"
        raise InputError(f"published from other captions than split '{given.split}'", file=folder, remedy=remedy)


def _require_split(found: str | None, split: str | None, folder: Path) -> None:
    if split not in (None, found):
        raise InputError(f"labels of split '{found}', not of '{split}'", file=folder, remedy="choose that split")


def _finite(values: dict[str, np.ndarray], folder: Path) -> None:
    for name, numbers in values.items():
        if np.isnan(numbers).any():
            row = f"pairs[{int(np.isnan(numbers).argmax())}]"
            raise InputError(f"column '{name}' has no value", file=folder, row=row, remedy="publish it again")


def _shards(folder: Path, measures: Sequence[str] | None, split: str | None, captions: str | Path | None) -> Opened:
    shards = read_shards(folder)
    _require_split(shards.metadata["split"], split, folder)
    table = None if captions is None else read_captions(Path(captions), shards.metadata["split"])
    if table is not None:
        shards.require(table)
    names, n_captions = _chosen(measures, shards.measures, folder), int(shards.metadata["n_captions"])
    batches = list(shards.batches())
    stored = _sampled(batches, names, n_captions, shards.metadata["reasons"])
    made_with = shards.metadata["params"]["measures"]
    if table is not None:
        return _of_captions(folder, stored, table, made_with, shards.manifest["inputs"])
    image_ids, owner = [], np.full(n_captions, -1, np.int64)
    for batch in batches:
        image_ids += batch["image_id"].to_pylist()
        _own(batch, shards, owner)
    return Opened(folder, stored, image_ids, n_captions, owners=owner, made_with=made_with)


def _sampled(
    batches: Sequence[pa.RecordBatch], names: Sequence[str], n_captions: int, reasons: Sequence[str]
) -> Sampled:
    """The pairs of shards' batches, where they lie."""
    parts = []
    for batch in batches:
        offsets = batch["captions"].offsets.to_numpy().astype(np.int64)
        flat = {name: batch[name].flatten().to_numpy() for name in ("captions", "weight", "reasons", *names)}
        columns = flat.pop("captions"), flat.pop("weight"), flat.pop("reasons")
        parts.append(Part(offsets - offsets[0], *columns, flat))
    return Sampled(names, n_captions, parts, reasons)


def _own(batch: pa.RecordBatch, shards: Shards, owner: np.ndarray) -> None:
    """Own captions are always kept, and say so."""
    row, flat = pair_columns(batch)
    bit = np.uint32(1 << shards.metadata["reasons"].index("own"))
    own = (flat["reasons"].to_numpy() & bit) > 0
    owner[flat["captions"].to_numpy()[own]] = batch["image"].to_numpy()[row[own]]


def _relevance(folder: Path, measures: Sequence[str] | None, split: str | None, captions: str | Path | None) -> Opened:
    files = [Path(name) for name in sorted(read_manifest(folder, "relevance")["files"]) if name.endswith(".arrow")]
    names = _chosen(measures, [file.stem for file in files], folder)
    matrices = {name: read_relevance(folder / f"{name}.arrow") for name in names}
    first = next(iter(matrices.values()))
    _require_split(first.metadata.get("split"), split, folder)
    if captions is None:
        return Opened(folder, Dense(matrices), first.image_ids, first.n_captions)
    table = read_captions(Path(captions), first.metadata.get("split"))
    for matrix in matrices.values():
        matrix.require(table)
    return _of_captions(folder, Dense(matrices), table)


def _of_captions(
    folder: Path, stored: Stored, captions: Captions, made_with: dict[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> Opened:  # fmt: skip
    return Opened(
        folder, stored, captions.image_ids, captions.n_captions, captions.owner, captions, made_with, inputs or {}
    )


KINDS: dict[str, Callable[[Path, Sequence[str] | None, str | None, str | Path | None], Opened]] = {
    "shards": _shards,
    "relevance": _relevance,
    "publish": _published,
}

"""A Hugging Face dataset: an id on the hub, a folder from `save_to_disk`, or data files of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

from capgrade.pipelines.sources.fields import Position, keep_splits, source_path
from capgrade.pipelines.sources.table import Fields, Record, captions_of
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CaptionsParams

if TYPE_CHECKING:
    from datasets import Dataset

SAVED = ("dataset_dict.json", "state.json")  # what save_to_disk leaves, for a DatasetDict and for a Dataset
BUILDERS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".csv": "csv", ".arrow": "arrow"}


def read_hub(params: CaptionsParams) -> Iterator[Caption]:
    """Captions in the order of the dataset, one split of it after another.

    The caption column holds a string, or a list of strings that share the row's image. A split column
    (`params.columns.split`, or one called "split") says each row's split, else it is the dataset's own; then
    `params.split` keeps one, several as in "train+val", or all for None. Only the columns in use are read, so
    images are neither decoded nor loaded.
    Raises InputError for a dataset that cannot be loaded, a missing column, an optional one that only some splits
    have, a value of the wrong type, an unknown split.
    """
    return keep_splits(_captions(params), params.split, source_path(params))


def _captions(params: CaptionsParams) -> Iterator[Caption]:
    name = str(source_path(params))
    # A dataset saved alone may not know which split it is.
    loaded = {split or params.split or "all": dataset for split, dataset in _load(name, params).items()}
    found = {
        split: Fields.found(params.columns, dataset.column_names, Position(name, split))
        for split, dataset in loaded.items()
    }
    _require_same(found, name)
    for split, dataset in loaded.items():
        records = _records(dataset.select_columns(found[split].names()), name, split)
        yield from captions_of(records, found[split], split)


def _require_same(found: Mapping[str, Fields], name: str) -> None:
    """InputError for a column that is read of one split of the dataset and that another has not."""
    for split, fields in found.items():
        for other, theirs in found.items():
            if missing := set(theirs.names()) - set(fields.names()):
                problem = f"no column '{min(missing)}', which split '{other}' has"
                raise Position(name, split).refuse(problem, "give it in every split, or in none")


def _records(dataset: Dataset, name: str, split: str) -> Iterator[Record]:
    for index, record in enumerate(dataset.with_format(None)):
        yield Position(name, f"{split}[{index}]"), record


def _load(name: str, params: CaptionsParams) -> Mapping[str, Dataset]:
    """The dataset's splits by name; "" for one that has no name."""
    from datasets import DatasetDict, load_dataset, load_from_disk  # seconds to import
    from datasets.exceptions import DatasetsError

    path = Path(name)
    try:
        if any((path / saved).is_file() for saved in SAVED):
            loaded = load_from_disk(name)
        elif path.is_file() or path.suffix in BUILDERS:
            loaded = load_dataset(_builder(path), data_files=name)
        else:
            loaded = load_dataset(name, params.config, revision=params.revision)
    except (DatasetsError, OSError, ValueError, RuntimeError) as error:
        reason = shorten(str(error), 300)
        remedy = "give a dataset id, or a file or folder of parquet, JSON or CSV, or one that save_to_disk wrote"
        raise InputError(f"cannot be loaded as a dataset ({reason})", file=name, remedy=remedy) from error
    if isinstance(loaded, DatasetDict):
        return {str(split): dataset for split, dataset in loaded.items()}
    return {str(loaded.split or ""): loaded}


def _builder(path: Path) -> str:
    if path.suffix not in BUILDERS:
        remedy = f"give one of {', '.join(BUILDERS)}"
        raise InputError(f"'{path.suffix}' is not a kind of data file", file=path, remedy=remedy)
    return BUILDERS[path.suffix]
